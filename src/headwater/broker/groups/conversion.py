"""A group of one protocol as one of the other, with its members and what they own.

Either is a list of records that delete the group of one kind and make it anew as the other. They are written in
one batch, so a restart finds one or the other.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from headwater.broker.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicMember, ClassicState
from headwater.broker.groups.consumer import group_tombstones, member_tombstones
from headwater.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from headwater.broker.groups.embedded import (
    EmbeddedSubscription,
    by_id,
    by_name,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    has_user_data,
)
from headwater.broker.groups.packing import CorruptGroupRecord
from headwater.broker.groups.records import (
    Assignment,
    ClassicProtocols,
    MemberState,
    RecordKind,
    Subscription,
    current_record,
    epoch_record,
    group_record,
    member_record,
    partitions_record,
    target_record,
    tombstone,
)
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.subscriptions import Subscriptions, TopicsView
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode

Slot = tuple[UUID, int]

_DEFAULT_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Those whose members miss nothing when the broker assigns; librdkafka's tell their members more than partitions."""
_CUSTOM = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


def check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    """Raise what Kafka answers where a classic group may not become a consumer group."""
    if not config.upgrades:
        problem = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL:
        problem = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.consumer_max_size:
        problem = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _cannot_upgrade(group, problem)


def upgraded(
    group: ClassicGroup, subscriptions: Subscriptions, topics: TopicsView
) -> tuple[ConsumerGroup, list[StateRecord]]:
    """Return a classic group as a consumer group, and the records that make it one; or raise `ApiError`.

    What its members have is what the last generation that was completed gave them: in a rebalance that is under way,
    one that moves partitions one by one still owns them. It may also not have got around to giving up what it
    said to own when it joined that generation: its next JoinGroup tells.
    """
    epoch = group.generation
    result = ConsumerGroup(group.group_id, epoch, epoch)
    stored = () if group.stored is None else group.stored.members
    taken: set[Slot] = set()
    try:
        if group.protocol not in _DEFAULT_ASSIGNORS and any(has_user_data(m.assignment) for m in stored):
            raise _cannot_upgrade(group, _CUSTOM)
        given = {
            m.member_id: _claimed(by_id(decode_assignment(m.assignment), topics), taken)
            for m in stored
            if m.member_id in group.members
        }
        for member in group.members.values():
            told = decode_subscription(member.metadata(group.protocol) or member.protocols[0][1])
            assigned = given.get(member.member_id, {})
            keeps = _claimed(by_id(told.owned, topics), taken)
            state = MemberState.UNREVOKED_PARTITIONS if keeps else MemberState.STABLE
            subscription = _subscription(member, told)
            result.put_member(
                ConsumerMember(member.member_id, subscription, epoch, epoch, state, assigned, keeps)
            )
            result.targets[member.member_id] = assigned
    except CorruptGroupRecord:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
    result.topics = subscriptions.shapes(m.subscription for m in result.members.values())
    members = result.members.values()
    name = group.group_id
    return result, [
        tombstone(RecordKind.GROUP, name),
        *(member_record(name, m.member_id, m.subscription) for m in members),
        partitions_record(name, result.topics),
        epoch_record(RecordKind.CONSUMER_GROUP, name, result.epoch),
        *(target_record(name, m.member_id, m.assigned) for m in members),
        epoch_record(RecordKind.CONSUMER_TARGET_EPOCH, name, result.epoch),
        *(current_record(name, m.member_id, m.current()) for m in members),
    ]


def _claimed(wanted: Assignment, taken: set[Slot]) -> Assignment:
    """Return what of `wanted` nobody has taken yet, and take it."""
    result: dict[UUID, frozenset[int]] = {}
    for topic, partitions in wanted.items():
        free = frozenset(partition for partition in partitions if (topic, partition) not in taken)
        taken.update((topic, partition) for partition in free)
        if free:
            result[topic] = free
    return result


def _subscription(member: ClassicMember, embedded: EmbeddedSubscription) -> Subscription:
    return Subscription(
        member.instance_id,
        embedded.rack_id,
        member.client_id,
        member.client_host,
        embedded.topics,
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicProtocols(member.session_timeout_ms, member.protocols),
    )


def _cannot_upgrade(group: ClassicGroup, problem: str) -> ApiError:
    return ApiError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {problem}.",
    )


def may_downgrade(
    group: ConsumerGroup, leaving: Collection[str], config: GroupConfig, *, staying: int = 0
) -> bool:
    """Return whether a consumer group without some members becomes a classic group.

    `staying` of those that leave the consumer protocol stay in the group by the classic one.
    """
    rest = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        config.downgrades
        and 0 < len(rest) + staying <= config.max_size
        and all(member.subscription.classic is not None for member in rest)
    )


def downgraded(
    group: ConsumerGroup, leaving: Collection[str], topics: TopicsView, wall_ms: int
) -> tuple[ClassicGroup, list[StateRecord]]:
    """Return a consumer group without some members as a classic group, and the records that make it one."""
    result = ClassicGroup(group.group_id, wall_ms, ClassicState.STABLE, generation=group.epoch)
    for member in group.members.values():
        classic = member.subscription.classic
        if member.member_id in leaving or classic is None:
            continue
        result.add(
            ClassicMember(
                member.member_id,
                member.subscription.instance_id,
                member.subscription.client_id,
                member.subscription.client_host,
                member.subscription.rebalance_timeout_ms,
                classic.session_timeout_ms,
                classic.protocols,
            ),
            CONSUMER_PROTOCOL,
        )
    result.protocol = result.select_protocol()
    for kept in result.members.values():
        has = by_name(_has(group.members[kept.member_id]), topics)
        kept.assignment = encode_assignment(kept.metadata(result.protocol), has)
    stored = result.to_store({m.member_id: m.assignment for m in result.members.values()}, wall_ms)
    return result, [
        *(record for member_id in group.members for record in member_tombstones(group.group_id, member_id)),
        *group_tombstones(group),
        group_record(group.group_id, stored),
    ]


def _has(member: ConsumerMember) -> Assignment:
    """Return what a member has, counting what it is still to give up."""
    both = member.assigned, member.pending_revocation
    return {
        topic: both[0].get(topic, frozenset()) | both[1].get(topic, frozenset())
        for topic in both[0].keys() | both[1].keys()
    }
