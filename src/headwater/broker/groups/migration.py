"""Groups that move between the protocols while they have members (KIP-848), and how members leave.

A classic group becomes a consumer group with the first member that joins by the consumer protocol: its members stay,
each with the protocols of its JoinGroup attached, and go on by the classic requests (`mixed`). It becomes a
classic group again when the last member of the consumer protocol is gone, or is a static member that comes back by
the classic protocol. `group.consumer.migration.policy` says which of the two may happen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from headwater.broker.groups.classic import ClassicProtocol, JoinRequest, MemberIdentity
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.consumer import ConsumerProtocol
from headwater.broker.groups.consumer_group import STATIC_LEFT_EPOCH, ConsumerGroup, ConsumerMember
from headwater.broker.groups.consumer_heartbeat import ConsumerHeartbeat, ConsumerReply
from headwater.broker.groups.conversion import check_upgrade, downgraded, may_downgrade, upgraded
from headwater.broker.groups.mixed import MixedProtocol
from headwater.broker.groups.outcome import JoinReply, Moment, Outcome, SyncReply, Ticket
from headwater.broker.groups.rebalance import Effects, Rebalance
from headwater.broker.groups.records import ClassicProtocols, MemberState
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.share_group import ShareGroup
from headwater.broker.groups.subscriptions import Subscriptions, TopicsView
from headwater.broker.groups.timers import TimerKey, TimerKind
from headwater.core.errors import ApiError, ErrorCode


class Migration:
    """The handlers of requests that may move a group to the other protocol."""

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicsView,
        subscriptions: Subscriptions,
        rebalance: Rebalance,
        classic: ClassicProtocol,
        consumer: ConsumerProtocol,
        mixed: MixedProtocol,
        groups: dict[str, ClassicGroup | ConsumerGroup | ShareGroup],
    ) -> None:
        self._config = config
        self._topics = topics
        self._subscriptions = subscriptions
        self._rebalance = rebalance
        self._classic = classic
        self._consumer = consumer
        self._mixed = mixed
        self._groups = groups

    def upgrade(self, group: ClassicGroup, request: ConsumerHeartbeat, at: Moment) -> Outcome[ConsumerReply]:
        """Let a member of the consumer protocol into a classic group that has members, or raise `ApiError`."""
        check_upgrade(group, self._config)
        upgrade, conversion = upgraded(group, self._subscriptions, self._topics)
        out = self._consumer.heartbeat(upgrade, request, at)
        out.records[:0] = conversion
        for waiting in group.members.values():
            self._rebalance.answer_join(waiting, JoinReply("", ErrorCode.rebalance_in_progress), out)
            self._rebalance.answer_sync(waiting, SyncReply(ErrorCode.rebalance_in_progress), out)
        replaced = upgrade.static_member(request.instance_id)
        for member in upgrade.members.values():
            if member is not replaced and member.member_id != request.member_id:
                self._consumer.touch(upgrade, member, at)
        return out

    def join(
        self, group: ConsumerGroup, request: JoinRequest, ticket: Ticket, at: Moment
    ) -> Outcome[JoinReply]:
        """Let a member of the classic protocol into a consumer group that has members, or raise `ApiError`."""
        self._mixed.check_join(group, request)
        replaced = None if request.member_id else group.static_member(request.instance_id)
        if (
            replaced is None
            or replaced.subscription.classic is not None
            or not may_downgrade(group, {replaced.member_id}, self._config, staying=1)
        ):
            return self._mixed.join(group, request, at)
        out: Outcome[JoinReply] = Outcome()
        protocols = ClassicProtocols(request.session_timeout_ms, request.protocols)
        back = replace(replaced, subscription=replace(replaced.subscription, classic=protocols))
        classic = self._downgrade(group.with_replaced(back.member_id, back), (), at, out)
        if not _is_settled(group, replaced):
            self._rebalance.prepare_rebalance(classic, at, out)
        # It takes its place in the classic group as every static member that restarted does.
        joined = self._classic.join(classic, request, ticket, at)
        return Outcome(joined.reply, out.records + joined.records, out.replies + joined.replies)

    def consumer_leave(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, at: Moment
    ) -> Outcome[ConsumerReply]:
        """Let a member go, or a static member for a while."""
        member = group.identified(request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEFT_EPOCH:
            return self._consumer.leave_for_a_while(group, member, request)
        out = Outcome(ConsumerReply(member.member_id, request.member_epoch))
        self.remove(group, {member.member_id}, at, out)
        return out

    def leave(
        self, group: ConsumerGroup, identities: Sequence[MemberIdentity], at: Moment
    ) -> Outcome[list[ErrorCode]]:
        """Let members go that a LeaveGroup names, whatever their protocol; the answer has one code for each."""
        gone: set[str] = set()
        codes = []
        for identity in identities:
            try:
                gone.add(_leaving(group, identity).member_id)
                codes.append(ErrorCode.none)
            except ApiError as error:
                codes.append(error.code)
        out = Outcome(codes)
        if gone:
            self.remove(group, gone, at, out)
        return out

    def remove(self, group: ConsumerGroup, member_ids: set[str], at: Moment, out: Effects) -> None:
        """Let members go, and the group with them to the classic protocol if nobody else uses the other."""
        if may_downgrade(group, member_ids, self._config):
            classic = self._downgrade(group, member_ids, at, out)
            self._rebalance.prepare_rebalance(classic, at, out)
        else:
            out.records += self._consumer.fence(group, member_ids)

    def due(self, group: ConsumerGroup, timer: TimerKey, at: Moment, out: Effects) -> None:
        """Let a member go that has to, because a timer of its fell due."""
        member = group.members.get(timer.member)
        if member is not None and _is_late(member, timer.kind):
            self.remove(group, {timer.member}, at, out)

    def _downgrade(
        self, group: ConsumerGroup, leaving: Collection[str], at: Moment, out: Effects
    ) -> ClassicGroup:
        classic, conversion = downgraded(group, leaving, self._topics, at.wall_ms)
        out.records += conversion
        self._consumer.forget(group, group.members)
        self._groups[group.group_id] = classic
        for member in classic.members.values():
            self._rebalance.touch(classic, member, at)
        return classic


def _is_late(member: ConsumerMember, kind: TimerKind) -> bool:
    match kind:
        case TimerKind.SESSION:
            return True
        case TimerKind.REBALANCE:
            return member.state is MemberState.UNREVOKED_PARTITIONS
        case _:
            return member.subscription.classic is not None


def _is_settled(group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Return whether everybody has what it shall have, so that another generation would give nobody anything else."""
    return group.epoch == group.target_epoch and all(
        member.state is MemberState.STABLE
        and member.assigned == group.targets.get(member.member_id, {})
        and (member is replaced or member.epoch == group.epoch)
        for member in group.members.values()
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Return who leaves; administrators remove static members by their instance id alone."""
    holder = group.static_member(identity.instance_id)
    if holder is not None and not identity.member_id:
        return holder
    return group.identified(identity.member_id, identity.instance_id)
