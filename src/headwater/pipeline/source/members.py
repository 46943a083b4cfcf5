"""Where the members of JSON objects lie, compiled: what an envelope holds is found without being read.

Only the structure around the members that are asked for is looked at. What they hold is checked by whoever reads
it, and what nobody asked for is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headwater.pipeline.source.json_kernel import _field, _number, _skip_space
from headwater.pipeline.source.kernel import Bytes, Longs, _is_space
from headwater.pipeline.source.memory import byte_at

__all__ = ["Names", "find_members", "read_longs"]

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
_NONE = -1


class Names:
    """Names of members, as the compiled code has them."""

    def __init__(self, *names: str) -> None:
        encoded = [name.encode() for name in names]
        self.bytes = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
        self.ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)


@njit(cache=True, nogil=True, inline="always")
def _string_after(buffer: Bytes, at: int, end: int) -> int:
    """Return the position after a string whose first character is at `at`, or -1."""
    while at < end:
        byte = byte_at(buffer, at)
        if byte == _QUOTE:
            return at + 1
        at += 2 if byte == _BACKSLASH else 1
    return _NONE


@njit(cache=True, nogil=True)
def _value_after(buffer: Bytes, at: int, end: int) -> int:
    """Return the position after a value, or -1."""
    if at >= end:
        return _NONE
    first = byte_at(buffer, at)
    if first == _QUOTE:
        return _string_after(buffer, at + 1, end)
    if first != _OPEN and first != _OPEN_LIST:
        begin = at
        while at < end:
            byte = byte_at(buffer, at)
            if byte in (_COMMA, _CLOSE, _CLOSE_LIST) or _is_space(byte):
                break
            at += 1
        return at if at > begin else _NONE
    depth = 0
    while at < end:
        byte = byte_at(buffer, at)
        at += 1
        if byte == _QUOTE:
            at = _string_after(buffer, at, end)
            if at < 0:
                return _NONE
        elif byte in (_OPEN, _OPEN_LIST):
            depth += 1
        elif byte in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return at
    return _NONE


@njit(cache=True, nogil=True)
def find_members(
    buffer: Bytes, places: Longs, lengths: Longs, names: Bytes, ends: Longs
) -> tuple[Longs, Longs, NDArray[np.bool_]]:
    """Return where the named members of each object are and how long, -1 where there is none, and which are objects."""
    count = len(places)
    found_at = np.zeros((len(ends), count), np.int64)
    found = np.full((len(ends), count), _NONE, np.int64)
    objects = np.zeros(count, np.bool_)
    for i in range(count):
        at = places[i]
        end = at + lengths[i]
        at = _skip_space(buffer, at, end)
        if at >= end or byte_at(buffer, at) != _OPEN:
            continue
        at = _skip_space(buffer, at + 1, end)
        expected = 0
        whole = at < end and byte_at(buffer, at) == _CLOSE
        while not whole:
            if at >= end or byte_at(buffer, at) != _QUOTE:
                break
            after = _string_after(buffer, at + 1, end)
            if after < 0:
                break
            c = _field(buffer, at + 1, after - 1, names, ends, expected)
            at = _skip_space(buffer, after, end)
            if at >= end or byte_at(buffer, at) != _COLON:
                break
            at = _skip_space(buffer, at + 1, end)
            after = _value_after(buffer, at, end)
            if after < 0:
                break
            if c >= 0:
                found_at[c, i] = at
                found[c, i] = after - at
                expected = c + 1 if c + 1 < len(ends) else 0
            at = _skip_space(buffer, after, end)
            if at >= end:
                break
            if byte_at(buffer, at) == _CLOSE:
                whole = True
            elif byte_at(buffer, at) == _COMMA:
                at = _skip_space(buffer, at + 1, end)
            else:
                break
        objects[i] = whole and _skip_space(buffer, at + 1, end) == end
    return found_at, found, objects


@njit(cache=True, nogil=True)
def read_longs(buffer: Bytes, places: Longs, lengths: Longs) -> tuple[Longs, Any]:
    """Return whole numbers, and where there are some; anything else is none."""
    values = np.zeros(len(places), np.int64)
    good = np.zeros(len(places), np.bool_)
    for i in range(len(places)):
        if lengths[i] <= 0:
            continue
        end = places[i] + lengths[i]
        after, mantissa, power, negative = _number(buffer, places[i], end)
        if after == end and power == 0:
            values[i] = -mantissa if negative else mantissa
            good[i] = True
    return values, good
