"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where the partitions begin and end."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from headwater.core.errors import ApiError, ErrorCode
from headwater.log.cold import NotCached
from headwater.log.errors import PartitionError
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog
    from headwater.net.node import Node

_UNKNOWN = -1
_READ_COMMITTED = 1
_ANY_EPOCH = -1
# The index and the records of two segments, or of one that was evicted meanwhile.
_PROBES = 4


class Special(IntEnum):
    """Timestamps that are not times, but ask for an offset of the log."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_SINCE_VERSION = {
    Special.LATEST: 1,
    Special.EARLIEST: 1,
    Special.MAX_TIMESTAMP: 7,
    Special.EARLIEST_LOCAL: 8,
    Special.LATEST_TIERED: 9,
    Special.EARLIEST_PENDING_UPLOAD: 11,
}


def _log(node: Node, topic: str, partition: int) -> PartitionLog:
    """Return the log of a partition that clients may see, or raise `ApiError`."""
    log = node.logs.get(topic, partition) if topic in node.topics.by_name else None
    if log is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition)
    return log


def _check_epoch(log: PartitionLog, epoch: int) -> None:
    if epoch == _ANY_EPOCH or epoch == log.leader_epoch:
        return
    raise ApiError(
        ErrorCode.fenced_leader_epoch if epoch < log.leader_epoch else ErrorCode.unknown_leader_epoch
    )


async def list_offsets(node: Node, request: Request, message: Any) -> Answer:
    """Find the offsets of the log's ends, and of times."""
    committed = getattr(message, "isolation_level", 0) == _READ_COMMITTED
    times = Counter((topic.name, p.partition_index) for topic in message.topics for p in topic.partitions)
    topics = []
    for topic in message.topics:
        partitions = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            try:
                if times[topic.name, index] > 1:
                    raise ApiError(ErrorCode.invalid_request)
                _check_special(wanted.timestamp, request.version)
                log = _log(node, topic.name, index)
                _check_epoch(log, getattr(wanted, "current_leader_epoch", _ANY_EPOCH))
                found = await _found(node, log, wanted.timestamp, committed=committed)
            except (ApiError, PartitionError) as error:
                partitions[index] = _offset(index, error.code)
            else:
                partitions[index] = _offset(index, ErrorCode.none, found, log.leader_epoch)
        topics.append({"name": topic.name, "partitions": list(partitions.values())})
    return {"topics": topics}


def _check_special(timestamp: int, version: int) -> None:
    if timestamp >= 0:
        return
    if timestamp < min(Special) or version < _SINCE_VERSION[Special(timestamp)]:
        raise ApiError(ErrorCode.unsupported_version)


async def _found(node: Node, log: PartitionLog, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
    """Look for an offset without having others wait for the disk, or for the archive."""
    for _ in range(_PROBES):
        try:
            return _find(log, timestamp, committed=committed, probe=True)
        except NotCached as missing:
            warm = node.loop.create_future()
            node.cold.read([missing.with_traceback(None)], lambda warm=warm: warm.set_result(None))  # type: ignore[misc]
        await warm
    return _find(log, timestamp, committed=committed, probe=False)


def _find(log: PartitionLog, timestamp: int, *, committed: bool, probe: bool) -> tuple[int, int] | None:
    """Return (offset, timestamp), where -1 is for an offset that has no time, or None."""
    end = log.last_stable_offset if committed else log.high_watermark
    match timestamp:
        case Special.LATEST:
            return end, _UNKNOWN
        case Special.EARLIEST:
            return log.start_offset, _UNKNOWN
        case Special.EARLIEST_LOCAL:
            return log.local_start_offset, _UNKNOWN
        case Special.LATEST_TIERED:
            found = (log.local_start_offset - 1, _UNKNOWN) if log.archived else None
        case Special.EARLIEST_PENDING_UPLOAD:
            found = (log.local_start_offset, _UNKNOWN) if log.config.archived else None
        case Special.MAX_TIMESTAMP:
            found = log.max_timestamp(probe=probe)
        case _:
            found = log.offset_for_time(timestamp, probe=probe)
    return found if found is not None and found[0] < end else None


def _offset(
    partition: int, code: ErrorCode, found: tuple[int, int] | None = None, epoch: int = _UNKNOWN
) -> dict[str, Any]:
    offset, timestamp = found or (_UNKNOWN, _UNKNOWN)
    return {
        "partition_index": partition,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch if found is not None else _UNKNOWN,
    }


async def offset_for_leader_epoch(node: Node, request: Request, message: Any) -> Answer:
    """Tell where an epoch of leadership ends; there is only one, and it ends where the log does."""
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_epoch_end(node, topic.topic, p) for p in topic.partitions]}
            for topic in message.topics
        ]
    }


def _epoch_end(node: Node, topic: str, wanted: Any) -> dict[str, Any]:
    result = {
        "error_code": ErrorCode.none,
        "partition": wanted.partition,
        "leader_epoch": _UNKNOWN,
        "end_offset": _UNKNOWN,
    }
    try:
        log = _log(node, topic, wanted.partition)
        _check_epoch(log, wanted.current_leader_epoch)
    except ApiError as error:
        return result | {"error_code": error.code}
    if wanted.leader_epoch == log.leader_epoch:
        result |= {"leader_epoch": log.leader_epoch, "end_offset": log.high_watermark}
    return result


async def delete_records(node: Node, request: Request, message: Any) -> Answer:
    """Delete the records of partitions before an offset."""
    topics = []
    for topic in message.topics:
        partitions = []
        for wanted in topic.partitions:
            code, low_watermark = ErrorCode.none, _UNKNOWN
            try:
                low_watermark = _deletable(node, topic.name, wanted.partition_index).delete_before(
                    wanted.offset
                )
            except (ApiError, PartitionError) as error:
                code = error.code
            partitions.append(
                {
                    "partition_index": wanted.partition_index,
                    "low_watermark": low_watermark,
                    "error_code": code,
                }
            )
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _deletable(node: Node, name: str, partition: int) -> PartitionLog:
    log = _log(node, name, partition)
    topic = node.topics.by_name[name]
    if topic.internal:
        raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {name}")
    policy = topic.settings["cleanup.policy"]
    if policy == ("compact",):
        raise ApiError(ErrorCode.policy_violation, f"Cannot delete records of compacted topic {name}")
    if log.error is not None:
        raise ApiError(ErrorCode.kafka_storage_error, log.error)
    return log


HANDLERS: dict[int, Handler] = {2: list_offsets, 21: delete_records, 23: offset_for_leader_epoch}
