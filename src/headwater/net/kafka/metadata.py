"""Metadata and DescribeTopicPartitions: which topics there are, and who leads their partitions.

Every partition of every topic is led by this node with the same epoch, so topics with the same number of
partitions share one list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.broker.state import StateRecord
from headwater.broker.topic_names import INTERNAL, problem_with
from headwater.broker.topics import NewTopic, Topic
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node

LEADER_EPOCH = 0
NOT_REQUESTED = -(2**31)
# Without an authorizer everything is allowed: one bit for each of AclOperation's codes that fits the resource.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096


async def metadata(node: Node, request: Request, message: Any) -> Answer:
    """Answer with the brokers and with all topics, or with those that are asked for."""
    wanted = message.topics
    refused = _refusal(request.version, wanted)
    if refused is not None:
        # A name is null from version 12 on.
        topics = [_unknown(topic.name or "", topic.topic_id, refused) for topic in wanted]
        return {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": topics}
    operations = NOT_REQUESTED
    if getattr(message, "include_topic_authorized_operations", False):
        operations = TOPIC_OPERATIONS
    # Version 0 has no null: there, no topics mean all.
    if wanted is None or (request.version == 0 and not wanted):
        topics = [_known(node, topic, operations) for topic in node.topics.by_name.values()]
    else:
        topics = await _asked_for(node, request, message, operations)
    cluster = getattr(message, "include_cluster_authorized_operations", False)
    return {
        "brokers": [broker(node)],
        "cluster_id": node.cluster_id,
        "controller_id": node.node_id,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if cluster else NOT_REQUESTED,
        "error_code": ErrorCode.none,
    }


def broker(node: Node) -> dict[str, Any]:
    """Return this node as clients find it."""
    return {
        "node_id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.settings["broker.rack"],
    }


def _refusal(version: int, wanted: Sequence[Any] | None) -> ErrorCode | None:
    """Return why a request is refused as a whole: versions 10 and 11 have ids, and may not use them."""
    if wanted and version in (10, 11) and any(t.name is None or t.topic_id is not None for t in wanted):
        return ErrorCode.invalid_request
    return None


async def _asked_for(node: Node, request: Request, message: Any, operations: int) -> list[dict[str, Any]]:
    ids = [topic_id for topic in message.topics if (topic_id := getattr(topic, "topic_id", None)) is not None]
    if ids:
        return [_by_id(node, topic_id, operations) for topic_id in dict.fromkeys(ids)]
    names = list(dict.fromkeys(topic.name for topic in message.topics))
    missing = [name for name in names if name not in node.topics.by_name]
    errors: dict[str | None, ErrorCode] = {}
    if missing:
        may_create = getattr(message, "allow_auto_topic_creation", True)
        if may_create and node.settings["auto.create.topics.enable"]:
            errors = await _create(node, request, missing)
        else:
            errors = {name: _why_unknown(name) for name in missing}
    return [
        _unknown(name, None, errors[name], operations)
        if name in errors
        else _known(node, node.topics.by_name[name], operations)
        for name in names
    ]


def _by_id(node: Node, topic_id: UUID, operations: int) -> dict[str, Any]:
    topic = node.topics.by_id.get(topic_id)
    if topic is None:
        return _unknown(None, topic_id, ErrorCode.unknown_topic_id)
    return _known(node, topic, operations)


async def _create(node: Node, request: Request, names: Sequence[str | None]) -> dict[str | None, ErrorCode]:
    """Create topics because they were asked for; return the errors of those that are not there now."""
    quota = node.throttle.mutations(request, 0, node.clock.monotonic_ms())
    errors: dict[str | None, ErrorCode] = {}
    records: list[StateRecord] = []
    pending = 0
    for name in names:
        try:
            topic, created = node.topics.create(NewTopic(name or ""), pending=pending)
            quota.take(topic.partitions)
        except ApiError as error:
            internal = name is not None and error.code is ErrorCode.invalid_request
            hidden = internal or error.code is ErrorCode.throttling_quota_exceeded
            errors[name] = ErrorCode.unknown_topic_or_partition if hidden else error.code
            continue
        pending += topic.partitions
        records += created
    try:
        if records:
            await node.commit_topics(records)
    except ApiError as error:
        return {name: errors.get(name, error.code) for name in names}
    # A topic may have been deleted again while the records were on their way to the disk.
    gone = (name for name in names if name not in node.topics.by_name)
    return {name: errors.get(name, ErrorCode.unknown_topic_or_partition) for name in gone}


def _why_unknown(name: str | None) -> ErrorCode:
    if name is None or problem_with(name) is not None:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _known(node: Node, topic: Topic, operations: int) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": _partitions(node.node_id, topic.partitions),
        "topic_authorized_operations": operations,
    }


def _unknown(
    name: str | None, topic_id: UUID | None, code: ErrorCode, operations: int = NOT_REQUESTED
) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL,
        "partitions": (),
        "topic_authorized_operations": operations,
    }


@lru_cache(maxsize=256)
def _partitions(node_id: int, count: int) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "error_code": ErrorCode.none,
            "partition_index": index,
            "leader_id": node_id,
            "leader_epoch": LEADER_EPOCH,
            "replica_nodes": (node_id,),
            "isr_nodes": (node_id,),
            "offline_replicas": (),
        }
        for index in range(count)
    )


@lru_cache(maxsize=256)
def _described_partitions(node_id: int, count: int) -> tuple[dict[str, Any], ...]:
    extra = {"eligible_leader_replicas": (), "last_known_elr": ()}
    return tuple({**partition, **extra} for partition in _partitions(node_id, count))


async def describe_topic_partitions(node: Node, request: Request, message: Any) -> Answer:
    """Describe topics by name order, a page at a time: the cursor says where the next page begins."""
    cursor = message.cursor
    first = cursor.topic_name if cursor is not None else ""
    every = not message.topics
    asked = node.topics.by_name if every else {topic.name for topic in message.topics}
    names = sorted(name for name in asked if name >= first)
    if cursor is not None and (cursor.partition_index < 0 or not (every or first in names)):
        refused = ErrorCode.invalid_request
        return {"topics": [_unknown(t.name, None, refused) for t in message.topics], "next_cursor": None}
    limit = node.settings["max.request.partition.size.limit"]
    assert isinstance(limit, int)
    room = max(1, min(limit, message.response_partition_limit))
    topics: list[dict[str, Any]] = []
    for name in names:
        if room == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = node.topics.by_name.get(name)
        if topic is None:
            topics.append(_unknown(name, None, _why_unknown(name), TOPIC_OPERATIONS))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        page = _described_partitions(node.node_id, topic.partitions)[start : start + room]
        topics.append({**_known(node, topic, TOPIC_OPERATIONS), "partitions": page})
        if start + len(page) < topic.partitions:
            return {
                "topics": topics,
                "next_cursor": {"topic_name": name, "partition_index": start + len(page)},
            }
        room -= len(page)
    return {"topics": topics, "next_cursor": None}


HANDLERS: dict[int, Handler] = {3: metadata, 75: describe_topic_partitions}
