"""Produce: from the receive buffer into the log, answered when it is on disk.

For each partition: one header parse, one checksum, one write; nothing per record. The answer waits for
the group commit that covers the append, with `acks=1` as with `acks=all`: a leader without replicas has
nothing else to wait for, and what is acknowledged can be read at once. With `acks=0` there is no
answer, and an error closes the connection.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, cast

from headwater.core.errors import ApiError, ErrorCode, HeadwaterError
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.net.kafka.refused import refused_records
from headwater.net.kafka.transaction_service import admit
from headwater.record.batch import CODEC_MASK, CorruptBatch, InvalidBatch, check, check_produced
from headwater.record.codecs import Codec
from headwater.record.records import decode_batch
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.produce import (
    PartitionResult,
    ProduceRequest,
    Refusal,
    encode_produce_response,
    parse_produce,
)
from headwater.wire.kafka.versions import Api

if TYPE_CHECKING:
    from headwater.net.kafka.connection import KafkaConnection
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

_NONE = int(ErrorCode.none)
_ZSTD = Codec.ZSTD.value
_ZSTD_SINCE = 7
_PRODUCE = int(Api.PRODUCE)
TIMED_EVERY = 16
"""Timing a request is most of what metrics cost it: docs/decisions/0006-metrics-by-hand.md."""


class KeylessRecord(InvalidBatch):
    """A batch for a compacted topic with records that have no key."""


def produce(connection: KafkaConnection, header: RequestHeader, buffer: memoryview, end: int) -> None:
    """Append what a request holds and have it answered in its turn."""
    node = connection.node
    counters = node.counters
    began = perf_counter() if counters.requests[_PRODUCE] % TIMED_EVERY == 1 else 0.0
    version = header.version
    request = parse_produce(buffer, header.payload, end, version)
    acks = request.acks
    results: list[PartitionResult] = []
    appended: list[PartitionLog] = []
    now_ms = node.clock.wall_ms()
    for topic, partition, start, stop in request.partitions:
        try:
            if not -1 <= acks <= 1:
                raise ApiError(ErrorCode.invalid_required_acks, f"acks={acks}: it must be 0, 1 or all")
            log = _log_of(node, topic, partition)
            if node.disk.refusal is not None:
                raise ApiError(ErrorCode.kafka_storage_error, node.disk.refusal)
            batch = check(buffer, start, stop)
            check_produced(batch)
            if version < _ZSTD_SINCE and batch.attributes & CODEC_MASK == _ZSTD:
                raise ApiError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7")
            if batch.is_transactional:
                admit(node, version, request.transactional_id, batch, log)
            if log.config.compacted:
                _check_keys(buffer, start)
            offset = log.append(buffer[start : start + batch.size], batch, now_ms)
        except (ApiError, CorruptBatch, InvalidBatch, PartitionError) as error:
            counters.errors[_PRODUCE, int(error.code)] += 1
            _log_refusal(connection, topic, partition, error)
            code, why = error.code, cast("str | Refusal", str(error))
            if isinstance(error, KeylessRecord) or code is ErrorCode.invalid_timestamp:
                place = f"{log.topic}-{partition}"
                code, why = refused_records(decode_batch(buffer, start), place, log.config, now_ms) or (
                    code,
                    why,
                )
            results.append((topic, partition, int(code), -1, -1, -1, why))
        else:
            stamped = now_ms if log.config.log_append_time else -1
            results.append((topic, partition, _NONE, offset, stamped, log.start_offset, None))
            appended.append(log)
            if log.wants_sync:
                node.commit.add(log)
            counters.records_in += batch.record_count
            counters.record_bytes_in += stop - start
    throttle_ms = 0
    if node.throttle.active:
        throttle_ms = _throttle(connection, request, end - header.payload, began)
    if acks == 0:
        if began:
            counters.produce_seconds.observe(perf_counter() - began)
        if len(appended) < len(results):
            connection.close("records sent with acks=0 were refused")
        return
    slot = connection.slot()
    if not appended or not node.logs.synced:
        connection.reply(
            slot, [encode_produce_response(version, header.correlation_id, results, throttle_ms)]
        )
        if began:
            counters.produce_seconds.observe(perf_counter() - began)
        return

    def synced() -> None:
        final = results
        if node.failed is not None or any(log.error is not None for log in appended):
            final = [_after_failure(node, result) for result in results]
        slot.pieces = [encode_produce_response(version, header.correlation_id, final, throttle_ms)]
        # A round answers several requests of a connection: one write, and the client wakes up once.
        node.commit.after_answers(connection.send_replies)
        if began:
            counters.produce_seconds.observe(perf_counter() - began)

    node.commit.wait(synced)


def _throttle(connection: KafkaConnection, request: ProduceRequest, size: int, began: float) -> int:
    node = connection.node
    by_topic = (
        ((node.name_of(topic) or "") if isinstance(topic, bytes) else topic, stop - start)
        for topic, _, start, stop in request.partitions
    )
    now_ms = node.clock.monotonic_ms()
    throttle_ms = node.throttle.produced(connection, size, by_topic, perf_counter() - began, now_ms)
    if throttle_ms:
        connection.mute(throttle_ms)
    return throttle_ms


def _log_refusal(
    connection: KafkaConnection, topic: str | bytes, partition: int, error: HeadwaterError
) -> None:
    name = (connection.node.name_of(topic) or topic.hex()) if isinstance(topic, bytes) else topic
    connection.node.log_limit.log(
        logger, logging.INFO, connection.peer,
        "refused records for %s-%d: %s", name, partition, error,
        client_id=connection.client_id, topic=name, partition=partition, reason=str(error),
    )  # fmt: skip


def _log_of(node: Node, topic: str | bytes, partition: int) -> PartitionLog:
    if isinstance(topic, bytes):
        name = node.name_of(topic)
        if name is None:
            raise ApiError(ErrorCode.unknown_topic_id)
    else:
        name = topic
    log = node.logs.get(name, partition)
    if log is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"there is no partition {name}-{partition} here")
    if name in node.internal:
        raise ApiError(
            ErrorCode.invalid_topic_exception, f"{name} is an internal topic: only the broker writes to it"
        )
    return log


def _check_keys(buffer: memoryview, start: int) -> None:
    if any(record.key is None for record in decode_batch(buffer, start)):
        raise KeylessRecord("a compacted topic takes no record without a key")


def _after_failure(node: Node, result: PartitionResult) -> PartitionResult:
    topic, partition, code, *_ = result
    name = node.name_of(topic) if isinstance(topic, bytes) else topic
    log = node.logs.get(name, partition) if name is not None else None
    reason = node.failed or (log.error if log is not None else None)
    if code != _NONE or (log is not None and reason is None):
        return result
    error = ErrorCode.kafka_storage_error if log is not None else ErrorCode.unknown_topic_or_partition
    return (topic, partition, int(error), -1, -1, -1, reason)
