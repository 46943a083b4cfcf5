"""A batch of values without keys, encoded and decoded fast: what a queue's log is written in.

The same bytes as `encode_batch` makes of records that have a value alone and the same timestamp; the small
varints, which is nearly all of them, come from a table. Since nothing else varies, the length of a record
tells how long its value is and where it begins: one varint to read for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.record.batch import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    Buffer,
    CorruptBatch,
    Header,
    checksum,
    write_header,
)
from headwater.record.records import decode_varint, encode_varint

__all__ = ["decode_values", "encode_values"]


def _varint(number: int) -> bytes:
    out = bytearray()
    encode_varint(out, number)
    return bytes(out)


_SMALL = 8192
_VARINTS = [_varint(number) for number in range(_SMALL)]
# A record before its offset: no attributes, no distance in time. Between offset and value: no key.
_BEGIN, _NO_KEY, _NO_HEADERS = b"\0\0", b"\x01", b"\0"
_FIXED = 4
_ONE_BYTE, _TWO_BYTES, _THREE_BYTES = 1 << 6, 1 << 13, 1 << 20
"""From these numbers on a varint takes one byte more."""


def encode_values(values: Sequence[bytes], timestamp: int) -> tuple[bytearray, Header]:
    """Return a batch of `values` in order, and its header."""
    varints = _VARINTS
    parts: list[bytes] = []
    for delta, value in enumerate(values):
        size = len(value)
        length = varints[size] if size < _SMALL else _varint(size)
        place = varints[delta] if delta < _SMALL else _varint(delta)
        whole = size + len(length) + len(place) + _FIXED
        parts += (
            varints[whole] if whole < _SMALL else _varint(whole),
            _BEGIN,
            place,
            _NO_KEY,
            length,
            value,
            _NO_HEADERS,
        )
    payload = b"".join(parts)
    header = Header(
        base_offset=0,
        length=HEADER_SIZE - LENGTH_END + len(payload),
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=len(values),
    )
    out = bytearray(HEADER_SIZE)
    out += payload
    write_header(out, 0, header)
    header = header._replace(crc=checksum(out, 0, len(out)))
    write_header(out, 0, header)
    return out, header


def decode_values(buffer: Buffer, position: int, header: Header) -> list[bytes]:
    """Return the values of a batch that `encode_values` made, whose checksum is known to be right.

    Raises `CorruptBatch` where the records do not fill the batch.
    """
    end = position + header.size
    payload = bytes(buffer[position + HEADER_SIZE : end])
    values: list[bytes] = []
    try:
        at = 0
        for delta in range(header.record_count):
            whole = payload[at]
            if whole < 0x80:
                at += 1
            elif (second := payload[at + 1]) < 0x80:
                whole = whole & 0x7F | second << 7
                at += 2
            else:
                length, at = decode_varint(payload, at)
                whole = length << 1
            stop = at + (whole >> 1)
            # What is left of the record is its value and the value's length.
            place = 1 if delta < _ONE_BYTE else 2 if delta < _TWO_BYTES else len(_varint(delta))
            rest = (whole >> 1) - _FIXED - place
            if rest <= _ONE_BYTE:
                size = rest - 1
            elif rest <= _TWO_BYTES + 1:
                size = rest - 2
            elif rest <= _THREE_BYTES + 2:
                size = rest - 3
            else:
                size = rest - _long_length(rest)
            values.append(payload[stop - 1 - size : stop - 1])
            at = stop
    except IndexError:
        at = -1
    if at != len(payload):
        raise CorruptBatch(f"the values at offset {header.base_offset} do not read as their header says")
    return values


def _long_length(rest: int) -> int:
    """Return how many bytes the length takes of a long value that comes after it."""
    return next(n for n in range(4, 6) if rest - n < 1 << (7 * n - 1))
