"""The phases of a classic group's rebalance, and what their timers do.

In the first phase every member has to (re)join; those who do not in time are left behind, and the
coordinator picks the protocol, a leader, and the next generation. In the second the leader sends
everybody's assignment; those who do not ask for theirs in time are left behind as well.
"""

from __future__ import annotations

from typing import Any

from headwater.broker.groups.classic_group import ClassicGroup, ClassicMember, ClassicState, InitialDelay
from headwater.broker.groups.outcome import JoinReply, Moment, Outcome, SyncReply
from headwater.broker.groups.records import group_record
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.timers import TimerKey, TimerKind, Timers
from headwater.core.errors import ErrorCode

Effects = Outcome[Any]
"""The outcome of whatever request set something off."""
RETRY_MS = 1000
"""How long a join phase that nobody joined is prolonged at least, whatever the members ask for."""


class Rebalance:
    """Moves classic groups from phase to phase."""

    def __init__(self, config: GroupConfig, timers: Timers) -> None:
        self._config = config
        self._timers = timers

    def rebalance_or_complete(self, group: ClassicGroup, at: Moment, out: Effects) -> None:
        """Begin a rebalance, or end the join phase of the one under way if this was the last to join."""
        if group.state is not ClassicState.PREPARING:
            self.prepare_rebalance(group, at, out)
        elif group.initial_delay is None and group.all_joined():
            self._complete_join(group, at, out)

    def prepare_rebalance(self, group: ClassicGroup, at: Moment, out: Effects) -> None:
        """Begin a rebalance: from here on, everybody has to join again."""
        if group.state is ClassicState.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                if self.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress), out):
                    self.touch(group, member, at)
        group.pending_sync.clear()
        self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        join_timer = TimerKey(TimerKind.JOIN, group.group_id)
        initial = group.state is ClassicState.EMPTY
        self._enter(group, ClassicState.PREPARING, at)
        if initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            group.initial_delay = InitialDelay(delay_ms, remaining_ms)
            self._timers.set(join_timer, at.mono_ms + delay_ms)
        elif group.all_joined():
            self._complete_join(group, at, out)
        else:
            self._timers.set(join_timer, at.mono_ms + group.rebalance_timeout_ms())

    def join_due(self, group: ClassicGroup, at: Moment, out: Effects) -> None:
        """End the join phase, unless the group is new and more members came since the last look."""
        wait = group.initial_delay
        if wait is not None and wait.member_added and wait.remaining_ms > 0:
            delay_ms = min(self._config.initial_rebalance_delay_ms, wait.remaining_ms)
            group.initial_delay = InitialDelay(delay_ms, max(wait.remaining_ms - wait.delay_ms, 0))
            self._timers.set(TimerKey(TimerKind.JOIN, group.group_id), at.mono_ms + delay_ms)
        elif group.state is ClassicState.PREPARING:
            self._complete_join(group, at, out)

    def _complete_join(self, group: ClassicGroup, at: Moment, out: Effects) -> None:
        join_timer = TimerKey(TimerKind.JOIN, group.group_id)
        self._timers.cancel(join_timer)
        group.initial_delay = None
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                group.remove(member.member_id)
                self._timers.cancel(session_timer(group, member.member_id))
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none of them is back: their sessions decide.
            self._timers.set(join_timer, at.mono_ms + max(group.rebalance_timeout_ms(), RETRY_MS))
            return
        group.generation += 1
        if not group.members:
            group.protocol = None
            self._enter(group, ClassicState.EMPTY, at)
            out.records.append(group_record(group.group_id, group.to_store({}, at.wall_ms)))
            return
        group.protocol = group.select_protocol()
        self._enter(group, ClassicState.COMPLETING, at)
        group.pending_sync = set(group.members)
        for member in group.members.values():
            self.answer_join(member, joined(group, member), out)
            member.is_new = False
            self.touch(group, member, at)
        self._timers.set(TimerKey(TimerKind.SYNC, group.group_id), at.mono_ms + group.rebalance_timeout_ms())

    def sync_due(self, group: ClassicGroup, at: Moment, out: Effects) -> None:
        """Let those go that never asked for their assignment."""
        if group.state not in (ClassicState.COMPLETING, ClassicState.STABLE) or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            group.remove(member_id)
            self._timers.cancel(session_timer(group, member_id))
        self.prepare_rebalance(group, at, out)

    def session_due(self, group: ClassicGroup, member_id: str, at: Moment, out: Effects) -> None:
        """Let a member go that has been silent for its session timeout."""
        member = group.members.get(member_id)
        if member is None:
            group.pending_join.discard(member_id)
            if group.state is ClassicState.PREPARING and group.initial_delay is None and group.all_joined():
                self._complete_join(group, at, out)
        elif not member.excused:
            self.remove_member(group, member, out)
            self.after_removal(group, at, out)

    def remove_member(self, group: ClassicGroup, member: ClassicMember, out: Effects) -> None:
        """Let a member go, and answer what it has parked."""
        self.answer_join(member, JoinReply("", ErrorCode.unknown_member_id), out)
        self.answer_sync(member, SyncReply(ErrorCode.unknown_member_id), out)
        group.remove(member.member_id)
        self._timers.cancel(session_timer(group, member.member_id))

    def after_removal(self, group: ClassicGroup, at: Moment, out: Effects) -> None:
        """Rebalance without those who left."""
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            self.prepare_rebalance(group, at, out)
        elif group.state is ClassicState.PREPARING and group.initial_delay is None and group.all_joined():
            self._complete_join(group, at, out)

    def loaded(self, group: ClassicGroup, at: Moment, out: Outcome[None]) -> None:
        """Give every member that the log brought back a fresh session."""
        for member in group.members.values():
            self.touch(group, member, at)
        if len(group.members) > self._config.max_size:
            self.prepare_rebalance(group, at, out)

    def forget(self, group: ClassicGroup) -> None:
        """Drop the timers of a group that is deleted, or became a consumer group, whose members keep their own."""
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))
        for member_id in group.pending_join:
            self._timers.cancel(session_timer(group, member_id))

    def touch(self, group: ClassicGroup, member: ClassicMember, at: Moment) -> None:
        """Let a member's session begin anew."""
        self._timers.set(session_timer(group, member.member_id), at.mono_ms + member.session_timeout_ms)

    def _enter(self, group: ClassicGroup, state: ClassicState, at: Moment) -> None:
        group.state = state
        group.state_ms = at.wall_ms

    def answer_join(self, member: ClassicMember, reply: JoinReply, out: Effects) -> None:
        """Answer a member's parked JoinGroup, if it has one."""
        if member.join_ticket is not None:
            out.replies.append((member.join_ticket, reply))
            member.join_ticket = None

    def answer_sync(self, member: ClassicMember, reply: SyncReply, out: Effects) -> bool:
        """Answer a member's parked SyncGroup; return whether it had one."""
        if member.sync_ticket is None:
            return False
        out.replies.append((member.sync_ticket, reply))
        member.sync_ticket = None
        return True


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    """Return the key of the timer that ends a member's session."""
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def joined(
    group: ClassicGroup,
    member: ClassicMember,
    *,
    skip_assignment: bool = False,
    leader: str | None = None,
    members: tuple[tuple[str, str | None, bytes], ...] | None = None,
) -> JoinReply:
    """Return what a member is told of the generation it is part of."""
    if members is None:
        members = group.described_members() if group.leader == member.member_id else ()
    return JoinReply(
        member.member_id,
        ErrorCode.none,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader or group.leader or "",
        skip_assignment,
        members,
    )


def synced(group: ClassicGroup, assignment: bytes) -> SyncReply:
    """Return what a member is told of its assignment."""
    return SyncReply(ErrorCode.none, group.protocol_type, group.protocol, assignment)
