"""Varints, tagged fields and the bound on elements that every reader here shares.

A length or count in a request is a claim. It is compared with the bytes that are left before anything
is allocated or looped over, and all the elements of a request together (array elements and tagged
fields) may not exceed `MAX_ELEMENTS`: a frame of 100 MB could otherwise hold fifty million of them,
each of which costs a Python object and a microsecond of everybody's event loop.
"""

from __future__ import annotations

from headwater.wire.kafka.errors import MalformedRequest

__all__ = ["MAX_ELEMENTS", "Buffer", "encode_uvarint", "read_uvarint", "skip_tagged_fields", "too_many"]

Buffer = bytes | bytearray | memoryview

#: Some 25 times the partitions of a large cluster; about 50 MB and half a second at the worst.
MAX_ELEMENTS = 1 << 18

_ONE_BYTE = tuple(bytes([value]) for value in range(128))


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return it and the position after it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedRequest(f"a varint at byte {position - 5} is longer than 5 bytes")


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned varint.

    >>> encode_uvarint(300)
    b'\\xac\\x02'
    """
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(buffer: Buffer, position: int, end: int, room: int) -> tuple[int, int]:
    """Step over a section of tagged fields; return the position after it and the room that is left."""
    count, position = read_uvarint(buffer, position)
    if count > room or count > end - position:
        raise too_many("tagged fields", count)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise MalformedRequest(f"a tagged field of {size} bytes ends after the request does")
    return position, room - count


def too_many(what: str, count: int) -> MalformedRequest:
    """Make the error for a count that is negative, or that no request of this size can hold."""
    return MalformedRequest(f"a request cannot hold {count} {what}")
