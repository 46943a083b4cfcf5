"""The records inside a batch: for internal topics, tools, and the few requests that need one record.

Each record is length-prefixed; its numbers are zig-zag varints relative to the batch's base:

    length, attributes (1 byte), timestamp delta, offset delta, key, value, headers

where key, value and header values are a length (-1 for null) and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater.record.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    Buffer,
    CorruptBatch,
    Header,
    checksum,
    read_header,
    write_header,
)
from headwater.record.codecs import Codec, compress, decompress

MAX_DECOMPRESSED = 256 * 1024 * 1024
"""What one batch may grow to when it is opened; Kafka's largest requests are 100 MB."""


# Some clients put any bytes into a header's name: they come out as they went in.
_NAME_ERRORS = "surrogateescape"
_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1


class Record(NamedTuple):
    """One record with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_varint(out: bytearray, number: int) -> None:
    """Append `number`, of 64 bits at most, to `out` as a zig-zag varint."""
    if 0 <= number < 64:  # most lengths and deltas
        out.append(number << 1)
        return
    if not _MIN_INT64 <= number <= _MAX_INT64:
        raise ValueError(f"{number} does not fit 64 bits")
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the zig-zag varint at `position` and the position after it."""
    shift = rest = 0
    while True:
        if shift > 63:
            raise CorruptBatch(f"the varint at byte {position} is too long")
        byte = buffer[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            if rest >> 64:
                raise CorruptBatch(f"the varint before byte {position} does not fit 64 bits")
            return (rest >> 1) ^ -(rest & 1), position
        shift += 7


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = 0,
) -> bytearray:
    """Return a batch of `records`, whose offsets are relative to the first one's place.

    The records' own offsets say only how far apart they are.
    """
    rows = list(records)
    if not rows:
        raise ValueError("a batch holds at least one record")
    first = rows[0].offset
    base_timestamp = rows[0].timestamp
    body = bytearray()
    for record in rows:
        _encode_record(body, record, record.timestamp - base_timestamp, record.offset - first)
    payload = compress(codec, bytes(body)) if codec is not Codec.NONE else body
    header = Header(
        base_offset=base_offset,
        length=HEADER_SIZE - LENGTH_END + len(payload),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec.value,
        last_offset_delta=rows[-1].offset - first,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in rows),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(rows),
    )
    out = bytearray(HEADER_SIZE)
    out += payload
    write_header(out, 0, header)
    write_header(out, 0, header._replace(crc=checksum(out, 0, len(out))))
    return out


def _encode_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\0")
    encode_varint(body, timestamp_delta)
    encode_varint(body, offset_delta)
    _encode_bytes(body, record.key)
    _encode_bytes(body, record.value)
    encode_varint(body, len(record.headers))
    for name, value in record.headers:
        _encode_bytes(body, name.encode(errors=_NAME_ERRORS))
        _encode_bytes(body, value)
    encode_varint(out, len(body))
    out += body


def _encode_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        encode_varint(out, -1)
    else:
        encode_varint(out, len(value))
        out += value


def decode_batch(buffer: Buffer, start: int = 0, *, limit: int = MAX_DECOMPRESSED) -> Iterator[Record]:
    """Yield the records of the whole batch at `start`, opening its codec up to `limit` bytes.

    Raises `CorruptBatch` where the records do not read as the header says.
    """
    available = len(buffer) - start
    if available < HEADER_SIZE:
        raise CorruptBatch(f"{max(available, 0)} bytes are too few for a record batch")
    header = read_header(buffer, start)
    if not HEADER_SIZE <= header.size <= available or header.record_count < 0:
        raise CorruptBatch(f"no whole record batch of {header.record_count} records in {available} bytes")
    payload: Buffer = memoryview(buffer)[start + HEADER_SIZE : start + header.size]
    codec = Codec.of(header.attributes & CODEC_MASK)
    if codec is not Codec.NONE:
        payload = decompress(codec, payload, limit)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _decode_record(payload, position, header)
            yield record if append_time is None else record._replace(timestamp=append_time)
    except IndexError as error:
        raise CorruptBatch(f"the records at offset {header.base_offset} do not read: {error}") from None
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes follow the {header.record_count} records")


def _decode_record(buffer: Buffer, position: int, header: Header) -> tuple[Record, int]:
    length, position = decode_varint(buffer, position)
    end = position + length
    if length < 0 or end > len(buffer):
        raise CorruptBatch(f"a record of {length} bytes does not fit its batch")
    position += 1  # attributes: no bit of them is in use
    timestamp_delta, position = decode_varint(buffer, position)
    offset_delta, position = decode_varint(buffer, position)
    key, position = _decode_bytes(buffer, position)
    value, position = _decode_bytes(buffer, position)
    count, position = decode_varint(buffer, position)
    if not 0 <= count <= length:
        raise CorruptBatch(f"a record of {length} bytes cannot hold {count} headers")
    headers = []
    for _ in range(count):
        name, position = _decode_bytes(buffer, position)
        if name is None:
            raise CorruptBatch("a record header has no name")
        content, position = _decode_bytes(buffer, position)
        headers.append((name.decode(errors=_NAME_ERRORS), content))
    if position != end:
        raise CorruptBatch(f"a record says it has {length} bytes but ends {end - position} bytes early")
    offset = header.base_offset + offset_delta
    return Record(offset, header.base_timestamp + timestamp_delta, key, value, tuple(headers)), end


def _decode_bytes(buffer: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(buffer, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(buffer):
        raise CorruptBatch(f"a field of {length} bytes does not fit its batch")
    return bytes(buffer[position:end]), end
