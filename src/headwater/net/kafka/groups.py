"""The APIs of consumer groups: joining and staying, describing, listing, deleting, finding them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.broker.groups import ConsumerHeartbeat, JoinRequest, MemberIdentity, SyncRequest
from headwater.broker.groups.classic_group import ClassicGroup, ClassicState
from headwater.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from headwater.broker.groups.consumer_heartbeat import ConsumerReply
from headwater.broker.groups.records import Assignment
from headwater.broker.groups.share import ShareReply
from headwater.broker.groups.share_group import ShareGroup
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request
from headwater.net.kafka.group_service import GroupService

if TYPE_CHECKING:
    from headwater.net.node import Node

__all__ = ["HANDLERS", "GroupService"]

_MILLISECOND = timedelta(milliseconds=1)

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)
_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11
ALL_GROUP_OPERATIONS = sum(1 << op for op in (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS))
"""What everybody may do with a group where nothing is forbidden, as Kafka's bit field."""

_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_CLASSIC_MEMBER_TYPE, _CONSUMER_MEMBER_TYPE = 0, 1


def _milliseconds(value: timedelta) -> int:
    return value // _MILLISECOND


def client_host(request: Request) -> str:
    """Return a client's address as Kafka shows it, after Java's `InetAddress`."""
    return f"/{request.client_host}"


async def join_group(node: Node, request: Request, message: Any) -> Answer:
    """Answer JoinGroup, when the group's next generation begins."""
    session_timeout_ms = _milliseconds(message.session_timeout)
    rebalance_timeout = getattr(message, "rebalance_timeout", None)
    join = JoinRequest(
        group_id=message.group_id,
        member_id=message.member_id,
        instance_id=getattr(message, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=client_host(request),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout is None else max(_milliseconds(rebalance_timeout), 0)
        ),
        protocol_type=message.protocol_type,
        protocols=tuple((p.name, p.metadata) for p in message.protocols),
        member_id_required=request.version >= 4,
        can_skip_assignment=request.version >= 9,
    )
    service = node.group_service
    reply = await service.park(lambda ticket: node.groups.join(service.now(), ticket, join))
    nameless = None if request.version >= 7 else ""
    return {
        "error_code": reply.error,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": nameless if reply.protocol_name is None else reply.protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in reply.members
        ],
    }


async def sync_group(node: Node, request: Request, message: Any) -> Answer:
    """Answer SyncGroup, when the leader has assigned."""
    if request.version >= 5 and (message.protocol_type is None or message.protocol_name is None):
        raise ApiError(ErrorCode.inconsistent_group_protocol)  # KIP-559: null only for older brokers
    sync = SyncRequest(
        message.group_id,
        message.generation_id,
        message.member_id,
        getattr(message, "group_instance_id", None),
        getattr(message, "protocol_type", None),
        getattr(message, "protocol_name", None),
        tuple((a.member_id, a.assignment) for a in message.assignments),
    )
    service = node.group_service
    reply = await service.park(lambda ticket: node.groups.sync(service.now(), ticket, sync))
    return {
        "error_code": reply.error,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }


async def heartbeat(node: Node, request: Request, message: Any) -> Answer:
    """Answer Heartbeat."""
    code = node.groups.heartbeat(
        node.group_service.now(),
        message.group_id,
        message.generation_id,
        message.member_id,
        getattr(message, "group_instance_id", None),
    )
    await node.group_service.settled()
    return {"error_code": code}


async def leave_group(node: Node, request: Request, message: Any) -> Answer:
    """Answer LeaveGroup: of one member, or from version 3 on of several."""
    if request.version < 3:
        identities = [MemberIdentity(message.member_id)]
    else:
        identities = [MemberIdentity(m.member_id, m.group_instance_id) for m in message.members]
    service = node.group_service
    codes = await service.answer(node.groups.leave(service.now(), message.group_id, identities))
    if request.version < 3:
        return {"error_code": codes[0]}
    return {
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": who.member_id, "group_instance_id": who.instance_id, "error_code": code}
            for who, code in zip(identities, codes, strict=True)
        ],
    }


async def consumer_group_heartbeat(node: Node, request: Request, message: Any) -> Answer:
    """Answer ConsumerGroupHeartbeat."""
    names, owned = message.subscribed_topic_names, message.topic_partitions
    beat = ConsumerHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        client_id=request.client_id or "",
        client_host=client_host(request),
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=_milliseconds(message.rebalance_timeout),
        topic_names=None if names is None else frozenset(names),
        topic_regex=getattr(message, "subscribed_topic_regex", None),
        server_assignor=message.server_assignor,
        owned=None if owned is None else _assignment(owned),
        member_id_required=request.version >= 1,
    )
    service = node.group_service
    reply = await service.answer(node.groups.consumer_heartbeat(service.now(), beat))
    return heartbeat_answer(reply)


def heartbeat_answer(reply: ConsumerReply | ShareReply) -> Answer:
    """Return the answer to a heartbeat of a consumer or share group."""
    assignment = None
    if reply.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in sorted(reply.assignment.items())
            ]
        }
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval": reply.heartbeat_interval_ms,
        "assignment": assignment,
    }


def _assignment(owned: Any) -> Assignment:
    """Return what a member says it owns; a topic that comes twice counts once."""
    result: dict[UUID, frozenset[int]] = {}
    for topic in owned:
        if topic.partitions and topic.topic_id is not None:
            result[topic.topic_id] = result.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return result


