"""Produce: from the receive buffer into the log, answered when it is on disk.

For each partition: one header parse, one checksum, one write; nothing per record. With `acks=all` the
answer waits for the group commit that covers the append; with `acks=1` it goes once the bytes are
written, as Kafka's does; with `acks=0` there is none, and an error closes the connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.core.errors import ApiError, ErrorCode
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.record.batch import CODEC_MASK, CorruptBatch, InvalidBatch, check, check_produced
from headwater.record.codecs import Codec
from headwater.record.records import decode_batch
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.produce import PartitionResult, encode_produce_response, parse_produce

if TYPE_CHECKING:
    from headwater.net.kafka.connection import KafkaConnection
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

_NONE = int(ErrorCode.none)
_ZSTD = Codec.ZSTD.value
_ZSTD_SINCE = 7
_ALL = -1


def produce(connection: KafkaConnection, header: RequestHeader, buffer: memoryview, end: int) -> None:
    """Append what a request holds and have it answered in its turn."""
    node = connection.node
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
            batch = check(buffer, start, stop)
            check_produced(batch)
            if version < _ZSTD_SINCE and batch.attributes & CODEC_MASK == _ZSTD:
                raise ApiError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7")
            if batch.is_transactional:
                raise ApiError(ErrorCode.invalid_txn_state, "transactions are not served yet")
            if log.config.compacted:
                _check_keys(buffer, start)
            offset = log.append(buffer[start:stop], batch, now_ms)
        except (ApiError, CorruptBatch, InvalidBatch, PartitionError) as error:
            logger.info("refused records for %s-%d: %s", topic, partition, error)
            results.append((topic, partition, int(error.code), -1, -1, -1, str(error)))
        else:
            stamped = now_ms if log.config.log_append_time else -1
            results.append((topic, partition, _NONE, offset, stamped, log.start_offset, None))
            appended.append(log)
            node.commit.add(log)
    if acks == 0:
        if len(appended) < len(results):
            connection.close("records sent with acks=0 were refused")
        return
    slot = connection.slot()
    if acks != _ALL or not appended or not node.logs.synced:
        connection.reply(slot, [encode_produce_response(version, header.correlation_id, results)])
        return

    def synced() -> None:
        final = results
        if node.failed is not None or any(log.error is not None for log in appended):
            final = [_after_failure(node, result) for result in results]
        connection.reply(slot, [encode_produce_response(version, header.correlation_id, final)])

    node.commit.wait(synced)


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
        raise InvalidBatch("a compacted topic takes no record without a key")


def _after_failure(node: Node, result: PartitionResult) -> PartitionResult:
    topic, partition, code, *_ = result
    name = node.name_of(topic) if isinstance(topic, bytes) else topic
    log = node.logs.get(name, partition) if name is not None else None
    reason = node.failed or (log.error if log is not None else None)
    if code != _NONE or (log is not None and reason is None):
        return result
    error = ErrorCode.kafka_storage_error if log is not None else ErrorCode.unknown_topic_or_partition
    return (topic, partition, int(error), -1, -1, -1, reason)
