"""Produce, versions 3 to 13: one of the two messages whose cost is the broker's.

By hand because of what the general codec would do: copy every record batch out of the request, and
make an object per topic and partition. Here the parser answers with positions in the connection's
buffer, so the only copy of a batch is the one into the log.

Positions are checked lazily: a read past `end` but inside the buffer gives a number that means
nothing, and the check that follows (of a length, of a count, or the last one) refuses the request.
Reads past the buffer raise `IndexError` or `struct.error`, which mean the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headwater.wire.kafka.errors import MalformedRequest
from headwater.wire.kafka.primitives import (
    MAX_ELEMENTS,
    Buffer,
    encode_uvarint,
    read_uvarint,
    skip_tagged_fields,
    too_many,
)

__all__ = ["PartitionResult", "ProduceRequest", "Refusal", "encode_produce_response", "parse_produce"]

_FLEXIBLE = 9
_TOPIC_IDS = 13

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_TWO_I32 = struct.Struct(">ii")
_HEAD = struct.Struct(">iii")
_FLEXIBLE_HEAD = struct.Struct(">iiB")

_V3 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_V8 = struct.Struct(">ihqqqi")
_V9 = struct.Struct(">ihqqq")
_NO_MESSAGE_V8 = struct.Struct(">ihqqqih")
_NO_MESSAGE_V9 = struct.Struct(">ihqqqBBB")

#: (topic name, or topic id from version 13 on; partition; where its records start; where they end).
#: Null records start and end at -1.
ProducedPartition = tuple[str | bytes, int, int, int]


class Refusal(NamedTuple):
    """Why a batch was refused, and for each record that is at fault, by its place in the batch, why it is."""

    message: str
    records: tuple[tuple[int, str], ...]


#: (topic name or id, partition, error code, base offset, log append time in ms or -1,
#: log start offset, error message).
PartitionResult = tuple[str | bytes, int, int, int, int, int, str | Refusal | None]


class ProduceRequest(NamedTuple):
    """A Produce request whose records are still in the buffer it was parsed from."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducedPartition]


def parse_produce(buffer: Buffer, start: int, end: int, version: int) -> ProduceRequest:
    """Parse the payload `buffer[start:end]` of a Produce request."""
    try:
        if version >= _FLEXIBLE:
            return _parse_flexible(buffer, start, end, topic_ids=version >= _TOPIC_IDS)
        return _parse_legacy(buffer, start, end)
    except (IndexError, struct.error) as error:
        raise MalformedRequest("a Produce request ends before its last field") from error


