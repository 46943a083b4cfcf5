"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.broker.config_entries import topic_entries
from headwater.broker.state import StateRecord
from headwater.broker.topics import NewTopic, Topic, Topics
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node

_DUPLICATE = ApiError(ErrorCode.invalid_request, "Duplicate topic name.")


async def create_topics(node: Node, request: Request, message: Any) -> Answer:
    """Create topics, each on its own: one that is refused does not hold up the others."""
    times = Counter(topic.name for topic in message.topics)
    results: list[dict[str, Any]] = []
    records: list[StateRecord] = []
    pending = 0
    quota = node.throttle.mutations(request, 6, node.clock.monotonic_ms())
    for wanted in message.topics:
        if times[wanted.name] > 1:
            continue
        try:
            topic, created = node.topics.create(_new_topic(wanted), pending=pending)
            quota.take(topic.partitions)
        except ApiError as error:
            results.append(_refused(wanted.name, error))
            continue
        pending += topic.partitions
        records += created
        results.append(_created(node.topics, topic))
    results += [_refused(name, _DUPLICATE) for name, count in times.items() if count > 1]
    if records and not message.validate_only:
        failed = await _commit(node, records)
        if failed is not None:
            results = [
                _refused(result["name"], failed) if result["error_code"] is ErrorCode.none else result
                for result in results
            ]
    return {"topics": results, "throttle_time": quota.wait_ms}


def _new_topic(wanted: Any) -> NewTopic:
    assignments: dict[int, tuple[int, ...]] = {}
    for assignment in wanted.assignments:
        if assignment.partition_index in assignments:
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        assignments[assignment.partition_index] = assignment.broker_ids
    configs = {config.name: config.value for config in wanted.configs}
    return NewTopic(wanted.name, wanted.num_partitions, wanted.replication_factor, assignments, configs)


def _created(topics: Topics, topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "topic_config_error_code": 0,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": [
            {
                "name": entry.setting.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": False,
            }
            for entry in topic_entries(topics, topic.overrides, topic.settings)
        ],
    }


def _refused(name: str, error: ApiError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error.code,
        "error_message": error.message or None,
        "topic_config_error_code": 0,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


async def _commit(node: Node, records: list[StateRecord]) -> ApiError | None:
    """Commit records; the error, if they cannot be, is for each topic that they are about."""
    try:
        await node.commit_topics(records)
    except ApiError as error:
        return error
    return None


async def delete_topics(node: Node, request: Request, message: Any) -> Answer:
    """Delete topics by name, or from version 6 on by id."""
    if not node.settings["delete.topic.enable"]:
        code = ErrorCode.topic_deletion_disabled if request.version >= 3 else ErrorCode.invalid_request
        disabled = ApiError(code, "Topic deletion is disabled.")
        return {"responses": [_deleted(name, topic_id, disabled) for name, topic_id in _named(message)]}
    results: list[dict[str, Any]] = []
    found: dict[UUID, Topic] = {}
    for (name, topic_id), times in Counter(_named(message)).items():
        try:
            topic = _find(node.topics, name, topic_id, times)
            if topic.id in found:
                raise ApiError(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            found[topic.id] = topic
        except ApiError as error:
            results.append(_deleted(name, topic_id, error))
    records: list[StateRecord] = []
    deleted: list[Topic] = []
    quota = node.throttle.mutations(request, 5, node.clock.monotonic_ms())
    for topic in found.values():
        try:
            deletion = node.topics.delete(topic)
            quota.take(topic.partitions)
            records += deletion
            deleted.append(topic)
        except ApiError as error:
            results.append(_deleted(topic.name, topic.id, error))
    failed = await _commit(node, records) if records else None
    results += [_deleted(topic.name, topic.id, failed) for topic in deleted]
    return {"responses": results, "throttle_time": quota.wait_ms}


def _named(message: Any) -> list[tuple[str | None, UUID | None]]:
    if hasattr(message, "topics"):
        return [(topic.name, topic.topic_id) for topic in message.topics]
    return [(name, None) for name in message.topic_names]


def _find(topics: Topics, name: str | None, topic_id: UUID | None, times: int) -> Topic:
    if name is None and topic_id is None:
        raise ApiError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        raise ApiError(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if times > 1:
        raise ApiError(ErrorCode.invalid_request, f"Duplicate topic {'id' if name is None else 'name'}.")
    if topic_id is not None:
        topic = topics.by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        return topic
    topic = topics.by_name.get(name or "")
    if topic is None:
        raise ApiError(
            ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
        )
    return topic


def _deleted(name: str | None, topic_id: UUID | None, error: ApiError | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else error.message or None,
    }


async def create_partitions(node: Node, request: Request, message: Any) -> Answer:
    """Add partitions to topics, each on its own."""
    times = Counter(topic.name for topic in message.topics)
    errors: dict[str, ApiError | None] = {name: _DUPLICATE for name, count in times.items() if count > 1}
    records: list[StateRecord] = []
    added: list[str] = []
    pending = 0
    quota = node.throttle.mutations(request, 3, node.clock.monotonic_ms())
    for wanted in message.topics:
        if times[wanted.name] > 1:
            continue
        try:
            growth = _more_partitions(node.topics, wanted, pending)
            more = wanted.count - node.topics.by_name[wanted.name].partitions
            quota.take(more)
        except ApiError as error:
            errors[wanted.name] = error
            continue
        records += growth
        pending += more
        added.append(wanted.name)
    failed = None
    if records and not message.validate_only:
        failed = await _commit(node, records)
    errors.update(dict.fromkeys(added, failed))
    return {"results": [_grown(name, errors) for name in times], "throttle_time": quota.wait_ms}


def _more_partitions(topics: Topics, wanted: Any, pending: int) -> list[StateRecord]:
    assignments = wanted.assignments
    if assignments is not None:
        assignments = [assignment.broker_ids for assignment in assignments]
    return topics.add_partitions(wanted.name, wanted.count, assignments, pending=pending)


def _grown(name: str, errors: Mapping[str, ApiError | None]) -> dict[str, Any]:
    error = errors[name]
    return {
        "name": name,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else error.message or None,
    }


HANDLERS: dict[int, Handler] = {19: create_topics, 20: delete_topics, 37: create_partitions}
