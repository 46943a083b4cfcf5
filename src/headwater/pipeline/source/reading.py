"""A task: ranges of a topic into Arrow record batches, with what is malformed or late set aside."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.client import Cluster
from headwater.pipeline.boundaries import boundary
from headwater.pipeline.source import kernel
from headwater.pipeline.source.dead_letters import send_dead_letters, send_late
from headwater.pipeline.source.decoded import Decoded, Decoder
from headwater.pipeline.source.errors import SourceError
from headwater.pipeline.source.opened import Records, headers_of
from headwater.pipeline.source.ranges import RangeReader
from headwater.pipeline.source.raw_values import binary_column
from headwater.pipeline.source.reports import Report, send_reports
from headwater.pipeline.source.spec import METADATA, TopicSource
from headwater.pipeline.source.tasks import Range, Task

__all__ = ["cluster_of", "decoder_of", "hang_up", "read_task"]

WATERMARK = "_wm"
MARKER = "_marker"

_clusters: dict[tuple[int, str], Cluster] = {}


def cluster_of(source: TopicSource) -> Cluster:
    """Return this process's connections to a cluster, which stay for its next tasks."""
    key = (os.getpid(), source.broker)
    if key not in _clusters:
        _clusters[key] = Cluster(source.url, "headwater-pipeline")
    return _clusters[key]


def hang_up() -> None:
    """Close this process's connections; the next task makes new ones."""
    while _clusters:
        _clusters.popitem()[1].close()


def decoder_of(source: TopicSource, schema: pa.Schema) -> Decoder:
    """Return the decoder of a topic's format, or of a table's changes."""
    if source.envelope is not None:
        from headwater.pipeline.source.table_values import TableDecoder

        changes = TableDecoder(schema, source.envelope, source.key, source.valid_from)
        if source.key_types is None:
            return changes
        from headwater.app.schema import parse
        from headwater.pipeline.source.key_check import KeyChecked

        return KeyChecked(changes, schema, parse(source.key_types))
    match source.format:
        case "json":
            from headwater.pipeline.source.json_values import JsonDecoder

            return JsonDecoder(schema)
        case "raw":
            from headwater.pipeline.source.raw_values import RawDecoder

            return RawDecoder(schema)
        case "avro":
            from headwater.pipeline.source.avro_values import AvroDecoder

            return AvroDecoder(schema)
        case _:
            from headwater.pipeline.source.arrow_values import ArrowDecoder

            return ArrowDecoder(schema)


