"""A member's next step from what it owns to what it shall own: revoke, then advance, then receive.

A partition passes from one member to another only through nobody: the old owner is asked to revoke
it and stays at its epoch until a heartbeat says that it has; only then is the partition free, and
the new owner's next heartbeat brings it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from headwater.broker.groups.consumer_group import ConsumerMember
from headwater.broker.groups.records import Assignment, MemberState


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[tuple[UUID, int], str],
    owned: Assignment | None,
) -> ConsumerMember:
    """Return the member one step on, or the same when it cannot go on.

    `owned` is what the member reports to own, None when it did not say.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _advance(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.pending_revocation):
                return member
            return _advance(member, member.epoch + 1, target_epoch, target, owners, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, member.epoch, target_epoch, target, owners, owned)


def _advance(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[tuple[UUID, int], str],
    owned: Assignment | None,
) -> ConsumerMember:
    kept: dict[UUID, frozenset[int]] = {}
    revoked: dict[UUID, frozenset[int]] = {}
    added: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic in target.keys() | member.assigned.keys():
        wanted = target.get(topic, frozenset())
        current = member.assigned.get(topic, frozenset())
        # What it gave up itself is free to come back: in the log it is released by the same record.
        taken = {p for p in wanted - current if owners.get((topic, p), member.member_id) != member.member_id}
        unreleased = unreleased or bool(taken)
        for part, partitions in ((kept, current & wanted), (revoked, current - wanted)):
            if partitions:
                part[topic] = partitions
        if free := wanted - current - taken:
            added[topic] = free
    if revoked and _still_owns(owned, revoked):
        return _at(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    for topic, partitions in added.items():
        kept[topic] = kept.get(topic, frozenset()) | partitions
    return _at(member, target_epoch, state, kept, {})


def _at(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=revoking,
    )


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    if owned is None:
        return True
    return any(owned[topic] & revoked.get(topic, frozenset()) for topic in owned)
