"""The APIs of share groups: staying in them, describing them, and where they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.broker.groups.share import ShareHeartbeat
from headwater.broker.groups.share_assignor import NAME as ASSIGNOR
from headwater.broker.groups.share_group import ShareGroup, ShareMember
from headwater.broker.share.records import ShareKey
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request
from headwater.net.kafka.groups import (
    AUTHORIZED_OPERATIONS_OMITTED,
    client_host,
    described_assignment,
    heartbeat_answer,
    operations,
)
from headwater.net.kafka.share_acks import NO_ID

if TYPE_CHECKING:
    from headwater.net.node import Node

_NO_OFFSET = -1
_NOT_HOSTED = "This server does not host this topic-partition."
_NOT_SHARED = "There is no offset information to delete."


async def share_group_heartbeat(node: Node, request: Request, message: Any) -> Answer:
    """Answer ShareGroupHeartbeat."""
    names = message.subscribed_topic_names
    beat = ShareHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        client_id=request.client_id or "",
        client_host=client_host(request),
        rack_id=message.rack_id,
        topic_names=None if names is None else frozenset(names),
    )
    service = node.group_service
    reply = await service.answer(node.groups.share.heartbeat(service.now(), beat))
    return heartbeat_answer(reply)


async def share_group_describe(node: Node, request: Request, message: Any) -> Answer:
    """Answer ShareGroupDescribe."""
    await node.group_service.settled()
    allowed = operations(message)
    described = []
    for group_id in message.group_ids:
        code, what = ErrorCode.none, None
        group = ShareGroup(group_id)
        if not group_id:
            code = ErrorCode.invalid_group_id
        else:
            try:
                group = node.groups.share.find(group_id)
            except ApiError as error:
                code, what = error.code, error.message
        described.append(
            {
                "error_code": code,
                "error_message": what,
                "group_id": group_id,
                "group_state": group.state if code is ErrorCode.none else "",
                "group_epoch": group.epoch,
                "assignment_epoch": group.target_epoch,
                "assignor_name": ASSIGNOR if code is ErrorCode.none else "",
                "members": [_described_member(node, member) for member in group.members.values()],
                "authorized_operations": allowed if code is ErrorCode.none else AUTHORIZED_OPERATIONS_OMITTED,
            }
        )
    return {"groups": described}


def _described_member(node: Node, member: ShareMember) -> dict[str, Any]:
    subscription = member.subscription
    return {
        "member_id": member.member_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
        "assignment": described_assignment(node, member.assigned),
    }


async def describe_share_group_offsets(node: Node, request: Request, message: Any) -> Answer:
    """Answer DescribeShareGroupOffsets: of the partitions that are named, or of all that a group shares."""
    await node.group_service.settled()
    groups = []
    for asked in message.groups:
        topics = [
            _described_topic(node, asked.group_id, name, indexes)
            for name, indexes in _asked_topics(node.groups.groups.get(asked.group_id), asked.topics)
        ]
        groups.append(
            {
                "group_id": asked.group_id,
                "topics": topics,
                "error_code": ErrorCode.none,
                "error_message": None,
            }
        )
    return {"groups": groups}


def _asked_topics(group: object, topics: Iterable[Any] | None) -> list[tuple[str, list[int]]]:
    if topics is not None:
        return [(topic.topic_name, list(topic.partitions)) for topic in topics]
    if not isinstance(group, ShareGroup):
        return []
    return [(shared.name, sorted(shared.partitions)) for shared in group.shared.values()]


def _described_topic(node: Node, group_id: str, name: str, indexes: list[int]) -> dict[str, Any]:
    topic = node.topics.by_name.get(name)
    topic_id = NO_ID if topic is None else topic.id
    return {
        "topic_name": name,
        "topic_id": topic_id,
        "partitions": [
            _described_partition(node, ShareKey(group_id, topic_id, index), name) for index in indexes
        ],
    }


def _described_partition(node: Node, key: ShareKey, name: str) -> dict[str, Any]:
    start, lag = _NO_OFFSET, -1
    partition, log = node.shares.partitions.get(key), node.logs.get(name, key.partition)
    if partition is not None and log is not None:
        partition.begin_at(log.start_offset)
        start, lag = partition.start_offset, partition.lag(log.high_watermark)
    return {
        "partition_index": key.partition,
        "start_offset": start,
        "leader_epoch": 0,
        "lag": lag,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


async def alter_share_group_offsets(node: Node, request: Request, message: Any) -> Answer:
    """Answer AlterShareGroupOffsets: where a group without members goes on."""
    service = node.group_service
    if not message.group_id:
        raise ApiError(ErrorCode.invalid_group_id, "The group id is invalid.")
    offsets: dict[ShareKey, int] = {}
    answered = []
    names: set[str] = set()
    for topic in message.topics:
        known = node.topics.by_name.get(topic.topic_name)
        parts = []
        for part in topic.partitions:
            code = ErrorCode.none
            if known is None or not 0 <= part.partition_index < known.partitions:
                code = ErrorCode.unknown_topic_or_partition
            else:
                names.add(topic.topic_name)
                offsets[ShareKey(message.group_id, known.id, part.partition_index)] = part.start_offset
            what = None if code is ErrorCode.none else _NOT_HOSTED
            parts.append({"partition_index": part.partition_index, "error_code": code, "error_message": what})
        topic_id = NO_ID if known is None else known.id
        answered.append({"topic_name": topic.topic_name, "topic_id": topic_id, "partitions": parts})
    await service.answer(node.groups.share.share_topics(message.group_id, names))
    if node.share_service.apply(node.shares.alter(node.share_service.now(), offsets)):
        await node.shares_durable()
    return {"error_code": ErrorCode.none, "error_message": None, "responses": answered}


async def delete_share_group_offsets(node: Node, request: Request, message: Any) -> Answer:
    """Answer DeleteShareGroupOffsets: topics that a group without members shares no more."""
    service = node.group_service
    if not message.group_id:
        raise ApiError(ErrorCode.invalid_group_id, "The group id is invalid.")
    gone: dict[str, UUID] = {}
    answered = []
    group = node.groups.share.find(message.group_id)
    for topic in message.topics:
        known = node.topics.by_name.get(topic.topic_name)
        code = ErrorCode.unknown_topic_or_partition
        what: str | None = _NOT_HOSTED if known is None else _NOT_SHARED
        if known is not None and known.id in group.shared:
            gone[topic.topic_name] = known.id
            code, what = ErrorCode.none, None
        answered.append(
            {
                "topic_name": topic.topic_name,
                "topic_id": gone.get(topic.topic_name, NO_ID),
                "error_code": code,
                "error_message": what,
            }
        )
    await service.answer(node.groups.share.unshare_topics(message.group_id, gone.values()))
    if node.share_service.apply(node.shares.forget_topics(gone.values(), message.group_id)):
        await node.shares_durable()
    return {"error_code": ErrorCode.none, "error_message": None, "responses": answered}


HANDLERS: dict[int, Handler] = {
    76: share_group_heartbeat,
    77: share_group_describe,
    90: describe_share_group_offsets,
    91: alter_share_group_offsets,
    92: delete_share_group_offsets,
}
