"""The APIs of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headwater.broker.groups import OffsetCommit, PartitionCommit
from headwater.broker.groups.records import CommittedOffset
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node

_NO_OFFSET = -1
_NO_EPOCH = -1
_MILLISECOND = timedelta(milliseconds=1)


def _topic_name(node: Node, topic: Any) -> tuple[str | None, ErrorCode]:
    """Return the name of a request's topic, or None and what is wrong with it.

    Up to version 9 topics have names, from version 10 on ids.
    """
    if hasattr(topic, "name"):
        known = topic.name in node.topics.by_name
        return (topic.name, ErrorCode.none) if known else (None, ErrorCode.unknown_topic_or_partition)
    found = node.topics.by_id.get(topic.topic_id)
    return (None, ErrorCode.unknown_topic_id) if found is None else (found.name, ErrorCode.none)


def _exists(node: Node, topic: str, partition: int) -> bool:
    return 0 <= partition < node.topics.by_name[topic].partitions


async def offset_commit(node: Node, request: Request, message: Any) -> Answer:
    """Answer OffsetCommit, when the offsets are on disk."""
    commits: list[PartitionCommit] = []
    topics = [(topic, *_topic_name(node, topic)) for topic in message.topics]
    for topic, name, _ in topics:
        if name is not None:
            commits += [
                PartitionCommit(
                    name,
                    p.partition_index,
                    p.committed_offset,
                    getattr(p, "committed_leader_epoch", _NO_EPOCH),
                    p.committed_metadata or "",
                )
                for p in topic.partitions
                if _exists(node, name, p.partition_index)
            ]
    codes = iter(await _commit(node, request, message, commits))
    answered = []
    for topic, name, code in topics:
        partitions = [
            {
                "partition_index": p.partition_index,
                "error_code": code
                if name is None
                else next(codes)
                if _exists(node, name, p.partition_index)
                else ErrorCode.unknown_topic_or_partition,
            }
            for p in topic.partitions
        ]
        answered.append({**_identity(topic), "partitions": partitions})
    return {"topics": answered}


async def _commit(
    node: Node, request: Request, message: Any, commits: list[PartitionCommit]
) -> list[ErrorCode]:
    if not commits:
        return []
    retention = getattr(message, "retention_time", -_MILLISECOND)
    retention_ms = retention // _MILLISECOND if isinstance(retention, timedelta) else int(retention)
    commit = OffsetCommit(
        message.group_id,
        tuple(commits),
        message.generation_id_or_member_epoch,
        message.member_id,
        getattr(message, "group_instance_id", None),
        retention_ms,
        request.version,
    )
    service = node.group_service
    try:
        return await service.answer(node.groups.commit_offsets(service.now(), commit))
    except ApiError as error:
        return [error.code] * len(commits)


def _identity(topic: Any) -> dict[str, Any]:
    """Return a topic of a request as its answer names it."""
    return {"name": topic.name} if hasattr(topic, "name") else {"topic_id": topic.topic_id}


async def offset_fetch(node: Node, request: Request, message: Any) -> Answer:
    """Answer OffsetFetch: of one group, or from version 8 on of several.

    What is not durable yet is waited for. With `require_stable`, a partition for which a transaction is about
    to commit an offset has none that could be told.
    """
    await node.group_service.settled()
    stable = getattr(message, "require_stable", False)
    if request.version < 8:
        topics = _fetched(node, message.group_id, message.topics, by_id=False, stable=stable)
        return {"topics": topics, "error_code": ErrorCode.none}
    answered = []
    for group in message.groups:
        code, topics = ErrorCode.none, []
        try:
            node.groups.check_fetch(
                group.group_id, getattr(group, "member_id", None), getattr(group, "member_epoch", _NO_EPOCH)
            )
            topics = _fetched(node, group.group_id, group.topics, by_id=request.version >= 10, stable=stable)
        except ApiError as error:
            code = error.code
        answered.append({"group_id": group.group_id, "topics": topics, "error_code": code})
    return {"groups": answered}


def _fetched(
    node: Node, group_id: str, topics: Iterable[Any] | None, *, by_id: bool, stable: bool
) -> list[dict[str, Any]]:
    if topics is None:
        return _fetched_all(node, group_id, by_id=by_id, stable=stable)
    answered = []
    for topic in topics:
        name, code = topic.name if hasattr(topic, "name") else None, ErrorCode.none
        if name is None:
            name, code = _topic_name(node, topic)
        partitions = []
        for index in topic.partition_indexes:
            value = None if name is None else node.groups.fetch_offset(group_id, name, index)
            unstable = stable and name is not None and node.groups.pending.has(group_id, name, index)
            partitions.append(_unstable(index) if unstable else _partition(index, value, code))
        answered.append({**_identity(topic), "partitions": partitions})
    return answered


def _fetched_all(node: Node, group_id: str, *, by_id: bool, stable: bool) -> list[dict[str, Any]]:
    offsets = sorted(node.groups.offsets.of_group(group_id).items())
    answered = []
    for name, entries in groupby(offsets, key=lambda item: item[0][0]):
        identity: dict[str, Any] = {"name": name}
        if by_id:
            if name not in node.topics.by_name:
                continue
            identity = {"topic_id": node.topics.by_name[name].id}
        partitions = [
            _unstable(index)
            if stable and node.groups.pending.has(group_id, name, index)
            else _partition(index, value, ErrorCode.none)
            for (_, index), value in entries
        ]
        answered.append({**identity, "partitions": partitions})
    return answered


def _unstable(index: int) -> dict[str, Any]:
    return _partition(index, None, ErrorCode.unstable_offset_commit)


def _partition(index: int, value: CommittedOffset | None, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": _NO_OFFSET if value is None else value.offset,
        "committed_leader_epoch": _NO_EPOCH if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": code,
    }


async def offset_delete(node: Node, request: Request, message: Any) -> Answer:
    """Answer OffsetDelete, for topics that nobody in the group consumes."""
    asked = [(topic.name, p.partition_index) for topic in message.topics for p in topic.partitions]
    known = [(name, p) for name, p in asked if name in node.topics.by_name and _exists(node, name, p)]
    deleted = await node.group_service.answer(node.groups.delete_offsets(message.group_id, known))
    codes = dict(zip(known, deleted, strict=True))
    answered = []
    for topic in message.topics:
        partitions = [
            {
                "partition_index": p.partition_index,
                "error_code": codes.get(
                    (topic.name, p.partition_index), ErrorCode.unknown_topic_or_partition
                ),
            }
            for p in topic.partitions
        ]
        answered.append({"name": topic.name, "partitions": partitions})
    return {"error_code": ErrorCode.none, "topics": answered}


HANDLERS: dict[int, Handler] = {
    8: offset_commit,
    9: offset_fetch,
    47: offset_delete,
}
