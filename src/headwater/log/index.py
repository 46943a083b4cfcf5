"""The sparse index of one segment: from an offset or a time to a place in its file.

An entry is added for the first batch that begins `interval` bytes or more after the last indexed one:

    offset relative to the segment's base   4 bytes
    position in the file                    4 bytes
    largest timestamp before that position  8 bytes

The timestamps are a running maximum, so both columns are sorted and one binary search serves each
kind of look-up; the few batches between two entries are walked by their headers.

The file holds a header and the entries, each under a checksum, so that the header can be trusted before
the entries are needed. It can always be made again from the segment: a file that is missing, cut short,
zeroed or damaged reads as no index at all. Its header says how many bytes of the segment it covers, so
after a crash only what lies beyond is read again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from crc32c import crc32c

_MAGIC = b"HWIX"
_VERSION = 1
# magic, version, checksum of the header from here on, checksum of the entries, number of entries, bytes
# covered, next offset, first timestamp, largest timestamp, position of the batch that has it
_HEADER = struct.Struct("<4sIIIIQqqqQ")
_CHECKED_FROM = 12
HEADER_SIZE = _HEADER.size
ENTRY_SIZE = 16


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a segment an index file speaks for, and what it knows of that part."""

    position: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int
    max_position: int


class SparseIndex:
    """The entries of one segment, in memory: 16 bytes each, sorted by offset, position and time."""

    __slots__ = ("offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int, max_timestamp_before: int) -> None:
        """Add an entry after all others."""
        self.offsets.append(relative_offset)
        self.positions.append(position)
        self.times.append(max_timestamp_before)

    def floor(self, relative_offset: int) -> tuple[int, int]:
        """Return (relative offset, position) of the last entry at or before an offset, or (0, 0)."""
        i = bisect_right(self.offsets, relative_offset) - 1
        return (self.offsets[i], self.positions[i]) if i >= 0 else (0, 0)

    def ceiling(self, position: int) -> tuple[int, int] | None:
        """Return (relative offset, position) of the first entry beyond a position."""
        i = bisect_right(self.positions, position)
        return (self.offsets[i], self.positions[i]) if i < len(self.positions) else None

    def at_or_before(self, position: int) -> tuple[int, int]:
        """Return (relative offset, position) of the last entry at or before a position, or (0, 0)."""
        i = bisect_right(self.positions, position) - 1
        return (self.offsets[i], self.positions[i]) if i >= 0 else (0, 0)

    def before_time(self, timestamp: int) -> tuple[int, int]:
        """Return (relative offset, position) that no record of this timestamp or a later one lies before."""
        i = bisect_left(self.times, timestamp) - 1
        return (self.offsets[i], self.positions[i]) if i >= 0 else (0, 0)

    def encode(self, coverage: Coverage) -> bytes:
        """Return the index file's content: the entries that lie within `coverage`."""
        count = bisect_right(self.positions, coverage.position)
        columns = b"".join(
            _little_endian(column[:count]) for column in (self.offsets, self.positions, self.times)
        )
        header = bytearray(_HEADER.size)
        fields = (
            crc32c(columns),
            count,
            coverage.position,
            coverage.next_offset,
            coverage.first_timestamp,
            coverage.max_timestamp,
            coverage.max_position,
        )
        _HEADER.pack_into(header, 0, _MAGIC, _VERSION, 0, *fields)
        crc = crc32c(memoryview(header)[_CHECKED_FROM:])
        _HEADER.pack_into(header, 0, _MAGIC, _VERSION, crc, *fields)
        return bytes(header) + columns


def read_coverage(header: bytes, file_size: int) -> Coverage | None:
    """Return what an index file's header says, or None where it is damaged or no index at all."""
    if len(header) < _HEADER.size:
        return None
    magic, version, crc, _, count, *fields = _HEADER.unpack_from(header)
    if magic != _MAGIC or version != _VERSION or file_size != _HEADER.size + count * ENTRY_SIZE:
        return None
    if crc32c(memoryview(header)[_CHECKED_FROM : _HEADER.size]) != crc:
        return None
    return Coverage(*fields)


def decode(data: bytes) -> tuple[SparseIndex, Coverage] | None:
    """Return the index that a file holds, or None where any of it is damaged."""
    coverage = read_coverage(data, len(data))
    if coverage is None or crc32c(memoryview(data)[_HEADER.size :]) != _HEADER.unpack_from(data)[3]:
        return None
    count = (len(data) - _HEADER.size) // ENTRY_SIZE
    index = SparseIndex()
    start = _HEADER.size
    for column, width in ((index.offsets, 4), (index.positions, 4), (index.times, 8)):
        column.frombytes(data[start : start + count * width])
        if sys.byteorder == "big":
            column.byteswap()
        start += count * width
    return index, coverage


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
