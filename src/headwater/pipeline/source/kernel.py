"""Loops over bytes, compiled: batches in a fetch, records in a batch, fields into columns.

A record costs a dozen varints; in Python that is a dozen function calls, here some nanoseconds. Nothing is
believed: a length that leaves its batch ends the walk with an error, which the caller raises.
The compiled code is cached beside this file, or where `NUMBA_CACHE_DIR` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headwater.pipeline.source.memory import byte_at, copy_bytes

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

# The columns of what `walk` returns.
POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, ATTRIBUTES, PRODUCER, BASE_TIME, MAX_TIME, COUNT = range(9)
_BATCH_COLUMNS = 9
# The columns of what `find` returns; a length of -1 is null, a place is a position in the buffer.
KEY_AT, KEY_LENGTH, VALUE_AT, VALUE_LENGTH, OFFSET, TIME, HEADERS_AT, HEADERS = range(8)
_RECORD_COLUMNS = 8

_HEADER_SIZE = 61
_LENGTH_END = 12
_LOG_APPEND_TIME = 0x08
_OPEN, _CLOSE, _NEWLINE = 0x7B, 0x7D, 0x0A


@njit(cache=True, nogil=True, inline="always")
def _big_endian(buffer: Bytes, at: int, size: int) -> Any:
    value = np.int64(np.int8(byte_at(buffer, at)))
    for i in range(1, size):
        value = (value << 8) | np.int64(byte_at(buffer, at + i))
    return value


@njit(cache=True, nogil=True, inline="always")
def _varint(buffer: Bytes, at: int, end: int) -> tuple[Any, int]:
    """Return a zig-zag varint and the position after it, which is past `end` where it does not fit."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = np.uint64(byte_at(buffer, at))
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
        if shift > 63:
            break
    return np.int64(0), end + 1


@njit(cache=True, nogil=True, inline="always")
def _is_space(byte: int) -> bool:
    return byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09


@njit(cache=True, nogil=True)
def walk(buffer: Bytes) -> Longs:
    """Return a row for each whole batch, and one of zeroes last where what follows is no batch at all."""
    end = len(buffer)
    count = 0
    at = 0
    damaged = False
    while end - at >= _HEADER_SIZE:
        size = _LENGTH_END + _big_endian(buffer, at + 8, 4)
        if byte_at(buffer, at + 16) != 2 or size < _HEADER_SIZE:
            damaged = True
            break
        if at + size > end:
            break
        count += 1
        at += size
    found = np.zeros((count + damaged, _BATCH_COLUMNS), np.int64)
    at = 0
    for i in range(count):
        row = found[i]
        row[POSITION] = at
        row[SIZE] = _LENGTH_END + _big_endian(buffer, at + 8, 4)
        row[BASE_OFFSET] = _big_endian(buffer, at, 8)
        row[LAST_OFFSET] = row[BASE_OFFSET] + _big_endian(buffer, at + 23, 4)
        row[ATTRIBUTES] = _big_endian(buffer, at + 21, 2)
        row[PRODUCER] = _big_endian(buffer, at + 43, 8)
        row[BASE_TIME] = _big_endian(buffer, at + 27, 8)
        row[MAX_TIME] = _big_endian(buffer, at + 35, 8)
        row[COUNT] = _big_endian(buffer, at + 57, 4)
        at += row[SIZE]
    return found


@njit(cache=True, nogil=True)
def find(
    buffer: Bytes, starts: Longs, ends: Longs, batches: Longs, first: int, stop: int
) -> tuple[Longs, int]:
    """Return a row for each record with `first <= offset < stop`, and the batch that does not read, or -1.

    `starts` and `ends` say where the uncompressed records of each row of `batches` lie.
    """
    room = 0
    for i in range(len(starts)):
        # A record has at least seven bytes, so a count cannot claim more memory than its bytes could hold.
        room += max(0, min(batches[i, COUNT], (ends[i] - starts[i]) // 7 + 1))
    found = np.empty((room, _RECORD_COLUMNS), np.int64)
    n = 0
    for i in range(len(starts)):
        at = starts[i]
        end = ends[i]
        base_offset = batches[i, BASE_OFFSET]
        base_time = batches[i, BASE_TIME]
        append_time = batches[i, ATTRIBUTES] & _LOG_APPEND_TIME
        for _ in range(batches[i, COUNT]):
            length, at = _varint(buffer, at, end)
            after = at + length
            if length < 0 or after > end or n >= room:
                return found[:n], i
            at += 1
            time_delta, at = _varint(buffer, at, after)
            offset_delta, at = _varint(buffer, at, after)
            key_length, at = _varint(buffer, at, after)
            key_at = at
            at += max(key_length, 0)
            if at > after:
                return found[:n], i
            value_length, at = _varint(buffer, at, after)
            value_at = at
            at += max(value_length, 0)
            if at > after:
                return found[:n], i
            headers, at = _varint(buffer, at, after)
            if at > after or headers < 0 or headers > length:
                return found[:n], i
            headers_at = at
            for _ in range(2 * headers):  # names and values
                size, at = _varint(buffer, at, after)
                at += max(size, 0)
                if at > after:
                    return found[:n], i
            if at != after:
                return found[:n], i
            offset = base_offset + offset_delta
            if first <= offset < stop:
                found[n, KEY_AT] = key_at
                found[n, KEY_LENGTH] = key_length
                found[n, VALUE_AT] = value_at
                found[n, VALUE_LENGTH] = value_length
                found[n, OFFSET] = offset
                found[n, TIME] = batches[i, MAX_TIME] if append_time else base_time + time_delta
                found[n, HEADERS_AT] = headers_at
                found[n, HEADERS] = headers
                n += 1
            at = after
        if at != end:
            return found[:n], i
    return found[:n], -1


@njit(cache=True, nogil=True)
def gather(buffer: Bytes, at: Longs, lengths: Longs) -> tuple[NDArray[np.int32], Bytes]:
    """Return the Arrow offsets and data of a binary column; a negative length is an empty place."""
    n = len(at)
    offsets = np.empty(n + 1, np.int32)
    total = 0
    for i in range(n):
        offsets[i] = total
        total += max(lengths[i], 0)
    offsets[n] = total
    data = np.empty(total, np.uint8)
    for i in range(n):
        start = offsets[i]
        begin = at[i]
        copy_bytes(data, start, buffer, begin, offsets[i + 1] - start)
    return offsets, data


@njit(cache=True, nogil=True)
def join_objects(buffer: Bytes, at: Longs, lengths: Longs) -> tuple[Bytes, NDArray[np.bool_], Any]:
    """Return the values as lines, which of them look like one JSON object, and whether all is ASCII.

    A value that does not begin with `{` and end with `}` is left out, so that none can end inside the next.
    """
    n = len(at)
    total = 0
    for i in range(n):
        total += max(lengths[i], 0) + 1
    data = np.empty(total, np.uint8)
    objects = np.zeros(n, np.bool_)
    position = 0
    bits: Any = np.uint8(0)
    for i in range(n):
        begin = at[i]
        end = begin + lengths[i]
        while begin < end and _is_space(byte_at(buffer, begin)):
            begin += 1
        while begin < end and _is_space(byte_at(buffer, end - 1)):
            end -= 1
        if end - begin < 2 or byte_at(buffer, begin) != _OPEN or byte_at(buffer, end - 1) != _CLOSE:
            continue
        objects[i] = True
        copy_bytes(data, position, buffer, begin, end - begin)
        for j in range(begin, end):
            bits |= byte_at(buffer, j)
        position += end - begin
        data[position] = _NEWLINE
        position += 1
    return data[:position], objects, bits < 0x80
