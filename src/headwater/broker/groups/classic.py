"""The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

JoinGroup is parked until the next generation begins, SyncGroup until the leader has assigned it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.broker.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from headwater.broker.groups.outcome import JoinReply, Moment, Outcome, SyncReply, Ticket
from headwater.broker.groups.rebalance import Rebalance, joined, session_timer, synced
from headwater.broker.groups.records import group_record
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.timers import TimerKey, TimerKind, Timers
from headwater.core.errors import ApiError, ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member whose JoinGroup is parked longer than this is taken for gone: it would retry."""


@dataclass(frozen=True)
class JoinRequest:
    """A JoinGroup, without what its version has to do with it."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    member_id_required: bool
    """Whether a new member is sent away to come back under the id it was given (version 4 on)."""
    can_skip_assignment: bool
    """Whether a static leader that returns understands to assign nothing (version 9 on)."""


@dataclass(frozen=True)
class SyncRequest:
    """A SyncGroup."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class MemberIdentity:
    """Who leaves: a member id, an instance id, or both."""

    member_id: str
    instance_id: str | None = None


class ClassicProtocol:
    """The handlers of the classic protocol, on groups that the coordinator looks up."""

    def __init__(
        self, config: GroupConfig, timers: Timers, rebalance: Rebalance, new_id: Callable[[], str]
    ) -> None:
        self._config = config
        self._timers = timers
        self._rebalance = rebalance
        self._new_id = new_id

    # Joining

    def join(
        self, group: ClassicGroup, request: JoinRequest, ticket: Ticket, at: Moment
    ) -> Outcome[JoinReply]:
        """Take a member into the group's next generation."""
        out: Outcome[JoinReply] = Outcome()
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            out.reply = JoinReply("", ErrorCode.group_max_size_reached)
        elif not group.supports(request.protocol_type, request.protocols):
            out.reply = JoinReply(request.member_id, ErrorCode.inconsistent_group_protocol)
        elif not request.member_id:
            self._join_new(group, request, ticket, at, out)
        elif request.member_id in group.pending_join and request.instance_id is None:
            self._add_member(group, request, request.member_id, ticket, at, out)
        else:
            self._join_again(group, request, ticket, at, out)
        return out

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state is ClassicState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING:
            # Counting those who joined, not all members, sends away the last to rejoin when the
            # limit was lowered.
            waiting = sum(m.join_ticket is not None for m in group.members.values())
            return (member is not None and member.join_ticket is not None) or waiting < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _join_new(
        self, group: ClassicGroup, request: JoinRequest, ticket: Ticket, at: Moment, out: Outcome[JoinReply]
    ) -> None:
        member_id = f"{request.instance_id or request.client_id}-{self._new_id()}"
        if request.instance_id is not None:
            known = group.instances.get(request.instance_id)
            if known is None:
                self._add_member(group, request, member_id, ticket, at, out)
            else:
                self._replace_static(group, request, known, member_id, ticket, at, out)
        elif request.member_id_required:
            group.pending_join.add(member_id)
            self._timers.set(session_timer(group, member_id), at.mono_ms + request.session_timeout_ms)
            out.reply = JoinReply(member_id, ErrorCode.member_id_required)
        else:
            self._add_member(group, request, member_id, ticket, at, out)

    def _join_again(
        self, group: ClassicGroup, request: JoinRequest, ticket: Ticket, at: Moment, out: Outcome[JoinReply]
    ) -> None:
        try:
            member = group.validate_member(request.member_id, request.instance_id)
        except ApiError as error:
            out.reply = JoinReply(request.member_id, error.code)
            return
        same = member.protocols == request.protocols
        leads = group.leader == member.member_id
        if group.state is ClassicState.EMPTY:
            out.reply = JoinReply(request.member_id, ErrorCode.unknown_member_id)
        elif same and (
            group.state is ClassicState.COMPLETING or (group.state is ClassicState.STABLE and not leads)
        ):
            # The answer to its first join may have been lost: it gets the same again. A leader of a
            # stable group that rejoins wants a rebalance, for reasons that are its own.
            out.reply = joined(group, member)
            self._rebalance.touch(group, member, at)
        else:
            self._update(member, request, ticket, out)
            self._rebalance.rebalance_or_complete(group, at, out)

    def _add_member(
        self,
        group: ClassicGroup,
        request: JoinRequest,
        member_id: str,
        ticket: Ticket,
        at: Moment,
        out: Outcome[JoinReply],
    ) -> None:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            join_ticket=ticket,
        )
        if group.initial_delay is not None:
            group.initial_delay.member_added = True
        group.add(member, request.protocol_type)
        self._timers.set(session_timer(group, member_id), at.mono_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.rebalance_or_complete(group, at, out)

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinRequest,
        old_id: str,
        new_id: str,
        ticket: Ticket,
        at: Moment,
        out: Outcome[JoinReply],
    ) -> None:
        """Give a static member that restarted its place back, under a new id."""
        member = group.members.pop(old_id)
        self._rebalance.answer_join(member, JoinReply(old_id, ErrorCode.fenced_instance_id), out)
        self._rebalance.answer_sync(member, SyncReply(ErrorCode.fenced_instance_id), out)
        self._timers.cancel(session_timer(group, old_id))
        old_leader = group.leader
        member.member_id = new_id
        group.members[new_id] = member
        group.instances[request.instance_id or ""] = new_id
        if group.leader == old_id:
            group.leader = new_id
        if old_id in group.pending_sync:
            group.pending_sync.remove(old_id)
            group.pending_sync.add(new_id)
        self._update(member, request, ticket, out)
        self._rebalance.touch(group, member, at)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol:
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            out.records.append(group_record(group.group_id, group.to_store(assignments, at.wall_ms)))
            member.join_ticket = None
            leads = group.leader == new_id
            if request.can_skip_assignment:
                out.reply = joined(group, member, skip_assignment=leads)
            else:
                # An old client that believes to lead would assign anew: it is told the old leader.
                out.reply = joined(group, member, leader=old_leader, members=())
        else:
            self._rebalance.rebalance_or_complete(group, at, out)

    def _update(
        self, member: ClassicMember, request: JoinRequest, ticket: Ticket, out: Outcome[JoinReply]
    ) -> None:
        # A client that retries has given up its first request: one of the two must not stay parked.
        self._rebalance.answer_join(member, JoinReply(member.member_id, ErrorCode.rebalance_in_progress), out)
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_ticket = ticket

    # Assigning

    def sync(
        self, group: ClassicGroup, request: SyncRequest, ticket: Ticket, at: Moment
    ) -> Outcome[SyncReply]:
        """Take the leader's assignment, or park a follower until it is there."""
        out: Outcome[SyncReply] = Outcome()
        try:
            member = group.validate_member(request.member_id, request.instance_id)
        except ApiError as error:
            out.reply = SyncReply(error.code)
            return out
        if request.generation != group.generation:
            out.reply = SyncReply(ErrorCode.illegal_generation)
        elif _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol
        ):
            out.reply = SyncReply(ErrorCode.inconsistent_group_protocol)
        elif group.state is ClassicState.PREPARING:
            self._rebalance.touch(group, member, at)
            out.reply = SyncReply(ErrorCode.rebalance_in_progress)
        else:
            self._rebalance.touch(group, member, at)
            group.pending_sync.discard(member.member_id)
            if not group.pending_sync:
                self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
            if group.state is ClassicState.STABLE:
                out.reply = synced(group, member.assignment)
            else:
                self._park_sync(group, member, request, ticket, at, out)
        return out

    def _park_sync(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: SyncRequest,
        ticket: Ticket,
        at: Moment,
        out: Outcome[SyncReply],
    ) -> None:
        self._rebalance.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress), out)
        if member.member_id != group.leader:
            member.sync_ticket = ticket
            return
        assignments = dict(request.assignments)
        out.records.append(group_record(group.group_id, group.to_store(assignments, at.wall_ms)))
        out.reply = synced(group, assignments.get(member.member_id, b""))
        for other in group.members.values():
            reply = synced(group, assignments.get(other.member_id, b""))
            if self._rebalance.answer_sync(other, reply, out):
                self._rebalance.touch(group, other, at)

    # Staying and leaving

    def heartbeat(
        self, group: ClassicGroup, generation: int, member_id: str, instance_id: str | None, at: Moment
    ) -> ErrorCode:
        """Extend a member's session, and say whether it has to rejoin."""
        member = group.validate_member(member_id, instance_id)
        if generation != group.generation:
            return ErrorCode.illegal_generation
        self._rebalance.touch(group, member, at)
        if group.state is ClassicState.PREPARING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def touch(self, group: ClassicGroup, member_id: str, at: Moment) -> None:
        """Extend a member's session, as a commit of offsets does."""
        member = group.members.get(member_id)
        if member is not None and group.state in (ClassicState.STABLE, ClassicState.PREPARING):
            self._rebalance.touch(group, member, at)

    def leave(
        self, group: ClassicGroup, identities: list[MemberIdentity], at: Moment
    ) -> Outcome[list[ErrorCode]]:
        """Let members go at once; the answer has one code for each."""
        out: Outcome[list[ErrorCode]] = Outcome()
        out.reply = [self._leave_one(group, identity, out) for identity in identities]
        if ErrorCode.none in out.reply:
            self._rebalance.after_removal(group, at, out)
        return out

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, out: Outcome[list[ErrorCode]]
    ) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:
            # Administrators remove static members by their instance id alone.
            member_id = group.instances.get(identity.instance_id or "", "")
            if not member_id:
                return ErrorCode.unknown_member_id
        elif member_id in group.pending_join:
            group.remove(member_id)
            self._timers.cancel(session_timer(group, member_id))
            return ErrorCode.none
        try:
            member = group.validate_member(member_id, identity.instance_id)
        except ApiError as error:
            return error.code
        self._rebalance.remove_member(group, member, out)
        return ErrorCode.none


def _differs(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual
