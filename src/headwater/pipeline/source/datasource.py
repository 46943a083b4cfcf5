"""The Python data source that Spark calls: a thin shell around `driver` and `reading`.

Spark makes a reader several times, in several processes, and pickles it: it holds the declaration alone, and
opens what it needs when it is first asked. One process per source only plans, for as long as the query runs:
what tasks need (numba, Arrow) is imported where they read.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.client import LATEST, Cluster
from headwater.pipeline.source.driver import SourceDriver, starting_offsets
from headwater.pipeline.source.offsets import SourceOffset
from headwater.pipeline.source.parent import end_with_parent
from headwater.pipeline.source.spec import TopicSource
from headwater.pipeline.source.tasks import Task, cut, plan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TopicDataSource"]


class TopicDataSource(DataSource):
    """`spark.read.format("headwater")`, with the options of a `TopicSource`."""

    @classmethod
    def name(cls) -> str:
        """Return the name that Spark knows this by."""
        return "headwater"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._source = TopicSource.of(options)
        self._schema = options["schema"]
        self._host = options.get("host", "127.0.0.1")

    def schema(self) -> StructType:
        """Return the declared columns, those asked for beside them, and the hidden ones."""
        import json

        return StructType.fromJson(json.loads(self._schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of what the topic holds."""
        return TopicReader(self._source, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that follows the topic."""
        return TopicStreamReader(self._source, schema, self._host)


class TopicReader(DataSourceReader):
    """Reads a topic from its start to where it ends when the query is planned."""

    def __init__(self, source: TopicSource, schema: StructType) -> None:
        self._source = source
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        source = self._source
        cluster = Cluster(source.url, "headwater-pipeline")
        try:
            start = SourceOffset(starting_offsets(cluster, source))
            end = SourceOffset(
                dict(source.ends) or cluster.offsets(source.topic, dict.fromkeys(start.offsets, LATEST))
            )
        finally:
            cluster.close()
        tasks = plan(start, end, None) if source.task_rows is None else cut(start, end, source.task_rows)
        # Spark takes an empty list for one task without a range, which is not one of ours.
        return tasks or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows."""
        return _rows(self._source, self._schema, partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a topic."""

    def __init__(self, source: TopicSource, schema: StructType, host: str) -> None:
        self._source = source
        self._schema = schema
        self._host = host
        self._driver: SourceDriver | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        return self._driving().initial().dump()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the declared limit of a batch; where both are declared, bytes are looked at as well."""
        if self._source.max_rows is not None:
            return ReadMaxRows(self._source.max_rows)
        if self._source.max_bytes is not None:
            return ReadMaxBytes(self._source.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None and size is None:
            size = self._source.max_bytes
        return self._driving().latest(SourceOffset.parse(start), rows, size).dump()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the partitions, by which Spark's progress shows the lag."""
        ends = self._driving().ends()
        return ends.dump() if ends is not None else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now."""
        self._driving().stop_at_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        return self._driving().tasks(SourceOffset.parse(start), SourceOffset.parse(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows."""
        return _rows(self._source, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Take note that a batch is done."""
        self._driving().commit(SourceOffset.parse(end))

    def stop(self) -> None:
        """Hang up."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _driving(self) -> SourceDriver:
        if self._driver is None:
            end_with_parent()
            self._driver = SourceDriver(self._source, host=self._host)
        return self._driver


def _rows(source: TopicSource, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    from headwater.pipeline.source.reading import read_task

    assert isinstance(partition, Task)
    return read_task(source, to_arrow_schema(schema, timezone="UTC"), partition)
