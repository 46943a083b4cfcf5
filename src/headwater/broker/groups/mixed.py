"""The classic protocol for members of a consumer group: JoinGroup, SyncGroup and Heartbeat while a group migrates.

Such a member is a member like the others with the protocols of its JoinGroup attached; its generation is its epoch.
The broker assigns, so nobody leads and nothing waits: JoinGroup brings the member one step towards its target, as a
heartbeat of the consumer protocol does, SyncGroup fetches what it owns then, and Heartbeat says when to join
again. What it may have to revoke first is what its subscription says that it still owns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headwater.broker.groups.classic import JoinRequest, SyncRequest
from headwater.broker.groups.classic_group import CONSUMER_PROTOCOL
from headwater.broker.groups.consumer import ConsumerProtocol
from headwater.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from headwater.broker.groups.embedded import by_id, by_name, decode_subscription, encode_assignment
from headwater.broker.groups.outcome import JoinReply, Moment, Outcome, SyncReply
from headwater.broker.groups.packing import CorruptGroupRecord
from headwater.broker.groups.records import ClassicProtocols, MemberState, Subscription
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.subscriptions import TopicsView
from headwater.broker.groups.timers import TimerKey, TimerKind, Timers
from headwater.core.errors import ApiError, ErrorCode


class MixedProtocol:
    """The handlers of classic requests to consumer groups that have members."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers,
        consumer: ConsumerProtocol,
        topics: TopicsView,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._timers = timers
        self._consumer = consumer
        self._topics = topics
        self._new_id = new_id

    def check_join(self, group: ConsumerGroup, request: JoinRequest) -> None:
        """Raise `ApiError` unless the group has room for a member, and shares a protocol with it."""
        full = len(group.members) >= self._config.consumer_max_size
        if full and request.member_id not in group.members:
            raise ApiError(ErrorCode.group_max_size_reached)
        itself = group.static_member(request.instance_id) or group.members.get(request.member_id)
        names = {name for name, _ in request.protocols}
        for member in group.members.values():
            if member.subscription.classic is not None and member is not itself:
                names &= {name for name, _ in member.subscription.classic.protocols}
        if request.protocol_type != CONSUMER_PROTOCOL or not names:
            raise ApiError(ErrorCode.inconsistent_group_protocol)

    def join(self, group: ConsumerGroup, request: JoinRequest, at: Moment) -> Outcome[JoinReply]:
        """Take a member in, or bring it one step on, and answer at once; or raise `ApiError`."""
        out: Outcome[JoinReply] = Outcome()
        fresh_id = f"{request.instance_id or request.client_id}-{self._new_id()}"
        if not request.member_id and request.instance_id is None and request.member_id_required:
            out.reply = JoinReply(fresh_id, ErrorCode.member_id_required)
            return out
        try:
            embedded = decode_subscription(request.protocols[0][1])
        except CorruptGroupRecord as error:
            raise ApiError(ErrorCode.inconsistent_group_protocol, str(error)) from None
        known = self._find(group, request)
        before, view = known or ConsumerMember(request.member_id or fresh_id), group
        if known is not None and known.member_id != request.member_id:
            before, view = self._consumer.replace_member(group, known, fresh_id, out.records)
        subscription = Subscription(
            request.instance_id,
            embedded.rack_id,
            request.client_id,
            request.client_host,
            embedded.topics,
            None,
            request.rebalance_timeout_ms,
            None,
            ClassicProtocols(request.session_timeout_ms, request.protocols),
        )
        owned = by_id(embedded.owned, self._topics)
        member = replace(before, subscription=subscription)
        after = self._consumer.advance(view, before, member, owned, out.records, is_new=known is None)
        group.seen_topics_version = view.seen_topics_version
        self._timers.cancel(_timer(TimerKind.JOIN, group, after))
        self._timers.cancel(_timer(TimerKind.REBALANCE, group, after))
        self._timers.set(_timer(TimerKind.SYNC, group, after), at.mono_ms + request.rebalance_timeout_ms)
        self._consumer.touch(group, after, at)
        out.reply = JoinReply(
            after.member_id, ErrorCode.none, after.epoch, CONSUMER_PROTOCOL, request.protocols[0][0]
        )
        return out

    def _find(self, group: ConsumerGroup, request: JoinRequest) -> ConsumerMember | None:
        """Return who joins, or whom it replaces; None for a new member."""
        if request.instance_id is None:
            return group.members.get(request.member_id)
        if request.member_id:
            return group.identified(request.member_id, request.instance_id)
        return group.static_member(request.instance_id)

    def sync(self, group: ConsumerGroup, request: SyncRequest, at: Moment) -> Outcome[SyncReply]:
        """Answer with what a member owns, or raise `ApiError`."""
        member, classic = self._member(group, request.member_id, request.instance_id, request.generation)
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (
            None,
            name,
        ):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        # One that is to revoke something has joined again already, and gets there before it learns of more.
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(group, member, at)
            raise ApiError(ErrorCode.rebalance_in_progress)
        self._timers.cancel(_timer(TimerKind.SYNC, group, member))
        self._consumer.touch(group, member, at)
        assignment = encode_assignment(metadata, by_name(member.assigned, self._topics))
        return Outcome(SyncReply(ErrorCode.none, request.protocol_type, request.protocol_name, assignment))

    def heartbeat(
        self, group: ConsumerGroup, generation: int, member_id: str, instance_id: str | None, at: Moment
    ) -> ErrorCode:
        """Extend a member's session, and say whether it has to join again; or raise `ApiError`."""
        member, _ = self._member(group, member_id, instance_id, generation)
        self._consumer.touch(group, member, at)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
            or self._consumer.topics_differ(group)
        ):
            self._await_join(group, member, at)
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicProtocols]:
        member = group.identified(member_id, instance_id)
        classic = member.subscription.classic
        if classic is None:
            raise ApiError(
                ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol."
            )
        if generation != member.epoch:
            raise ApiError(
                ErrorCode.illegal_generation,
                f"The request generation id {generation} is not equal to the member epoch {member.epoch} "
                f"of member {member_id}.",
            )
        return member, classic

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember, at: Moment) -> None:
        timer = _timer(TimerKind.JOIN, group, member)
        if timer not in self._timers:
            self._timers.set(timer, at.mono_ms + member.subscription.rebalance_timeout_ms)


def _timer(kind: TimerKind, group: ConsumerGroup, member: ConsumerMember) -> TimerKey:
    return TimerKey(kind, group.group_id, member.member_id)
