"""The two loops over records that a topic sink has, compiled: choose a partition, append to its batch.

Both read Arrow's buffers as they are (offsets and data) and write the bytes of Kafka's record format
(see `record.records`), so no Python object is made for any record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

    def njit(**_options: object) -> Callable[[F], F]: ...
else:
    from numba import njit

__all__ = ["append", "choose_partitions"]

_MASK = np.uint64(0xFFFFFFFF)
_SEED = np.uint64(0x9747B28C)
_M = np.uint64(0x5BD1E995)
_R8, _R13, _R15, _R16, _R24 = (np.uint64(bits) for bits in (8, 13, 15, 16, 24))
_LOW7 = np.uint64(0x7F)
_MORE = np.uint64(0x80)
_ONE = np.uint64(1)
_SEVEN = np.uint64(7)


@njit(cache=True, nogil=True)
def _murmur2(data: Any, start: int, end: int) -> Any:
    """Hash like `Utils.murmur2` of Kafka's Java client, in 64 bits kept below 2^32."""
    state = (_SEED ^ np.uint64(end - start)) & _MASK
    at = start
    while end - at >= 4:
        word = (
            np.uint64(data[at])
            | np.uint64(data[at + 1]) << _R8
            | np.uint64(data[at + 2]) << _R16
            | np.uint64(data[at + 3]) << _R24
        )
        word = (word * _M) & _MASK
        word ^= word >> _R24
        word = (word * _M) & _MASK
        state = ((state * _M) & _MASK) ^ word
        at += 4
    left = end - at
    if left == 3:
        state ^= np.uint64(data[at + 2]) << _R16
    if left >= 2:
        state ^= np.uint64(data[at + 1]) << _R8
    if left >= 1:
        state ^= np.uint64(data[at])
        state = (state * _M) & _MASK
    state ^= state >> _R13
    state = (state * _M) & _MASK
    state ^= state >> _R15
    return state


@njit(cache=True, nogil=True)
def choose_partitions(offsets: Any, data: Any, present: Any, asked: Any, sticky: int, partitions: int) -> Any:
    """Return the partition of each record: the one asked for, the key's, or `sticky` for want of a key.

    `present` is empty when every record has a key; `asked` is empty when none names its partition, and
    holds -1 for the records that do not.
    """
    chosen = np.empty(len(offsets) - 1, dtype=np.int32)
    for row in range(len(chosen)):
        if len(asked) and asked[row] >= 0:
            chosen[row] = asked[row]
        elif len(present) and not present[row]:
            chosen[row] = sticky
        else:
            hashed = _murmur2(data, offsets[row], offsets[row + 1]) & np.uint64(0x7FFFFFFF)
            chosen[row] = np.int32(hashed % np.uint64(partitions))
    return chosen


@njit(cache=True, nogil=True)
def _varint_size(number: int) -> Any:
    rest = np.uint64((number << 1) ^ (number >> 63)) >> _SEVEN
    size = 1
    while rest:
        size += 1
        rest >>= _SEVEN
    return size


@njit(cache=True, nogil=True)
def _put_varint(out: Any, at: int, number: int) -> Any:
    rest = np.uint64((number << 1) ^ (number >> 63))
    while rest > _LOW7:
        out[at] = np.uint8((rest & _LOW7) | _MORE)
        rest >>= _SEVEN
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@njit(cache=True, nogil=True)
def _put(out: Any, at: int, column: Any, row: int) -> Any:
    """Write a length, -1 for null, and the bytes."""
    offsets, data, present = column
    if len(present) and not present[row]:
        return _put_varint(out, at, -1)
    start = offsets[row]
    length = offsets[row + 1] - start
    at = _put_varint(out, at, length)
    # Over slices the loop's index is never negative, so that it compiles to a plain copy of memory.
    source, target = data[start : start + length], out[at : at + length]
    for byte in range(length):
        target[byte] = source[byte]
    return at + length


@njit(cache=True, nogil=True)
def _size(column: Any, row: int) -> Any:
    """Return how many bytes `_put` writes."""
    offsets, _, present = column
    if len(present) and not present[row]:
        return 1
    length = offsets[row + 1] - offsets[row]
    return _varint_size(length) + length


@njit(cache=True, nogil=True)
def append(
    first: int,
    keys: Any,
    values: Any,
    header_lists: Any,
    header_names: Any,
    header_values: Any,
    timestamps: Any,
    chosen: Any,
    out: Any,
    state: Any,
    limit: int,
) -> Any:
    """Append records from row `first` on to the batches of their partitions, until one is full.

    A column is (offsets, data, present), `present` empty when nothing is null. `header_lists` holds the
    offsets of each record's headers, and is empty when there are none. `out` has a row of bytes for each
    partition, and `state` one of (bytes filled, records, first timestamp, highest timestamp).

    Returns (the row that did not fit, the bytes that it needs): its partition's batch has to be taken out
    first or, where that is empty, given a larger buffer. When all fit, the row is past the last one.
    """
    for row in range(first, len(chosen)):
        place = state[chosen[row]]
        filled, records = place[0], place[1]
        if records == 0:
            place[2] = timestamps[row]
            place[3] = timestamps[row]
        since = timestamps[row] - place[2]
        begin, end = 0, 0
        if len(header_lists):
            begin, end = header_lists[row], header_lists[row + 1]
        size = 1 + _varint_size(since) + _varint_size(records) + _size(keys, row) + _size(values, row)
        size += _varint_size(end - begin)
        for header in range(begin, end):
            size += _size(header_names, header) + _size(header_values, header)
        needed = _varint_size(size) + size
        if (records and filled + needed > limit) or filled + needed > out.shape[1]:
            return row, needed
        bytes_ = out[chosen[row]]
        at = _put_varint(bytes_, filled, size)
        bytes_[at] = 0
        at = _put_varint(bytes_, at + 1, since)
        at = _put_varint(bytes_, at, records)
        at = _put(bytes_, at, keys, row)
        at = _put(bytes_, at, values, row)
        at = _put_varint(bytes_, at, end - begin)
        for header in range(begin, end):
            at = _put(bytes_, at, header_names, header)
            at = _put(bytes_, at, header_values, header)
        place[0] = at
        place[1] = records + 1
        place[3] = max(place[3], timestamps[row])
    return len(chosen), 0
