"""A fetch's record batches opened: checked, without what was aborted, decompressed, and found record by record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.pipeline.source import kernel
from headwater.record.batch import CODEC_MASK, CONTROL, HEADER_SIZE, CorruptBatch, checksum, read_header
from headwater.record.codecs import Codec, decompress
from headwater.record.committed import committed_batches
from headwater.record.records import MAX_DECOMPRESSED, decode_varint

__all__ = ["OpenedFetch", "Records", "headers_of"]

_GROUP_BYTES = 64 * 1024 * 1024
"""How much of what was compressed is held open at once."""


@dataclass(frozen=True)
class Records:
    """Some records, in the order of their offsets, as places in one buffer."""

    buffer: kernel.Bytes
    table: kernel.Longs

    def __len__(self) -> int:
        return len(self.table)

    def column(self, index: int) -> kernel.Longs:
        """Return one of the columns that `kernel.find` names."""
        return np.ascontiguousarray(self.table[:, index])

    def taken(self, rows: NDArray[np.intp]) -> Records:
        """Return some of the records."""
        return Records(self.buffer, self.table[rows])

    def bytes_at(self, row: int, at: int, length: int) -> bytes | None:
        """Return the key or the value of one record, by the columns of its place and length."""
        start, size = int(self.table[row, at]), int(self.table[row, length])
        return None if size < 0 else self.buffer[start : start + size].tobytes()

    def key(self, row: int) -> bytes | None:
        """Return the key of one record."""
        return self.bytes_at(row, kernel.KEY_AT, kernel.KEY_LENGTH)

    def value(self, row: int) -> bytes | None:
        """Return the value of one record."""
        return self.bytes_at(row, kernel.VALUE_AT, kernel.VALUE_LENGTH)


class OpenedFetch:
    """What one fetch of one partition returned."""

    def __init__(self, records: memoryview, aborted: Sequence[tuple[int, int]]) -> None:
        self._view = records
        self._buffer = np.frombuffer(records, np.uint8)
        batches = kernel.walk(self._buffer)
        if len(batches) and batches[-1, kernel.SIZE] == 0:
            raise CorruptBatch("the broker sent what is no record batch")
        self._check(batches)  # before anything that a header says is believed
        self._batches = batches
        self._aborted = aborted

    @property
    def next_offset(self) -> int | None:
        """The offset after the last whole batch, or None where there is none."""
        return int(self._batches[-1, kernel.LAST_OFFSET]) + 1 if len(self._batches) else None

    def records(self, first: int, stop: int) -> Iterator[Records]:
        """Yield the committed records from offset `first` up to and without `stop`."""
        batches = self._visible(first, stop)
        codecs = batches[:, kernel.ATTRIBUTES] & CODEC_MASK
        if not codecs.any():
            starts = batches[:, kernel.POSITION] + HEADER_SIZE
            ends = batches[:, kernel.POSITION] + batches[:, kernel.SIZE]
            yield self._found(self._buffer, starts, ends, batches, first, stop)
            return
        begin, size, opened = 0, 0, []
        for i, codec in enumerate(codecs.tolist()):
            opened.append(self._open(batches[i], codec))
            size += len(opened[-1])
            if size >= _GROUP_BYTES or i == len(codecs) - 1:
                yield self._joined(opened, batches[begin : i + 1], first, stop)
                begin, size, opened = i + 1, 0, []

    def _visible(self, first: int, stop: int) -> kernel.Longs:
        batches = self._batches
        keep = (batches[:, kernel.LAST_OFFSET] >= first) & (batches[:, kernel.BASE_OFFSET] < stop)
        keep &= (batches[:, kernel.ATTRIBUTES] & CONTROL) == 0
        if self._aborted:
            committed = [position for position, _ in committed_batches(self._view, self._aborted)]
            keep &= np.isin(batches[:, kernel.POSITION], committed)
        return batches[keep]

    def _check(self, batches: kernel.Longs) -> None:
        for position, size in zip(
            batches[:, kernel.POSITION].tolist(), batches[:, kernel.SIZE].tolist(), strict=True
        ):
            if checksum(self._view, position, position + size) != read_header(self._view, position).crc:
                offset = read_header(self._view, position).base_offset
                raise CorruptBatch(f"the record batch at offset {offset} fails its checksum")

    def _open(self, batch: kernel.Longs, codec: int) -> bytes | memoryview:
        start = int(batch[kernel.POSITION])
        body = self._view[start + HEADER_SIZE : start + int(batch[kernel.SIZE])]
        return decompress(Codec.of(codec), body, MAX_DECOMPRESSED) if codec else body

    def _joined(
        self, opened: list[bytes | memoryview], batches: kernel.Longs, first: int, stop: int
    ) -> Records:
        ends = np.cumsum([len(part) for part in opened], dtype=np.int64)
        buffer = np.frombuffer(bytearray().join(opened), np.uint8)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        return self._found(buffer, starts, ends, batches, first, stop)

    @staticmethod
    def _found(
        buffer: kernel.Bytes,
        starts: kernel.Longs,
        ends: kernel.Longs,
        batches: kernel.Longs,
        first: int,
        stop: int,
    ) -> Records:
        table, bad = kernel.find(buffer, starts, ends, batches, first, stop)
        if bad >= 0:
            raise CorruptBatch(f"the records at offset {batches[bad, kernel.BASE_OFFSET]} do not read")
        return Records(buffer, table)


def headers_of(records: Records, row: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of one record; most have none, so this is plain Python."""
    found: list[tuple[str, bytes | None]] = []
    buffer = memoryview(records.buffer.data)
    position = int(records.table[row, kernel.HEADERS_AT])
    for _ in range(int(records.table[row, kernel.HEADERS])):
        size, position = decode_varint(buffer, position)
        name = bytes(buffer[position : position + size]).decode(errors="replace")
        size, position = decode_varint(buffer, position + size)
        found.append((name, None if size < 0 else bytes(buffer[position : position + size])))
        position += max(size, 0)
    return found
