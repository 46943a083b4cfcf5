"""A batch of values without keys, encoded fast: what a queue's log is written in.

The same bytes as `encode_batch` makes of records that have a value alone and the same timestamp; the small
varints, which is nearly all of them, come from a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.record.batch import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    Header,
    checksum,
    write_header,
)
from headwater.record.records import encode_varint

__all__ = ["encode_values"]


def _varint(number: int) -> bytes:
    out = bytearray()
    encode_varint(out, number)
    return bytes(out)


_SMALL = 8192
_VARINTS = [_varint(number) for number in range(_SMALL)]
# A record before its offset: no attributes, no distance in time. Between offset and value: no key.
_BEGIN, _NO_KEY, _NO_HEADERS = b"\0\0", b"\x01", b"\0"
_FIXED = 4


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
