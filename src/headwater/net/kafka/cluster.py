"""What belongs to the cluster as a whole: its nodes and directories, leaders, and access.

A cluster of one node has nothing to elect or to move, and no authorizer: those requests get the answers
that Kafka gives in that situation, so that its tools work.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request
from headwater.net.kafka.metadata import CLUSTER_OPERATIONS, NOT_REQUESTED

if TYPE_CHECKING:
    from headwater.net.node import Node

_BROKERS = 1
_CONTROLLERS = 2
_ELECTIONS = (0, 1)
_NO_AUTHORIZER = {"error_code": ErrorCode.security_disabled, "error_message": "No Authorizer is configured."}


async def describe_cluster(node: Node, request: Request, message: Any) -> Answer:
    """Describe this node, the whole of the cluster."""
    endpoints = getattr(message, "endpoint_type", _BROKERS)
    answer: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": (),
        "cluster_authorized_operations": NOT_REQUESTED,
    }
    if endpoints == _CONTROLLERS:
        return answer | {
            "error_code": ErrorCode.mismatched_endpoint_type,
            "error_message": "The request was sent to an endpoint of type BROKER, but we wanted an endpoint "
            "of type CONTROLLER",
        }
    if endpoints != _BROKERS:
        return answer | {
            "error_code": ErrorCode.unsupported_endpoint_type,
            "error_message": f"Unsupported endpoint type {endpoints}",
        }
    if message.include_cluster_authorized_operations:
        answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    this = {
        "broker_id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.settings["broker.rack"],
        "is_fenced": False,
    }
    return answer | {"cluster_id": node.cluster_id, "controller_id": node.node_id, "brokers": (this,)}


async def describe_log_dirs(node: Node, request: Request, message: Any) -> Answer:
    """Tell how large the partitions are, and how much room there is."""
    if message.topics is None:
        wanted = {topic.name: range(topic.partitions) for topic in node.topics.by_name.values()}
    else:
        wanted = {t.topic: t.partitions for t in message.topics if t.topic in node.topics.by_name}
    topics = [
        {"name": name, "partitions": sizes}
        for name, partitions in wanted.items()
        if (sizes := _sizes(node, name, partitions))
    ]
    usage = shutil.disk_usage(node.logs.path)
    result = {
        "error_code": ErrorCode.none,
        "log_dir": str(node.logs.path.absolute()),
        "topics": topics,
        "total_bytes": usage.total,
        "usable_bytes": usage.free,
        "is_cordoned": False,
    }
    return {"error_code": ErrorCode.none, "results": (result,)}


def _sizes(node: Node, topic: str, partitions: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"partition_index": p, "partition_size": log.local_bytes(), "offset_lag": 0, "is_future_key": False}
        for p in dict.fromkeys(partitions)
        if (log := node.logs.get(topic, p)) is not None
    ]


async def elect_leaders(node: Node, request: Request, message: Any) -> Answer:
    """Answer that no election is needed: every partition has its one possible leader."""
    kind = getattr(message, "election_type", 0)
    refused = None
    if kind not in _ELECTIONS:
        refused = ApiError(ErrorCode.invalid_request, f"Unknown election type {kind}")
    if message.topic_partitions is None:
        names = () if refused is not None else node.topics.by_name
        results = [{"topic": name, "partition_result": ()} for name in names]
        return {"error_code": _code(refused), "replica_election_results": results}
    return {
        "error_code": _code(refused),
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [
                    _partition_error("partition_id", p, refused or _election(node, topic.topic, p))
                    for p in topic.partitions
                ],
            }
            for topic in message.topic_partitions
        ],
    }


def _code(error: ApiError | None) -> ErrorCode:
    return ErrorCode.none if error is None else error.code


def _election(node: Node, name: str, partition: int) -> ApiError:
    topic = node.topics.by_name.get(name)
    if topic is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
    if not 0 <= partition < topic.partitions:
        return ApiError(ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{partition}")
    return ApiError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")


def _partition_error(key: str, partition: int, error: ApiError | None) -> dict[str, Any]:
    return {
        key: partition,
        "error_code": _code(error),
        "error_message": None if error is None else error.message or None,
    }


async def alter_partition_reassignments(node: Node, request: Request, message: Any) -> Answer:
    """Accept assignments to this node, where every partition is already, and refuse others."""
    return {
        "allow_replication_factor_change": getattr(message, "allow_replication_factor_change", True),
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    _partition_error("partition_index", p.partition_index, _reassignment(node, topic.name, p))
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


def _reassignment(node: Node, name: str, wanted: Any) -> ApiError | None:
    topic = node.topics.by_name.get(name)
    if topic is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    if not 0 <= wanted.partition_index < topic.partitions:
        return ApiError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{wanted.partition_index}."
        )
    if wanted.replicas is None:
        return ApiError(ErrorCode.no_reassignment_in_progress)
    try:
        node.topics.check_replicas(wanted.replicas)
    except ApiError as error:
        return error
    return None


async def list_partition_reassignments(node: Node, request: Request, message: Any) -> Answer:
    """List no reassignments: none is ever under way."""
    return {"error_code": ErrorCode.none, "error_message": None, "topics": ()}


async def describe_acls(node: Node, request: Request, message: Any) -> Answer:
    """Answer that there is no authorizer."""
    return {
        "error_code": ErrorCode.security_disabled,
        "error_message": "No Authorizer is configured on the broker",
        "resources": (),
    }


async def create_acls(node: Node, request: Request, message: Any) -> Answer:
    """Refuse each rule: there is no authorizer that would apply it."""
    return {"results": [_NO_AUTHORIZER] * len(message.creations)}


async def delete_acls(node: Node, request: Request, message: Any) -> Answer:
    """Refuse each filter: there is no authorizer that has rules."""
    return {"filter_results": [_NO_AUTHORIZER | {"matching_acls": ()}] * len(message.filters)}


HANDLERS: dict[int, Handler] = {
    29: describe_acls,
    30: create_acls,
    31: delete_acls,
    35: describe_log_dirs,
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    60: describe_cluster,
}