def _parse_legacy(buffer: Buffer, position: int, end: int) -> ProduceRequest:
    transactional_id = None
    (length,) = _I16.unpack_from(buffer, position)
    position += 2
    if length >= 0:
        transactional_id = str(buffer[position : position + length], "utf-8", "replace")
        position += length
    acks, timeout_ms, topics = _ACKS_TIMEOUT_COUNT.unpack_from(buffer, position)
    position += 10
    room = MAX_ELEMENTS - topics
    if not 0 <= topics <= end - position or room < 0:
        raise too_many("topics", topics)
    partitions: list[ProducedPartition] = []
    for _ in range(topics):
        (length,) = _I16.unpack_from(buffer, position)
        position += 2
        if not 0 <= length <= end - position:
            raise MalformedRequest(f"a topic name of {length} bytes")
        topic = str(buffer[position : position + length], "utf-8", "replace")
        position += length
        (count,) = _I32.unpack_from(buffer, position)
        position += 4
        room -= count
        if not 0 <= count <= end - position or room < 0:
            raise too_many("partitions", count)
        for _ in range(count):
            index, size = _TWO_I32.unpack_from(buffer, position)
            position += 8
            if size > end - position:
                raise MalformedRequest(f"records of {size} bytes end after the request does")
            if size >= 0:
                partitions.append((topic, index, position, position + size))
                position += size
            else:
                partitions.append((topic, index, -1, -1))
    if position > end:
        raise MalformedRequest("a Produce request ends before its last field")
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _parse_flexible(buffer: Buffer, position: int, end: int, *, topic_ids: bool) -> ProduceRequest:
    transactional_id = None
    length, position = read_uvarint(buffer, position)
    if length:
        position += length - 1
        transactional_id = str(buffer[position - length + 1 : position], "utf-8", "replace")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, position)
    topics, position = read_uvarint(buffer, position + 6)
    topics -= 1
    room = MAX_ELEMENTS - topics
    if not 0 <= topics <= end - position or room < 0:
        raise too_many("topics", topics)
    partitions: list[ProducedPartition] = []
    for _ in range(topics):
        topic: str | bytes
        if topic_ids:
            position += 16
            topic = bytes(buffer[position - 16 : position])
        else:
            length, position = read_uvarint(buffer, position)
            if not 1 <= length <= end - position + 1:
                raise MalformedRequest(f"a topic name of {length - 1} bytes")
            position += length - 1
            topic = str(buffer[position - length + 1 : position], "utf-8", "replace")
        count, position = read_uvarint(buffer, position)
        count -= 1
        room -= count
        if not 0 <= count <= end - position or room < 0:
            raise too_many("partitions", count)
        for _ in range(count):
            (index,) = _I32.unpack_from(buffer, position)
            size, position = read_uvarint(buffer, position + 4)
            if size > end - position + 1:
                raise MalformedRequest(f"records of {size - 1} bytes end after the request does")
            if size:
                partitions.append((topic, index, position, position + size - 1))
                position += size - 1
            else:
                partitions.append((topic, index, -1, -1))
            if buffer[position] == 0:
                position += 1
            else:
                position, room = skip_tagged_fields(buffer, position, end, room)
        if buffer[position] == 0:
            position += 1
        else:
            position, room = skip_tagged_fields(buffer, position, end, room)
    position, _ = skip_tagged_fields(buffer, position, end, room)
    if position > end:
        raise MalformedRequest("a Produce request ends before its last field")
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_produce_response(
    version: int, correlation_id: int, results: Sequence[PartitionResult], throttle_ms: int = 0
) -> bytes:
    """Encode a whole response frame; results of one topic stand next to each other."""
    flexible = version >= _FLEXIBLE
    parts = [b""]
    topics = 0
    first = 0
    while first < len(results):
        topic = results[first][0]
        after = first + 1
        while after < len(results) and results[after][0] == topic:
            after += 1
        topics += 1
        name = topic.encode() if isinstance(topic, str) else topic
        if not flexible:
            parts.append(_I16.pack(len(name)) + name + _I32.pack(after - first))
        elif version < _TOPIC_IDS:
            parts.append(encode_uvarint(len(name) + 1) + name + encode_uvarint(after - first + 1))
        else:
            parts.append(name + encode_uvarint(after - first + 1))
        for result in results[first:after]:
            parts.append(_partition(version, result))
        if flexible:
            parts.append(b"\0")
        first = after
    parts.append(_I32.pack(throttle_ms) + b"\0" if flexible else _I32.pack(throttle_ms))
    if flexible:
        count = encode_uvarint(topics + 1)
        size = 5 + len(count) + sum(map(len, parts))
        parts[0] = _FLEXIBLE_HEAD.pack(size, correlation_id, 0) + count
    else:
        parts[0] = _HEAD.pack(8 + sum(map(len, parts)), correlation_id, topics)
    return b"".join(parts)


def _partition(version: int, result: PartitionResult) -> bytes:
    _, index, code, base, appended, log_start, message = result
    if version >= _FLEXIBLE:
        if message is None:
            return _NO_MESSAGE_V9.pack(index, code, base, appended, log_start, 1, 0, 0)
        message, records = (message, ()) if isinstance(message, str) else message
        fixed = _V9.pack(index, code, base, appended, log_start)
        errors = (_I32.pack(place) + _compact(problem) + b"\0" for place, problem in records)
        return b"".join((fixed, encode_uvarint(len(records) + 1), *errors, _compact(message), b"\0"))
    if version == 8:
        if message is None:
            return _NO_MESSAGE_V8.pack(index, code, base, appended, log_start, 0, -1)
        message, records = (message, ()) if isinstance(message, str) else message
        fixed = _V8.pack(index, code, base, appended, log_start, len(records))
        errors = (_I32.pack(place) + _string(problem) for place, problem in records)
        return b"".join((fixed, *errors, _string(message)))
    if version >= 5:
        return _V5.pack(index, code, base, appended, log_start)
    return _V3.pack(index, code, base, appended)


def _compact(text: str) -> bytes:
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data


def _string(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data
