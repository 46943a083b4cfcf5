"""Arrow columns into finished Kafka record batches, in the task that computed them.

A batch is finished but for what only the transaction knows: producer id, epoch, sequence and, over
them, the checksum. `client.transactions` fills these in, which is all that the driver has to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.core.errors import HeadwaterError
from headwater.pipeline.sinks.kernel import append, choose_partitions
from headwater.record.batch import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    Header,
    write_header,
)
from headwater.record.codecs import Codec, compress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.bool_]]

__all__ = [
    "HEADERS",
    "KEY",
    "PARTITION",
    "TIMESTAMP",
    "VALUE",
    "BatchEncoder",
    "EncodingError",
    "Finished",
    "warm",
]

KEY, VALUE, PARTITION, TIMESTAMP, HEADERS = "key", "value", "_partition", "_timestamp", "_headers"
"""The columns of the records: the first two are there, the others where a stream sets them itself."""

_NO_FLAGS = np.empty(0, dtype=np.bool_)
_NO_OFFSETS = np.empty(0, dtype=np.int32)
_FILLED, _RECORDS, _FIRST_TIME, _LAST_TIME = range(4)
_FULL = 1024 * 1024  # more in a batch saves nothing, and a topic may take a hundred times as much
_SMALL = 128  # below this, a codec's own frame costs more than it saves


class EncodingError(HeadwaterError):
    """Rows that cannot become records of their topic."""


class Finished(NamedTuple):
    """A record batch that lacks only its producer's numbers and its checksum."""

    partition: int
    records: int
    data: bytes