async def describe_groups(node: Node, request: Request, message: Any) -> Answer:
    """Answer DescribeGroups, for groups of the classic protocol."""
    await node.group_service.settled()
    allowed = operations(message)
    described = []
    for group_id in message.groups:
        group = node.groups.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            described.append(_described_classic(group, allowed))
            continue
        entry = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "group_id": group_id,
            "group_state": "Dead",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
            "authorized_operations": allowed,
        }
        if request.version >= 6:
            what = "not found" if group is None else "is not a classic group"
            entry |= {
                "error_code": ErrorCode.group_id_not_found,
                "error_message": f"Group {group_id} {what}.",
                "authorized_operations": AUTHORIZED_OPERATIONS_OMITTED,
            }
        described.append(entry)
    return {"groups": described}


def _described_classic(group: ClassicGroup, operations: int) -> dict[str, Any]:
    stable = group.state is ClassicState.STABLE
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
        "authorized_operations": operations,
    }


async def consumer_group_describe(node: Node, request: Request, message: Any) -> Answer:
    """Answer ConsumerGroupDescribe, for groups of the consumer protocol."""
    await node.group_service.settled()
    allowed = operations(message)
    described = []
    for group_id in message.group_ids:
        group = node.groups.groups.get(group_id)
        code, what = ErrorCode.none, None
        if not group_id:
            code, what = ErrorCode.invalid_group_id, None
        elif not isinstance(group, ConsumerGroup):
            problem = "not found" if group is None else "is not a consumer group"
            code, what = ErrorCode.group_id_not_found, f"Group {group_id} {problem}."
        found = group if isinstance(group, ConsumerGroup) else ConsumerGroup(group_id)
        described.append(
            {
                "error_code": code,
                "error_message": what,
                "group_id": group_id,
                "group_state": found.state if code is ErrorCode.none else "",
                "group_epoch": found.epoch,
                "assignment_epoch": found.target_epoch,
                "assignor_name": node.groups.assignor_of(found) if code is ErrorCode.none else "",
                "members": [_described_member(node, found, m) for m in found.members.values()],
                "authorized_operations": allowed if code is ErrorCode.none else AUTHORIZED_OPERATIONS_OMITTED,
            }
        )
    return {"groups": described}


def _described_member(node: Node, group: ConsumerGroup, member: ConsumerMember) -> dict[str, Any]:
    subscription = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
        "subscribed_topic_regex": subscription.topic_regex,
        "assignment": described_assignment(node, member.assigned),
        "target_assignment": described_assignment(node, group.targets.get(member.member_id, {})),
        "member_type": _CONSUMER_MEMBER_TYPE if subscription.classic is None else _CLASSIC_MEMBER_TYPE,
    }


def described_assignment(node: Node, assignment: Assignment) -> dict[str, Any]:
    """Return an assignment as groups are described with it."""
    topics = node.topics.by_id
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topics[topic_id].name, "partitions": sorted(partitions)}
            for topic_id, partitions in sorted(assignment.items())
            if topic_id in topics
        ]
    }


def operations(message: Any) -> int:
    """Return what everybody may do with a group, where that is asked for."""
    asked = getattr(message, "include_authorized_operations", False)
    return ALL_GROUP_OPERATIONS if asked else AUTHORIZED_OPERATIONS_OMITTED


async def list_groups(node: Node, request: Request, message: Any) -> Answer:
    """Answer ListGroups."""
    await node.group_service.settled()
    states = {state.lower().strip() for state in getattr(message, "states_filter", ())}
    types = {kind.lower() for kind in getattr(message, "types_filter", ())}
    listed = []
    for group in node.groups.groups.values():
        if isinstance(group, ClassicGroup):
            kind, state, protocol_type = "classic", group.state.value, group.protocol_type or ""
        elif isinstance(group, ShareGroup):
            kind, state, protocol_type = "share", group.state, "share"
        else:
            kind, state, protocol_type = "consumer", group.state, "consumer"
        if (not states or state.lower() in states) and (not types or kind.lower() in types):
            listed.append(
                {
                    "group_id": group.group_id,
                    "protocol_type": protocol_type,
                    "group_state": state,
                    "group_type": kind,
                }
            )
    return {"error_code": ErrorCode.none, "groups": listed}


async def delete_groups(node: Node, request: Request, message: Any) -> Answer:
    """Answer DeleteGroups."""
    group_ids = list(message.groups_names)
    shared = [each for each in group_ids if isinstance(node.groups.groups.get(each), ShareGroup)]
    codes = await node.group_service.answer(node.groups.delete_groups(group_ids))
    if shared:
        await node.share_service.forget(shared)
    return {
        "results": [
            {"group_id": group_id, "error_code": code}
            for group_id, code in zip(group_ids, codes, strict=True)
        ]
    }


async def find_coordinator(node: Node, request: Request, message: Any) -> Answer:
    """Answer FindCoordinator: it is this node, of groups and of transactions."""
    key_type = getattr(message, "key_type", _GROUP_KEY)
    found: dict[str, Any]
    if key_type in (_GROUP_KEY, _TRANSACTION_KEY):
        code = ErrorCode.none
        found = {"node_id": node.node_id, "host": node.host, "port": node.port}
    else:
        code = ErrorCode.invalid_request
        found = {"node_id": -1, "host": "", "port": -1}
    found["error_code"] = code
    if request.version < 4:
        return {**found, "error_message": code.name.upper()}
    return {"coordinators": [{**found, "key": key, "error_message": ""} for key in message.coordinator_keys]}


HANDLERS: dict[int, Handler] = {
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
    68: consumer_group_heartbeat,
    69: consumer_group_describe,
}
