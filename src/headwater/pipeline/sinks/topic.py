"""A topic as a sink, exactly once.

Tasks encode their rows into finished record batches. The driver ships the batches of an epoch in one Kafka
transaction, together with a note of the epoch: the offset, in the topic's first partition, of a group of
the query's own. So the records of an epoch and the fact that it is done become visible together, or not
at all.

A query that starts opens its transactional id first, which ends whatever an earlier driver left open and
shuts that driver out; then it reads the note. Spark replays the last epoch when it cannot know that it was
done; the note tells that it was, and nothing is sent.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, MapType

from headwater.client.cluster import Cluster
from headwater.client.topic_settings import TABLE
from headwater.client.transactions import TransactionalWriter, max_batch_bytes
from headwater.core.urls import KafkaUrl
from headwater.pipeline.boundaries import boundary
from headwater.pipeline.sinks import spill
from headwater.pipeline.sinks.checkpoint import is_new, settle
from headwater.pipeline.sinks.columns import DELETED, SinkError, json_row, key_text, refuse_null
from headwater.pipeline.sinks.encode import HEADERS, KEY, PARTITION, TIMESTAMP, VALUE, BatchEncoder
from headwater.pipeline.sinks.output_mode import upserting_mode
from headwater.pipeline.sinks.stopping import stoppable

__all__ = ["epochs_group", "start_topic", "topic_settings"]

_OWN = (TIMESTAMP, HEADERS, PARTITION)
"""Columns that a stream may have to set these of its records; they are no part of the value."""


def start_topic(
    df: DataFrame,
    *,
    broker: str,
    topic: str,
    key: Sequence[str],
    mode: str,
    format: str,
    query: str,
    checkpoint: str,
    partitions: int | None = None,
) -> StreamingQuery:
    """Start a query whose rows go to a topic, which is made where there is none.

    With `mode="changes"` a row replaces the one before it with its key, and a row whose `_deleted` is true
    becomes the null that deletes it; the topic is then compacted.
    """
    changes = mode == "changes"
    records = _records(df, key=key, format=format, query=query, changes=changes)
    cluster = Cluster(KafkaUrl.parse(broker), query)
    cluster.ensure_topic(topic, partitions, topic_settings(mode))
    encoder = TaskEncoder(
        partitions=len(cluster.partitions(topic)),
        max_bytes=max_batch_bytes(cluster, topic),
        directory=spill.directory_of(checkpoint),
    )
    shipper = Shipper(cluster, topic, query, checkpoint, start_over=is_new(df.sparkSession, checkpoint))
    spill.clear(encoder.directory)
    return (
        records.mapInArrow(encoder, spill.DDL)
        .writeStream.queryName(query)
        .foreachBatch(stoppable(shipper.ship))
        .outputMode(upserting_mode(df) if changes else "append")
        .option("checkpointLocation", checkpoint)
        .start()
    )


def topic_settings(mode: str) -> dict[str, str]:
    """Return the settings of the topic that a stream of this mode is written to, where it has to be made."""
    return dict(TABLE) if mode == "changes" else {}


def epochs_group(query: str) -> str:
    """Return the group whose offset is the number of epochs that are done."""
    return f"headwater.{query}.epochs"


def _records(df: DataFrame, *, key: Sequence[str], format: str, query: str, changes: bool) -> DataFrame:
    """Return the rows as keys and values, with what they set of their records themselves."""
    if len(key) == 1 and key[0] in df.columns and isinstance(df.schema[key[0]].dataType, BinaryType):
        keys = F.col(key[0])
    else:
        keys = key_text(df, key) if key else F.lit(None)
    for column in key if changes else ():
        keys = refuse_null(df, column, query=query, text=keys)
    value = _value(df, format, query)
    if changes and DELETED in df.columns:
        value = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), value)
    columns = [keys.cast("binary").alias(KEY), value.cast("binary").alias(VALUE)]
    for name in _OWN:
        if name in df.columns:
            own = F.col(name)
            if name == HEADERS and isinstance(df.schema[name].dataType, MapType):
                own = F.map_entries(own)
            columns.append(own.alias(name))
    return df.select(*columns)


def _value(df: DataFrame, format: str, query: str) -> Any:
    match format:
        case "json":
            return json_row(df, without=(DELETED, *_OWN), nulls=False)
        case "raw" if VALUE in df.columns:
            return F.col(VALUE)
        case "raw":
            raise SinkError(f"{query}: format raw writes the column `value`, which the rows do not have")
        case _:
            raise SinkError(f"{query}: topics are written as json or raw, not as {format}")


@dataclass(frozen=True)
class TaskEncoder:
    """What each task does with its rows; Spark sends it to the workers."""

    partitions: int
    max_bytes: int
    directory: str | None

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn rows into rows that stand for finished batches."""
        now_ms = time.time_ns() // 1_000_000
        encoder = BatchEncoder(
            partitions=self.partitions, now_ms=now_ms, max_bytes=self.max_bytes, sticky=now_ms
        )
        to = spill.Spill(self.directory)
        try:
            for some in rows:
                for batch in encoder.add(some):
                    yield to.hand(batch)
                boundary("topic.in_task")
            for batch in encoder.finish():
                yield to.hand(batch)
        finally:
            to.close()


class Shipper:
    """The driver's part: one transaction for each epoch."""

    def __init__(
        self, cluster: Cluster, topic: str, query: str, checkpoint: str, *, start_over: bool
    ) -> None:
        self._topic = topic
        self._checkpoint = checkpoint
        self._group = epochs_group(query)
        # Spark lets go of its callbacks some time after their query has ended, and tells nobody.
        weakref.finalize(self, cluster.close)
        self._writer = TransactionalWriter(cluster, query)
        if start_over:
            cluster.commit_group(self._group, topic, {0: 0})
        self._epochs_done = cluster.group_offsets(self._group, topic, [0]).get(0, 0)

    def ship(self, frame: DataFrame, epoch: int) -> None:
        """Send an epoch's batches, unless it is done; Spark's `foreachBatch` calls this."""
        # A replayed epoch is computed like any other, for the watermark that comes of it.
        batches = [spill.Handed(*row) for row in frame.collect()]
        # Without records there is nothing to tell apart from a replay, and no need of a transaction.
        if batches and epoch >= self._epochs_done:
            self._send(batches, epoch)
        spill.remove(batches)

    def _send(self, batches: list[spill.Handed], epoch: int) -> None:
        waiting: dict[int, deque[spill.Handed]] = {}
        for batch in batches:
            waiting.setdefault(batch.partition, deque()).append(batch)
        settle(self._checkpoint, epoch)
        boundary("topic.before_begin")
        self._writer.begin(self._topic, waiting)
        while waiting:
            # A Produce request holds one batch of each partition, and no more.
            round_ = {partition: queue.popleft().read() for partition, queue in waiting.items()}
            self._writer.produce(self._topic, round_)
            waiting = {partition: queue for partition, queue in waiting.items() if queue}
        boundary("topic.after_produce")
        self._writer.commit_group(self._group, self._topic, {0: epoch + 1})
        boundary("topic.before_commit")
        self._writer.commit()
        boundary("topic.after_commit")
        self._epochs_done = epoch + 1