class BatchEncoder:
    """Collects records by partition, and gives out a batch whenever one is full.

    >>> encoder = BatchEncoder(partitions=1, now_ms=1_700_000_000_000)
    >>> rows = pa.record_batch({"key": pa.array([b"a"]), "value": pa.array([b"1"])})
    >>> list(encoder.add(rows))
    []
    >>> [(batch.partition, batch.records) for batch in encoder.finish()]
    [(0, 1)]
    """

    def __init__(
        self,
        *,
        partitions: int,
        now_ms: int,
        max_bytes: int = _FULL,
        codec: Codec = Codec.SNAPPY,
        sticky: int = 0,
    ) -> None:
        self._partitions = partitions
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        # Counted before compression: what fits now fits in any case.
        self._limit = min(max_bytes, _FULL) - HEADER_SIZE
        self._codec = codec
        self._sticky = sticky % partitions
        self._bytes = np.empty((partitions, self._limit), dtype=np.uint8)
        self._state = np.zeros((partitions, 4), dtype=np.int64)

    def add(self, rows: pa.RecordBatch) -> Iterator[Finished]:
        """Take in rows, and yield the batches that they filled."""
        if not rows.num_rows:
            return
        keys = _column(rows.column(KEY))
        values = _column(rows.column(VALUE))
        lists, names, contents = _headers(rows)
        times = self._times(rows)
        chosen = choose_partitions(*keys, self._asked(rows), self._sticky, self._partitions)
        row = 0
        while True:
            row, needed = append(
                row,
                keys,
                values,
                lists,
                names,
                contents,
                times,
                chosen,
                self._bytes,
                self._state,
                self._limit,
            )
            if row == rows.num_rows:
                break
            partition = int(chosen[row])
            if self._state[partition, _RECORDS]:
                yield self._take(partition)
            else:
                self._widen(needed)
        # Records without a key stay together for a while, as with Kafka's sticky partitioner.
        self._sticky = (self._sticky + 1) % self._partitions

    def finish(self) -> Iterator[Finished]:
        """Yield the batches that are not full."""
        for partition in np.flatnonzero(self._state[:, _RECORDS]):
            yield self._take(int(partition))

    def _take(self, partition: int) -> Finished:
        filled, records, first_time, last_time = (int(number) for number in self._state[partition])
        self._state[partition] = 0
        body = self._bytes[partition, :filled].tobytes()
        codec = self._codec if filled > _SMALL else Codec.NONE
        payload = compress(codec, body)
        if len(payload) >= filled:
            codec, payload = Codec.NONE, body
        size = HEADER_SIZE + len(payload)
        if size > self._max_bytes:
            raise EncodingError(
                f"a record of {filled} bytes is {size} in its batch, and the topic takes {self._max_bytes}: "
                "raise its max.message.bytes, or make the rows smaller"
            )
        header = Header(
            base_offset=0,
            length=size - LENGTH_END,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec.value,
            last_offset_delta=records - 1,
            base_timestamp=first_time,
            max_timestamp=last_time,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=NO_SEQUENCE,
            record_count=records,
        )
        head = bytearray(HEADER_SIZE)
        write_header(head, 0, header)
        return Finished(partition, records, b"".join((head, payload)))

    def _widen(self, needed: int) -> None:
        """Make room for a record larger than any batch: it may still compress to one that the topic takes."""
        wider = np.empty((self._partitions, needed), dtype=np.uint8)
        for partition in np.flatnonzero(self._state[:, _RECORDS]):
            filled = self._state[partition, _FILLED]
            wider[partition, :filled] = self._bytes[partition, :filled]
        self._bytes = wider

    def _times(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        if TIMESTAMP not in rows.schema.names:
            return np.full(rows.num_rows, self._now_ms, dtype=np.int64)
        # Nanoseconds and microseconds below the millisecond are cut off: Kafka's timestamps have none.
        times = rows.column(TIMESTAMP).cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        return np.array(times.fill_null(self._now_ms), dtype=np.int64)

    def _asked(self, rows: pa.RecordBatch) -> NDArray[np.int32]:
        if PARTITION not in rows.schema.names:
            return np.empty(0, dtype=np.int32)
        asked = np.array(rows.column(PARTITION).cast(pa.int32()).fill_null(-1), dtype=np.int32)
        if len(asked) and not -1 <= asked.min() <= asked.max() < self._partitions:
            raise EncodingError(
                f"{PARTITION} {asked[(asked < -1) | (asked >= self._partitions)][0]} is not a partition of the "
                f"topic, which has {self._partitions}"
            )
        return asked


def warm() -> None:
    """Have the kernels loaded, or compiled where they never were."""
    row = pa.record_batch({KEY: pa.array([b""]), VALUE: pa.array([b""])})
    list(BatchEncoder(partitions=1, now_ms=0, max_bytes=1000).add(row))


def _column(array: pa.Array) -> Column:
    """Return a binary or string column's offsets, data and, when something is null, what is not."""
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.binary())  # which Spark sends only where it was told to
    _, offsets, data = array.buffers()
    starts = _read_only(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    bytes_ = _read_only(data or b"", np.uint8)
    present = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else _NO_FLAGS
    return starts, bytes_, present


def _read_only(buffer: pa.Buffer | bytes, kind: type[np.generic]) -> NDArray[Any]:
    """Return memory as an array that is not to be written, whoever allocated it.

    For numba one that may be written is of another type: the kernels would be compiled once more for it.
    """
    array = np.frombuffer(buffer, dtype=kind)
    array.setflags(write=False)
    return array


def _headers(rows: pa.RecordBatch) -> tuple[NDArray[Any], Column, Column]:
    """Return the offsets of each record's headers, their names and their values."""
    if HEADERS not in rows.schema.names:
        none = _read_only(b"", np.int32), _read_only(b"", np.uint8), _NO_FLAGS
        return _NO_OFFSETS, none, none
    lists = rows.column(HEADERS)
    entries = lists.flatten()
    sizes = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    starts = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=starts[1:])
    names, values = entries.flatten()
    if names.null_count:
        raise EncodingError(f"a header in {HEADERS} has no name: only its value may be null")
    return starts, _column(names), _column(values)
