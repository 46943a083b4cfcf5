"""Fetch, versions 4 to 18: the other message whose cost is the broker's.

The parser makes one tuple per partition and nothing else. The encoder never touches a record: it
returns the response in pieces, its own bytes with the caller's records between them, so that a record
may be a slice of memory, a file's range for `sendfile`, or anything else that knows its length.

As in `produce`, positions are checked lazily; see there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.wire.kafka.errors import MalformedRequest
from headwater.wire.kafka.primitives import (
    MAX_ELEMENTS,
    Buffer,
    encode_uvarint,
    read_uvarint,
    skip_tagged_fields,
    too_many,
)

__all__ = ["FetchPartition", "FetchRequest", "FetchTarget", "encode_fetch_response", "parse_fetch"]

_SESSIONS = 7
_RACKS = 11
_FLEXIBLE = 12
_TOPIC_IDS = 13
_REPLICA_STATE = 15

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_SIZES = struct.Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION = struct.Struct(">ii")
_REPLICA = struct.Struct(">iq")
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqB")

_TARGET_V4 = struct.Struct(">iqi")
_TARGET_V5 = struct.Struct(">iqqi")
_TARGET_V9 = struct.Struct(">iiqqi")
_TARGET_V12 = struct.Struct(">iiqiqi")

_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
# The common case in one go: no aborted transactions, then the preferred replica.
_COMMITTED_V12 = struct.Struct(">ihqqqBi")


class FetchTarget(NamedTuple):
    """One partition that a Fetch request asks for."""

    topic: str | bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A Fetch request; topics are names, or the 16 bytes of an id from version 13 on."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    targets: list[FetchTarget]
    forgotten: list[tuple[str | bytes, int]]
    rack_id: str
    cluster_id: str | None


class FetchPartition(NamedTuple):
    """One partition of a Fetch response; `records` is whatever the caller sends its bytes from."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] | None = None  # (producer id, first offset)
    preferred_read_replica: int = -1
    records_length: int = 0
    records: Any = b""


def parse_fetch(buffer: Buffer, start: int, end: int, version: int) -> FetchRequest:
    """Parse the payload `buffer[start:end]` of a Fetch request."""
    try:
        return _parse(buffer, start, end, version)
    except (IndexError, struct.error) as error:
        raise MalformedRequest("a Fetch request ends before its last field") from error


