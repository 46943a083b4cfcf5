"""Fetch: record batches as they lie in the log.

Version 11 of the request has fixed layouts and names topics by name: Kafka 2.3 and all later ones have it.
The answer's records stay where they were received; a fetch hands out views of that memory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from headwater.client.connection import Connection
from headwater.client.errors import BadAnswer, BrokerError
from headwater.client.messages import encode_request, response_start
from headwater.wire.kafka.versions import Api

__all__ = ["Fetched", "begin_fetch", "end_fetch", "parse_fetch_response"]

_VERSION = 11
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_TOP = struct.Struct(">ihii")  # throttle, error, session id, count of topics
_PARTITION = struct.Struct(">ihqqqi")  # index, error, high watermark, stable offset, start, count of aborted
_ABORTED = struct.Struct(">qq")
_REPLICA_AND_SIZE = struct.Struct(">ii")

Place = tuple[str, int]
"""A topic and a partition of it."""


class Fetched(NamedTuple):
    """What a fetch found of one partition."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of each aborted transaction that `records` may hold a part of."""
    records: memoryview


def begin_fetch(
    connection: Connection,
    positions: Mapping[Place, int],
    *,
    max_bytes: int,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    read_committed: bool = True,
) -> None:
    """Send a fetch of some partitions, each from an offset on; `end_fetch` receives its answer."""
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, []).append(
            {
                "partition": partition,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "log_start_offset": -1,
                "partition_max_bytes": max_bytes,
            }
        )
    body = {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": int(read_committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    correlation = connection.next_correlation()
    connection.send(encode_request(Api.FETCH, _VERSION, correlation, connection.client_id, body), correlation)


def end_fetch(connection: Connection, into: memoryview | None = None) -> dict[Place, Fetched]:
    """Receive what `begin_fetch` asked for; the records are views of `into`, or of fresh memory."""
    return parse_fetch_response(connection.receive(into))


def parse_fetch_response(answer: memoryview) -> dict[Place, Fetched]:
    """Parse a response without its size."""
    try:
        return _parse(answer, response_start(Api.FETCH, _VERSION))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadAnswer(f"the answer to FETCH v{_VERSION} does not read: {error}") from error


def _parse(answer: memoryview, position: int) -> dict[Place, Fetched]:
    _, error_code, _, topics = _TOP.unpack_from(answer, position)
    position += _TOP.size
    if error_code:
        raise BrokerError(error_code, "a fetch")
    found: dict[Place, Fetched] = {}
    for _ in range(topics):
        (length,) = _I16.unpack_from(answer, position)
        position += 2
        topic = str(answer[position : position + length], "utf-8")
        position += length
        (partitions,) = _I32.unpack_from(answer, position)
        position += 4
        for _ in range(partitions):
            index, code, high, stable, start, count = _PARTITION.unpack_from(answer, position)
            position += _PARTITION.size
            aborted = []
            for _ in range(count):
                aborted.append(_ABORTED.unpack_from(answer, position))
                position += _ABORTED.size
            _, size = _REPLICA_AND_SIZE.unpack_from(answer, position)
            position += _REPLICA_AND_SIZE.size
            end = position + max(size, 0)
            if end > len(answer):
                raise BadAnswer(f"records of {size} bytes end after the answer to a fetch does")
            found[topic, index] = Fetched(code, high, stable, start, aborted, answer[position:end])
            position = end
    return found