def read_task(source: TopicSource, schema: pa.Schema, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, its marker first, and tell the driver what was seen."""
    if task.marker:
        yield _marker(schema, _stamp(source, task))
    reader = _TaskReader(source, schema, task)
    reports = []
    for each in task.ranges:
        yield from reader.read(each)
        reports.append(reader.report)
    if task.report is not None and reports:
        send_reports(task.report, reports)
    boundary("source.after_read")


_NEVER = 2**62


class _TaskReader:
    """Reads ranges; `report` is what was seen of the last one."""

    def __init__(self, source: TopicSource, schema: pa.Schema, task: Task) -> None:
        self._source = source
        self._schema = schema
        self._cluster = cluster_of(source)
        hidden = {*source.metadata, WATERMARK, MARKER}
        self._declared = pa.schema([field for field in schema if field.name not in hidden])
        self._decoder = decoder_of(source, self._declared)
        self._stamp = _stamp(source, task)
        # An event before this is late; with corrections the time that Spark sees is held back as far. Spark's begins at
        # 1970: its operators would leave out what is older in silence.
        # A table's change is never late: whoever waits for it may have to go on without, but not for ever.
        self._late_before = max(self._stamp or 0, 0) if source.envelope is None else None
        self.report = Report(-1, 0, None, 0, 0)

    def read(self, each: Range) -> Iterator[pa.RecordBatch]:
        source = self._source
        ranged = RangeReader(
            self._cluster, source.topic, each.partition, each.start, each.end,
            skip_lost=source.lost == "skip",
        )  # fmt: skip
        high: int | None = None
        late = dead = 0
        for records in ranged:
            if not len(records):
                continue
            decoded = self._decoder.decode(records)
            if decoded.dead:
                dead += len(decoded.dead)
                self._bury(records, decoded, each.partition)
            batch, seen, dropped = self._batch(records, decoded, each.partition)
            late += dropped
            if seen is not None:
                high = seen if high is None else max(high, seen)
            if batch.num_rows:
                yield batch
        self.report = Report(
            each.partition,
            each.end,
            high,
            each.end - each.start,
            ranged.bytes_read,
            late,
            dead,
            ranged.skipped,
        )

    def _bury(self, records: Records, decoded: Decoded, partition: int) -> None:
        to = self._source.dead_letters
        if to is None:
            row, reason = decoded.dead[0]
            offset = records.table[row, kernel.OFFSET]
            raise SourceError(
                f"{self._source.topic}-{partition}: the record at offset {offset} is malformed ({reason}), and "
                "no dead-letter topic is declared to take it"
            )
        send_dead_letters(self._cluster, to, records, decoded.dead, self._source.topic, partition)

    def _batch(
        self, records: Records, decoded: Decoded, partition: int
    ) -> tuple[pa.RecordBatch, int | None, int]:
        """Return the rows, the highest event time among them and how many were out of time."""
        count = len(decoded.rows) if decoded.rows is not None else len(records)
        columns = dict(zip(self._declared.names, decoded.columns, strict=True))
        of_rows = records if decoded.rows is None else records.taken(decoded.rows)
        for name in self._source.metadata:
            columns[name] = _metadata(name, of_rows, partition, self._schema.field(name).type)
        high, late = None, np.zeros(0, np.intp)
        if self._source.event_time is not None and WATERMARK in self._schema.names:
            high, late = self._times(columns[self._source.event_time], of_rows)
            columns[WATERMARK] = _constant_time(self._schema.field(WATERMARK).type, count, self._stamp)
            columns[MARKER] = _false(count)
        batch = pa.RecordBatch.from_arrays(
            [columns[field.name] for field in self._schema], schema=self._schema
        )
        if len(late):
            if self._source.late == "aside" and self._source.late_topic is not None:
                send_late(
                    self._cluster,
                    self._source.late_topic,
                    of_rows,
                    late.tolist(),
                    self._source.topic,
                    partition,
                )
            kept = np.ones(count, np.bool_)
            kept[late] = False
            batch = batch.filter(pa.array(kept))
        return batch, high, len(late)

    def _times(self, column: pa.Array, records: Records) -> tuple[int | None, NDArray[np.intp]]:
        """Return the highest time that counts, and the rows that are late, or too far ahead to be believed."""
        moments = column.cast(pa.timestamp("us", column.type.tz)) if column.type.unit != "us" else column
        micros = moments.cast(pa.int64())
        values = micros.fill_null(_NEVER).to_numpy(zero_copy_only=False)
        counted = values != _NEVER if micros.null_count else None
        late = np.zeros(0, np.intp)
        if self._late_before is not None:
            late = np.flatnonzero(values < self._late_before * 1000)
        if self._source.ahead_ms is not None:
            written = records.column(kernel.TIME)
            early = (values > (written + self._source.ahead_ms) * 1000) & (values != _NEVER) & (written >= 0)
            counted = ~early if counted is None else counted & ~early
            late = np.union1d(late, np.flatnonzero(early))
        if counted is not None:
            values = values[counted]
        return int(values.max()) // 1000 if len(values) else None, late


def _stamp(source: TopicSource, task: Task) -> int | None:
    """Return the time that Spark gets to see: it must still hold what a correction needs."""
    if task.watermark is None or source.late != "correct":
        return task.watermark
    return task.watermark - source.corrections_ms


def _marker(schema: pa.Schema, stamp: int | None) -> pa.RecordBatch:
    columns = [
        _constant_time(field.type, 1, stamp)
        if field.name == WATERMARK
        else pa.array([True])
        if field.name == MARKER
        else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _constant_time(kind: pa.DataType, count: int, ms: int | None) -> pa.Array:
    # Spark's watermark begins at 1970, so that is what "none yet" looks like.
    micros = np.full(count, (ms or 0) * 1000, np.int64)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(micros)])


def _false(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes((count + 7) // 8))])


def _metadata(name: str, records: Records, partition: int, kind: pa.DataType) -> pa.Array:
    count = len(records)
    match name:
        case "_key":
            return binary_column(records, kernel.KEY_AT, kernel.KEY_LENGTH, kind)
        case "_partition":
            return pa.array(np.full(count, partition, np.int32))
        case "_offset":
            return pa.array(records.column(kernel.OFFSET))
        case "_timestamp":
            micros = records.column(kernel.TIME) * 1000
            return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(micros)])
        case "_headers":
            some = records.table[:, kernel.HEADERS] > 0
            return pa.array(
                [
                    [{"name": header, "value": value} for header, value in headers_of(records, row)]
                    if some[row]
                    else []
                    for row in range(count)
                ],
                kind,
            )
    raise SourceError(f"there is no metadata column {name}: there are {', '.join(METADATA)}")
