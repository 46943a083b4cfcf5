"""Topics as Spark DataFrames, over the Kafka protocol, with event time decided by the source.

- `spec`        what a query reads
- `datasource`  what Spark calls; on the driver it asks `driver`, in a task `reading`
- `driver`      the next batch: `poll` waits, `admission` bounds it, `event_time` says what time it is
- `reading`     a task: `ranges` fetches, `opened` and `kernel` find records, `json_values`, `avro_values`,
                `arrow_values` and `raw_values` make columns, `table_values` changes of a table's rows,
                `key_check` sees to whole keys,
                `dead_letters` takes what is malformed
- `jvm`         the same declaration on Spark's own connector
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headwater.pipeline.source.spec import CHANGE_COLUMNS, METADATA, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["TopicSource", "read_batch", "read_stream", "register"]

_HIDDEN = "_wm timestamp, _marker boolean"


def register(spark: SparkSession) -> None:
    """Make the source known to a session."""
    from headwater.pipeline.source.datasource import TopicDataSource

    spark.dataSource.register(TopicDataSource)


def read_stream(spark: SparkSession, source: TopicSource) -> DataFrame:
    """Return the rows of a topic as they come; in event time where it is declared."""
    if source.source == "jvm":
        from headwater.pipeline.source.jvm import read_with_connector

        return read_with_connector(spark, source, _declared(source))
    from headwater.pipeline.watermark import stamped

    register(spark)
    hidden = _HIDDEN if source.event_time is not None else None
    host = spark.conf.get("spark.driver.host", None) or "127.0.0.1"
    options = {**source.options(), "schema": _schema(source, hidden), "host": host}
    rows = spark.readStream.format("headwater").options(**options).load()
    return stamped(rows, source.event_time) if source.event_time is not None else rows


def read_batch(spark: SparkSession, source: TopicSource) -> DataFrame:
    """Return the rows that a topic holds now."""
    register(spark)
    options = {**source.options(), "schema": _schema(source, None)}
    return spark.read.format("headwater").options(**options).load()


def _schema(source: TopicSource, hidden: str | None) -> str:
    from pyspark.sql.types import StructType

    change = CHANGE_COLUMNS if source.envelope is not None else {}
    beside = [f"{name} {kind}" for name, kind in change.items()]
    beside += [*(f"{name} {METADATA[name]}" for name in source.metadata), *([hidden] if hidden else [])]
    fields = list(_declared(source))
    if beside:
        more = StructType.fromDDL(", ".join(beside))
        assert isinstance(more, StructType)
        fields += list(more)
    return json.dumps(StructType(fields).jsonValue())


def _declared(source: TopicSource) -> StructType:
    from pyspark.sql.types import StructField, StructType

    schema = StructType.fromDDL(source.schema)
    assert isinstance(schema, StructType)
    # A marker row has nothing in any column, and a record may lack any field.
    return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in schema])
