"""The record batch of Kafka's message format v2, as bytes.

    offset  size  field
    0       8     base offset               patched by the broker, outside the checksum
    8       4     batch length              of what follows this field
    12      4     partition leader epoch    patched by the broker, outside the checksum
    16      1     magic                     2
    17      4     CRC-32C                   of everything from the attributes on
    21      2     attributes                codec (3 bits), timestamp type, transactional, control
    23      4     last offset delta
    27      8     base timestamp
    35      8     max timestamp
    43      8     producer id
    51      2     producer epoch
    53      4     base sequence
    57      4     record count
    61            records, compressed as one block when there is a codec

The first twelve bytes and the leader epoch stand outside the checksum, so a broker gives a batch its
offset without reading, let alone rewriting, a single record. Nothing here looks inside the records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headwater.core.errors import ErrorCode, HeadwaterError

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LENGTH_END = 12
"""Where the batch length starts to count: a batch occupies `LENGTH_END + batch_length` bytes."""
CRC_START = 21
MIN_LENGTH = HEADER_SIZE - LENGTH_END
MAGIC = 2
_MAGIC_AT = 16
_OLD_MIN_LENGTH = 14  # of the formats before batches

CODEC_MASK = 0x07
MAX_CODEC = 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_APPEND_TIME = struct.Struct(">hi8xq")


class CorruptBatch(HeadwaterError):
    """Bytes that are not a whole, undamaged record batch."""

    code = ErrorCode.corrupt_message


class InvalidBatch(HeadwaterError):
    """A whole batch that a producer must not send."""

    code = ErrorCode.invalid_record


class Header(NamedTuple):
    """The fixed part of a batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes that the whole batch occupies."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or where it was before compaction took it out."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        """Whether the batch holds transaction markers."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)


def read_header(buffer: Buffer, position: int = 0) -> Header:
    """Return the header at `position`; the caller knows that `HEADER_SIZE` bytes are there."""
    return Header._make(_HEADER.unpack_from(buffer, position))


def write_header(buffer: bytearray | memoryview, position: int, header: Header) -> None:
    """Write `header` at `position`, checksum and all, as given."""
    _HEADER.pack_into(buffer, position, *header)


def checksum(buffer: Buffer, start: int, end: int) -> int:
    """Return the CRC-32C that the batch in `buffer[start:end]` ought to carry."""
    value: int = crc32c(memoryview(buffer)[start + CRC_START : end])
    return value


def check(buffer: Buffer, start: int, end: int) -> Header:
    """Return the header of the one batch in `buffer[start:end]`; raise `CorruptBatch` or `InvalidBatch`.

    Checks what damage would break: the length, the magic byte and the checksum. Less than a batch after
    the batch is no part of it, as in Kafka; the header's `size` tells where it ends.
    """
    if end - start < HEADER_SIZE:
        raise _too_short(buffer, start, end)
    header = Header._make(_HEADER.unpack_from(buffer, start))
    length = header[1]
    stop = start + LENGTH_END + length
    if header[3] != MAGIC or length < MIN_LENGTH or stop > end:
        raise _too_short(buffer, start, end)
    if stop != end and _whole(buffer, stop, end):
        raise InvalidBatch("a produce request holds exactly one record batch per partition")
    if header[4] != crc32c(memoryview(buffer)[start + CRC_START : stop]):
        raise CorruptBatch("the record batch fails its checksum")
    return header


def _whole(buffer: Buffer, start: int, end: int) -> bool:
    """Whether a whole batch of any format begins at `start`."""
    if end - start <= _MAGIC_AT:
        return False
    length: int = _LENGTH.unpack_from(buffer, start + 8)[0]
    return start + LENGTH_END + length <= end


def _too_short(buffer: Buffer, start: int, end: int) -> CorruptBatch | InvalidBatch:
    """Return what Kafka says of bytes that do not begin with a whole batch of format 2."""
    if end - start > _MAGIC_AT:
        length, magic = _LENGTH.unpack_from(buffer, start + 8)[0], buffer[start + _MAGIC_AT]
        if length < _OLD_MIN_LENGTH or (magic == MAGIC and length < MIN_LENGTH):
            return CorruptBatch(f"a batch length of {length} is too small")
        if magic > MAGIC:
            return CorruptBatch(f"there is no message format {magic}")
        if magic < MAGIC:
            return InvalidBatch(
                f"message format {magic} is not supported: only record batches of format 2 are"
            )
    return InvalidBatch(f"{end - start} bytes hold no whole record batch")


def check_produced(header: Header) -> None:
    """Raise `InvalidBatch` where a producer's batch contradicts itself or is not a producer's to send."""
    (_, _, _, _, _, attributes, last_delta, _, _, producer_id, _, base_sequence, count) = header
    if count <= 0 or last_delta != count - 1:
        raise InvalidBatch(f"the batch counts {count} records but its last offset delta is {last_delta}")
    if attributes & CONTROL:
        raise InvalidBatch("clients are not allowed to write control records")
    if attributes & CODEC_MASK > MAX_CODEC:
        raise InvalidBatch(f"there is no compression codec number {attributes & CODEC_MASK}")
    if producer_id != NO_PRODUCER and base_sequence < 0:
        raise InvalidBatch(f"producer {producer_id} sent no sequence number")


def place(buffer: bytearray | memoryview, start: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `start` its offset and leader epoch; neither is under the checksum."""
    _PLACE.pack_into(buffer, start, base_offset, _LENGTH.unpack_from(buffer, start + 8)[0], leader_epoch)


def stamp(buffer: bytearray | memoryview, start: int, end: int, header: Header, now_ms: int) -> Header:
    """Turn the batch at `buffer[start:end]` into one with the broker's time (`LogAppendTime`)."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    write_header(buffer, start, stamped)
    stamped = stamped._replace(crc=checksum(buffer, start, end))
    write_header(buffer, start, stamped)
    return stamped


def batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Header]]:
    """Yield (position, header) of each whole batch in `buffer[start:end]`, without checking checksums.

    A batch cut off by the end of the buffer ends the iteration, as it does in a fetch response.
    """
    stop = len(buffer) if end is None else end
    position = start
    while stop - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.magic != MAGIC or header.length < MIN_LENGTH:
            raise CorruptBatch(f"no record batch at byte {position}")
        following = position + LENGTH_END + header.length
        if following > stop:
            return
        yield position, header
        position = following
