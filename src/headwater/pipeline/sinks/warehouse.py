"""A warehouse as a sink, exactly once: Parquet files that tasks merge side by side, and one rename of a link.

Rows are shuffled by the bucket of their key. A task keeps the last change of each key, merges the changes with the part
that is there, and writes the next one (`headwater.derived.parts`). Then the driver has the link lead to the version
of all parts, which carries the position in the topic (`headwater.derived.versions`).

The position is all that is kept. Spark's checkpoint is thrown away at each start, and the query begins where the files
are; a batch that comes again, or that another process has written meanwhile, is known by its offsets and left out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client import EARLIEST, Cluster
from headwater.derived.change import Position
from headwater.derived.errors import DerivedError, Switched
from headwater.derived.parts import KEY, buckets_for
from headwater.derived.reading import TopicReader
from headwater.derived.versions import Version
from headwater.derived.warehouse import Warehouse
from headwater.pipeline.boundaries import boundary
from headwater.pipeline.sinks.stopping import stoppable
from headwater.pipeline.sinks.warehouse_parts import BUCKET, OFFSET, PARTITION, RESULT, PartMerger
from headwater.pipeline.sinks.warehouse_rows import WarehouseRows
from headwater.pipeline.source import TopicSource, read_stream
from headwater.pipeline.source.offsets import SourceOffset

__all__ = ["WarehouseWriter", "begin", "start_warehouse"]

_TASKS_PER_CORE = 4


def start_warehouse(
    spark: SparkSession,
    read: WarehouseRows,
    store: Warehouse,
    *,
    query: str,
    checkpoint: str,
    every_ms: int,
) -> StreamingQuery:
    """Start a query that keeps a warehouse in step with a topic, from where its files are."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    base = begin(store, read.source)
    source = replace(read.source, offsets=tuple(base.offsets.items()))
    committer = Committer(WarehouseWriter(store, read), Path(checkpoint), base.offsets)
    writer = (
        read.keyed(read_stream(spark, source))
        .writeStream.queryName(query)
        .foreachBatch(stoppable(committer.commit))
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
    )
    if every_ms:
        writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
    return writer.start()


def begin(store: Warehouse, source: TopicSource) -> Position:
    """Return where a warehouse is, after making an empty one where there is none; refuse one that cannot go on."""
    base = store.position()
    if base is not None:
        base.check(store.name, source.topic, store.shape)
    cluster = Cluster(source.url, f"headwater-{store.name}")
    try:
        reader = TopicReader(cluster, source.topic, base, store=store.name)
        if base is None:
            base = Position(source.topic, reader.topic_id, reader.offsets, store.shape)
            store.apply({}, None, base)
        firsts = cluster.offsets(source.topic, dict.fromkeys(reader.offsets, EARLIEST))
    finally:
        cluster.close()
    for partition, offset in base.offsets.items():
        if offset < firsts[partition]:
            raise DerivedError(
                f"{store.name} cannot go on where it was: offset {offset} of {source.topic}-{partition} is gone from"
                f" the broker; build it anew with `headwater derived rebuild APP {store.name}`"
            )
    return base


class Committer:
    """The driver's part of a query: one version for each epoch."""

    def __init__(self, writer: WarehouseWriter, checkpoint: Path, offsets: Mapping[int, int]) -> None:
        self._writer = writer
        self._checkpoint = checkpoint
        self._at = dict(offsets)

    def commit(self, rows: DataFrame, epoch: int) -> None:
        """Write an epoch; Spark's `foreachBatch` calls this."""
        # A version, a document about the batch, and one line for the one source.
        [planned] = (self._checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2:]
        end = SourceOffset.parse(json.loads(planned))
        self._writer.write(rows, self._at, end)
        self._at = end.offsets


class WarehouseWriter:
    """Writes rows between two positions of a topic into a warehouse's next version."""

    def __init__(self, store: Warehouse, read: WarehouseRows) -> None:
        self._store = store
        self._read = read

    def write(
        self, rows: DataFrame, start: Mapping[int, int], end: SourceOffset, *, expected: int | None = None
    ) -> None:
        """Make the next version of rows that were read between two positions, unless the files have them all.

        `expected` is how many rows the version may have, where that is known better than by the offsets.
        """
        versions = self._store.versions
        version = versions.live()
        if version is None or not _reached(version.position.offsets, start):
            raise Switched(
                f"the warehouse {self._store.name} is not where it was left: it goes on from its files"
            )
        base = version.position
        if base.topic_id != (end.topic_id or ""):
            raise Switched(f"the warehouse {self._store.name} was built anew of another topic {base.topic}")
        if _reached(base.offsets, end.offsets):
            return
        new = sum(max(0, offset - base.offsets.get(each, 0)) for each, offset in end.offsets.items())
        total = sum(version.rows) + new if expected is None else expected
        buckets = buckets_for(total, len(version.rows), self._store.bucket_rows)
        with versions.making() as made:
            counts = self._merge(_after(rows, base, start), version, buckets, made)
            boundary("warehouse.before_commit")
            position = base.moved(_furthest(base.offsets, end.offsets))
            versions.finish(made, version, buckets=buckets, counts=counts, position=position)
        boundary("warehouse.after_commit")

    def _merge(self, rows: DataFrame, version: Version, buckets: int, made: Path) -> dict[int, int]:
        """Write the parts that change; return the rows of each."""
        spark = rows.sparkSession
        had = len(version.rows)
        placed = rows.withColumn(BUCKET, (F.crc32(F.col(KEY)) % buckets).cast("int"))
        if buckets != had:  # all are written anew, also those without a change
            every = spark.range(buckets, numPartitions=1).select(F.col("id").cast("int").alias(BUCKET))
            placed = placed.unionByName(every, allowMissingColumns=True)
        tasks = min(buckets, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
        placed = placed.repartitionById(tasks, F.col(BUCKET) % tasks)
        if tasks < buckets:
            placed = placed.sortWithinPartitions(BUCKET)
        merger = PartMerger(
            before=str(version.path.absolute()),
            had=had,
            made=str(made.absolute()),
            buckets=buckets,
            columns=self._read.columns,
            texts=self._read.texts,
        )
        found = placed.mapInArrow(merger, RESULT).collect()
        return {row.bucket: row.rows for row in found}


def _after(rows: DataFrame, base: Position, start: Mapping[int, int]) -> DataFrame:
    """Leave out what the files have already."""
    ahead = {each: offset for each, offset in base.offsets.items() if offset > start.get(each, 0)}
    if not ahead:
        return rows
    whens = " ".join(f"WHEN {each} THEN {OFFSET} >= {offset}" for each, offset in ahead.items())
    return rows.where(f"CASE {PARTITION} {whens} ELSE true END")


def _reached(offsets: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    return all(offsets.get(each, 0) >= offset for each, offset in wanted.items())


def _furthest(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in {**one, **other}}