def _parse(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE
    replica_id = -1
    if version < _REPLICA_STATE:
        (replica_id,) = _I32.unpack_from(buffer, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _SIZES.unpack_from(buffer, position)
    position += 13
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(buffer, position)
        position += 8
    targets, position, room = _targets(buffer, position, end, version)
    forgotten: list[tuple[str | bytes, int]] = []
    if version >= _SESSIONS:
        forgotten, position, room = _forgotten(buffer, position, end, version, room)
    rack_id = ""
    if version >= _RACKS:
        rack_id, position = _string(buffer, position, end, flexible=flexible)
    cluster_id = None
    if flexible:
        if buffer[position] == 0:
            position += 1
        else:
            cluster_id, replica_id, position = _tags(buffer, position, end, version, replica_id, room)
    if position > end:
        raise MalformedRequest("a Fetch request ends before its last field")
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        targets,
        forgotten,
        rack_id,
        cluster_id,
    )


def _targets(buffer: Buffer, position: int, end: int, version: int) -> tuple[list[FetchTarget], int, int]:
    flexible = version >= _FLEXIBLE
    targets: list[FetchTarget] = []
    topics, position, room = _count(buffer, position, end, MAX_ELEMENTS, flexible=flexible)
    for _ in range(topics):
        topic, position = _topic(buffer, position, end, version)
        count, position, room = _count(buffer, position, end, room, flexible=flexible)
        for _ in range(count):
            epoch, last_epoch, log_start = -1, -1, -1
            if flexible:
                index, epoch, offset, last_epoch, log_start, size = _TARGET_V12.unpack_from(buffer, position)
                position += 32
                if buffer[position] == 0:
                    position += 1
                else:
                    position, room = skip_tagged_fields(buffer, position, end, room)
            elif version >= 9:
                index, epoch, offset, log_start, size = _TARGET_V9.unpack_from(buffer, position)
                position += 28
            elif version >= 5:
                index, offset, log_start, size = _TARGET_V5.unpack_from(buffer, position)
                position += 24
            else:
                index, offset, size = _TARGET_V4.unpack_from(buffer, position)
                position += 16
            targets.append(FetchTarget(topic, index, epoch, offset, last_epoch, log_start, size))
        if flexible:
            position, room = skip_tagged_fields(buffer, position, end, room)
    return targets, position, room


def _forgotten(
    buffer: Buffer, position: int, end: int, version: int, room: int
) -> tuple[list[tuple[str | bytes, int]], int, int]:
    flexible = version >= _FLEXIBLE
    forgotten: list[tuple[str | bytes, int]] = []
    topics, position, room = _count(buffer, position, end, room, flexible=flexible)
    for _ in range(topics):
        topic, position = _topic(buffer, position, end, version)
        count, position, room = _count(buffer, position, end, room, flexible=flexible)
        indexes = struct.unpack_from(f">{count}i", buffer, position)
        position += 4 * count
        forgotten.extend((topic, index) for index in indexes)
        if flexible:
            position, room = skip_tagged_fields(buffer, position, end, room)
    return forgotten, position, room


def _tags(
    buffer: Buffer, position: int, end: int, version: int, replica_id: int, room: int
) -> tuple[str | None, int, int]:
    """Read the tagged fields of the request: only followers and raft observers send any."""
    after, _ = skip_tagged_fields(buffer, position, end, room)
    cluster_id = None
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if tag == 0 and buffer[position] != 0:
            cluster_id, _ = _string(buffer, position, position + size, flexible=True)
        elif tag == 1 and version >= _REPLICA_STATE:
            if size < 12:
                raise MalformedRequest(f"a replica state of {size} bytes")
            replica_id, _ = _REPLICA.unpack_from(buffer, position)
        position += size
    return cluster_id, replica_id, after


def _count(buffer: Buffer, position: int, end: int, room: int, *, flexible: bool) -> tuple[int, int, int]:
    if flexible:
        count, position = read_uvarint(buffer, position)
        count -= 1
    else:
        (count,) = _I32.unpack_from(buffer, position)
        position += 4
    if not 0 <= count <= end - position or count > room:
        raise too_many("topics or partitions", count)
    return count, position, room - count


def _topic(buffer: Buffer, position: int, end: int, version: int) -> tuple[str | bytes, int]:
    if version >= _TOPIC_IDS:
        return bytes(buffer[position : position + 16]), position + 16
    return _string(buffer, position, end, flexible=version >= _FLEXIBLE)


def _string(buffer: Buffer, position: int, end: int, *, flexible: bool) -> tuple[str, int]:
    if flexible:
        length, position = read_uvarint(buffer, position)
        length -= 1
    else:
        (length,) = _I16.unpack_from(buffer, position)
        position += 2
    if not 0 <= length <= end - position:
        raise MalformedRequest(f"a string of {length} bytes")
    return str(buffer[position : position + length], "utf-8", "replace"), position + length


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[FetchPartition]]],
) -> list[Any]:
    """Encode a response frame as the pieces to send: bytes, records, bytes, records, … bytes.

    The size in front counts every `records_length`. Partitions without records take no piece.
    """
    flexible = version >= _FLEXIBLE
    pieces: list[Any] = []
    records_size = 0
    own = [b"", _array_length(len(topics), flexible=flexible)]
    for topic, partitions in topics:
        name = topic.encode() if isinstance(topic, str) else topic
        if version >= _TOPIC_IDS:
            own.append(name)
        elif flexible:
            own.append(encode_uvarint(len(name) + 1) + name)
        else:
            own.append(_I16.pack(len(name)) + name)
        own.append(_array_length(len(partitions), flexible=flexible))
        for partition in partitions:
            own.append(_partition(version, partition))
            if partition.records_length:
                records_size += partition.records_length
                pieces.append(b"".join(own))
                pieces.append(partition.records)
                own = [b"\0"] if flexible else []
            elif flexible:
                own.append(b"\0")
        if flexible:
            own.append(b"\0")
    if flexible:
        own.append(b"\0")
    pieces.append(b"".join(own))
    head = _I32.pack(correlation_id) + (b"\0" if flexible else b"") + _I32.pack(throttle_ms)
    if version >= _SESSIONS:
        head += _I16.pack(error_code) + _I32.pack(session_id)
    size = len(head) + records_size + sum(map(len, pieces[::2]))
    pieces[0] = _I32.pack(size) + head + pieces[0]
    return pieces


def _array_length(count: int, *, flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if flexible else _I32.pack(count)


def _partition(version: int, partition: FetchPartition) -> bytes:
    index, code, high, stable, log_start, aborted, replica, length, _ = partition
    if version >= _FLEXIBLE:
        if aborted is None:
            return _COMMITTED_V12.pack(index, code, high, stable, log_start, 0, replica) + encode_uvarint(
                length + 1
            )
        transactions = b"".join([_ABORTED_FLEXIBLE.pack(*transaction, 0) for transaction in aborted])
        fixed = _PARTITION_V5.pack(index, code, high, stable, log_start)
        count = encode_uvarint(len(aborted) + 1)
        return fixed + count + transactions + _I32.pack(replica) + encode_uvarint(length + 1)
    if version >= 5:
        out = _PARTITION_V5.pack(index, code, high, stable, log_start)
    else:
        out = _PARTITION_V4.pack(index, code, high, stable)
    if aborted is None:
        out += _I32.pack(-1)
    else:
        out += _I32.pack(len(aborted)) + b"".join([_ABORTED.pack(*transaction) for transaction in aborted])
    if version >= _RACKS:
        out += _I32.pack(replica)
    return out + _I32.pack(length)
