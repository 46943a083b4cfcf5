"""Values of columns as Redis keeps and compares them: in members of sorted sets that are ordered byte by byte.

A member of an index is a value, a zero byte and the key of a row. A value is its rank (nothing, numbers, texts) and
what is ordered within it: a number as sixteen hexadecimal digits, a text as its first 500 characters.
"""

from __future__ import annotations

import struct
from typing import Any

from headwater.views.columns import NUMBER
from headwater.views.conditions import sort_key

__all__ = ["candidates", "encoded", "member"]


def encoded(value: Any) -> bytes:
    """Return a value in a form whose bytes are in the order of values.

    >>> encoded(None) < encoded(-1.5) < encoded(False) < encoded(2) < encoded("") < encoded("a")
    True
    """
    rank, number, text = sort_key(value)
    if rank == 1:
        [bits] = struct.unpack(">Q", struct.pack(">d", number + 0.0))
        # The sign bit comes first, and the bits of a negative number run the other way.
        return b"1%016x" % (bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63))
    return b"%d%s" % (rank, text[:500].replace("\0", "\x01").encode())


def member(value: Any, key: bytes) -> bytes:
    """Return what an index holds for a row."""
    return encoded(value) + b"\0" + key


def candidates(text: str) -> list[bytes]:
    """Return the values that a filter's text may stand for."""
    match text:
        case "null":
            return [encoded(None)]
        case "true" | "false":
            return [encoded(text == "true")]
        case _ if NUMBER.fullmatch(text):
            return [encoded(float(text)), encoded(text)]
        case _:
            return [encoded(text)]
