"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from headwater.broker.broker_settings import BROKER_SETTINGS, DYNAMIC
from headwater.broker.config_changes import apply_changes
from headwater.broker.config_entries import (
    Entry,
    broker_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from headwater.broker.group_settings import GROUP_CONFIGS
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.broker.state import StateRecord
from headwater.broker.topic_names import problem_with
from headwater.broker.topic_settings import TOPIC_SETTINGS
from headwater.broker.transactions.settings import TRANSACTION_SETTINGS
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node


class Resource(IntEnum):
    """What has configurations; the numbers are Kafka's on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_FIXED: dict[int, str] = {
    Resource.BROKER_LOGGER: "Levels of loggers cannot be altered: the option --log-level says what the broker logs",
    Resource.CLIENT_METRICS: "Client metrics cannot be configured: clients' telemetry is not collected here",
}
"""Why settings of these are refused, though Kafka has them."""

_NUMBER = re.compile("[+-]?[0-9]+")

Change = Callable[["Node", Any], list[StateRecord]]


async def describe_configs(node: Node, request: Request, message: Any) -> Answer:
    """Describe topics, groups and brokers, whole or by the keys that are asked for."""
    documented = getattr(message, "include_documentation", False)
    results = []
    for resource in message.resources:
        result = {
            "error_code": ErrorCode.none,
            "error_message": "",
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": (),
        }
        try:
            entries = _entries(node, resource.resource_type, resource.resource_name)
        except ApiError as error:
            result |= {"error_code": error.code, "error_message": error.message}
        else:
            keys = set(resource.configuration_keys or ())
            result["configs"] = [
                _described(entry, synonyms=message.include_synonyms, documented=documented)
                for entry in entries
                if not keys or entry.setting.name in keys
            ]
        results.append(result)
    return {"results": results}


def _entries(node: Node, kind: int, name: str) -> list[Entry]:
    match kind:
        case Resource.TOPIC:
            problem = problem_with(name)
            if problem is not None:
                raise ApiError(ErrorCode.invalid_topic_exception, problem)
            topic = node.topics.by_name.get(name)
            if topic is None:
                raise ApiError(ErrorCode.unknown_topic_or_partition)
            return topic_entries(node.topics, topic.overrides, topic.settings)
        case Resource.BROKER:
            if not name:
                return default_broker_entries(node.topics)
            _check_broker(node, name, "Broker id", f"{node.node_id} or empty string")
            return broker_entries(
                node.topics, node.settings, (BROKER_SETTINGS, GROUP_SETTINGS, TRANSACTION_SETTINGS)
            )
        case Resource.BROKER_LOGGER:
            _check_broker(node, name, "Broker id", str(node.node_id))
            return []
        case Resource.CLIENT_METRICS:
            if not name:
                raise ApiError(
                    ErrorCode.invalid_request, "Client metrics subscription name must not be empty"
                )
            return []
        case Resource.GROUP:
            if not name:
                raise ApiError(ErrorCode.invalid_request, "Group name must not be empty")
            return group_entries(node.topics, node.group_configs.by_group.get(name, {}), node.settings)
        case _:
            raise ApiError(ErrorCode.invalid_request, f"Unsupported resource type: {kind}")


def _check_broker(node: Node, name: str, what: str, expected: str) -> None:
    if _NUMBER.fullmatch(name) is None:
        raise ApiError(ErrorCode.invalid_request, f"{what} must be an integer, but it is: {name}")
    if int(name) != node.node_id:
        raise ApiError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {expected}, but received {name}"
        )


def _described(entry: Entry, *, synonyms: bool, documented: bool) -> dict[str, Any]:
    chain = entry.synonyms if synonyms else ()
    return {
        "name": entry.setting.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": False,
        "synonyms": [{"name": link.name, "value": link.value, "source": link.source} for link in chain],
        "config_type": entry.setting.kind.value,
        "documentation": entry.setting.help if documented else None,
    }


async def alter_configs(node: Node, request: Request, message: Any) -> Answer:
    """Replace all configurations of each resource."""
    return await _alter(node, message, _replacement)


async def incremental_alter_configs(node: Node, request: Request, message: Any) -> Answer:
    """Set, delete, append to and subtract from configurations of each resource."""
    return await _alter(node, message, _increment)


async def _alter(node: Node, message: Any, change: Change) -> Answer:
    times = Counter((resource.resource_type, resource.resource_name) for resource in message.resources)
    errors: list[ApiError | None] = []
    records: list[StateRecord] = []
    for resource in message.resources:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
            records += change(node, resource)
        except ApiError as error:
            errors.append(error)
        else:
            errors.append(None)
    if records and not message.validate_only:
        try:
            await node.commit_topics(records)
        except ApiError as failed:
            errors = [error or failed for error in errors]
    return {
        "responses": [
            {
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else error.message or None,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource, error in zip(message.resources, errors, strict=True)
        ]
    }


def _replacement(node: Node, resource: Any) -> list[StateRecord]:
    null = [config.name for config in resource.configs if config.value is None]
    if null:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(null)}")
    configs = {config.name: config.value for config in resource.configs}
    match resource.resource_type:
        case Resource.TOPIC:
            return node.topics.alter_topic(resource.resource_name, configs)
        case Resource.BROKER:
            return _alter_broker(node, resource.resource_name, configs)
        case Resource.GROUP:
            return node.group_configs.alter(resource.resource_name, configs)
        case _:
            raise _cannot_alter(resource.resource_type)


def _increment(node: Node, resource: Any) -> list[StateRecord]:
    name = resource.resource_name
    changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
    match resource.resource_type:
        case Resource.TOPIC:
            topic = node.topics.by_name.get(name)
            current = topic.overrides if topic is not None else {}
            inherited = {setting.name: setting.default for setting in TOPIC_SETTINGS}
            if topic is not None:
                inherited |= topic.settings
            return node.topics.alter_topic(name, apply_changes(current, changes, TOPIC_SETTINGS, inherited))
        case Resource.BROKER:
            current = node.topics.broker_configs.get(name, {})
            inherited = node.topics.broker_settings
            return _alter_broker(node, name, apply_changes(current, changes, BROKER_SETTINGS, inherited))
        case Resource.GROUP:
            own = node.group_configs.by_group.get(name, {})
            return node.group_configs.alter(name, apply_changes(own, changes, GROUP_CONFIGS, {}))
        case _:
            raise _cannot_alter(resource.resource_type)


def _alter_broker(node: Node, name: str, configs: Mapping[str, str]) -> list[StateRecord]:
    if name:
        _check_broker(node, name, "Node id", str(node.node_id))
    fixed = sorted(key for key in configs if key in BROKER_SETTINGS and key not in DYNAMIC)
    if fixed:
        raise ApiError(
            ErrorCode.invalid_request, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        )
    return node.topics.alter_broker(name, configs)


def _cannot_alter(kind: int) -> ApiError:
    return ApiError(ErrorCode.invalid_request, _FIXED.get(kind, f"Unknown resource type {kind}"))


async def list_config_resources(node: Node, request: Request, message: Any) -> Answer:
    """List what has configurations; version 0 asks for client metrics only, and there are none."""
    if request.version == 0:
        return {"error_code": ErrorCode.none, "config_resources": ()}
    kinds = set(message.resource_types) or set(Resource)
    if not kinds <= set(Resource):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
    names: dict[int, list[str]] = {
        Resource.GROUP: list(node.group_configs.by_group),
        Resource.BROKER_LOGGER: [str(node.node_id)],
        Resource.BROKER: [str(node.node_id)],
        Resource.TOPIC: list(node.topics.by_name),
    }
    return {
        "error_code": ErrorCode.none,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in names
            if kind in kinds
            for name in names[kind]
        ],
    }


HANDLERS: dict[int, Handler] = {
    32: describe_configs,
    33: alter_configs,
    44: incremental_alter_configs,
    74: list_config_resources,
}
