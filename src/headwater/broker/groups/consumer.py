"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat, and the timers behind it.

There is one request. It carries what changed on the member's side and the answer what changed on
the coordinator's; joining, leaving and acknowledging a revocation are heartbeats as well. The
broker computes who shall own what, and brings every member there at the member's own pace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups.assignors import ASSIGNORS, AssignorMember
from headwater.broker.groups.consumer_group import STATIC_LEFT_EPOCH, ConsumerGroup, ConsumerMember
from headwater.broker.groups.consumer_heartbeat import ConsumerHeartbeat, ConsumerReply, check_epoch, updated
from headwater.broker.groups.outcome import Moment, Outcome
from headwater.broker.groups.reconcile import reconcile
from headwater.broker.groups.records import (
    Assignment,
    MemberState,
    RecordKind,
    Subscription,
    current_record,
    epoch_record,
    member_record,
    partitions_record,
    target_record,
    tombstone,
)
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.subscriptions import Subscriptions
from headwater.broker.groups.timers import TimerKey, TimerKind, Timers
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode


class ConsumerProtocol:
    """The handlers of the consumer protocol, on groups that the coordinator looks up."""

    def __init__(
        self,
        config: GroupConfig,
        configs: GroupConfigs,
        timers: Timers,
        subscriptions: Subscriptions,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._configs = configs
        self._timers = timers
        self._subscriptions = subscriptions
        self._new_id = new_id

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, at: Moment
    ) -> Outcome[ConsumerReply]:
        """Take what changed on the member's side, and bring it one step on."""
        out: Outcome[ConsumerReply] = Outcome()
        if len(group.members) >= self._config.consumer_max_size and request.member_id not in group.members:
            raise ApiError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of "
                f"{self._config.consumer_max_size} members.",
            )
        known = self._find_member(group, request)
        before = known or ConsumerMember(request.member_id or self._new_id())
        view = group
        if request.member_epoch == 0 and known is not None and _gave_way(known, request):
            new_id = request.member_id or self._new_id()
            before, view = self.replace_member(group, known, new_id, out.records)
        member = replace(before, subscription=updated(before.subscription, request))
        after = self.advance(view, before, member, request.owned, out.records, is_new=known is None)
        group.seen_topics_version = view.seen_topics_version
        if after != member:
            self._watch_revocation(group, after, at)
        self.touch(group, after, at)
        changed = after.assigned != before.assigned
        out.reply = ConsumerReply(
            after.member_id,
            after.epoch,
            self._configs.settings_of_group(group.group_id).consumer_heartbeat_interval_ms,
            after.assigned if request.is_full or changed else None,
        )
        return out

    def advance(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        owned: Assignment | None,
        records: list[StateRecord],
        *,
        is_new: bool,
    ) -> ConsumerMember:
        """Return a member whose subscription may have changed one step on its way to its target."""
        if member.subscription != before.subscription:
            records.append(member_record(group.group_id, member.member_id, member.subscription))
        target_epoch, target = group.target_epoch, group.targets.get(member.member_id, {})
        joins = is_new or _wants_other(before.subscription, member.subscription)
        # Most heartbeats bring nothing new: only the others look at the whole group.
        if joins or group.seen_topics_version != self._subscriptions.version or group.epoch > target_epoch:
            target_epoch, target = self._update_target(group, member, records, bump=joins)
            group.seen_topics_version = self._subscriptions.version
        after = member
        if not member.reconciled_to(target_epoch):
            after = reconcile(member, target_epoch, target, group.owners, owned)
        if after != member:
            records.append(current_record(group.group_id, after.member_id, after.current()))
        return after

    def _find_member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember | None:
        """Return who sends the heartbeat, or whose place it takes; None for a new member. Raise for an impostor."""
        if request.member_epoch != 0:
            member = group.identified(request.member_id, request.instance_id)
            check_epoch(member, request)
            return member
        # Also one that is still known, since it was fenced or its goodbye was lost: it owns nothing now.
        known = group.members.get(request.member_id)
        if request.instance_id is None:
            return known
        holder = group.static_member(request.instance_id)
        if holder is not None and not _gave_way(holder, request):
            raise ApiError(
                ErrorCode.unreleased_instance_id,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join "
                f"the group because the instance id is owned by {holder.member_id} member.",
            )
        return holder or known

    def replace_member(
        self, group: ConsumerGroup, old: ConsumerMember, new_id: str, records: list[StateRecord]
    ) -> tuple[ConsumerMember, ConsumerGroup]:
        """Return a static member under the id that it came back with, and the group with it in its place."""
        member = replace(old, member_id=new_id, epoch=0, previous_epoch=0)
        if old.member_id != new_id:
            records += member_tombstones(group.group_id, old.member_id)
            self._cancel(group, old.member_id)
        records.append(member_record(group.group_id, new_id, member.subscription))
        records.append(target_record(group.group_id, new_id, group.targets.get(old.member_id, {})))
        records.append(current_record(group.group_id, new_id, member.current()))
        return member, group.with_replaced(old.member_id, member)

    def leave_for_a_while(
        self, group: ConsumerGroup, member: ConsumerMember, request: ConsumerHeartbeat
    ) -> Outcome[ConsumerReply]:
        """Keep the place of a static member until its session ends."""
        absent = replace(member, epoch=STATIC_LEFT_EPOCH, pending_revocation={})
        self._timers.cancel(TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id))
        return Outcome(
            ConsumerReply(member.member_id, request.member_epoch),
            [current_record(group.group_id, member.member_id, absent.current())],
        )

    def fence(self, group: ConsumerGroup, member_ids: Collection[str]) -> list[StateRecord]:
        """Return the records that take members out of the group."""
        records = [
            record for member_id in member_ids for record in member_tombstones(group.group_id, member_id)
        ]
        topics = self._subscriptions.shapes(
            m.subscription for m in group.members.values() if m.member_id not in member_ids
        )
        if topics != group.topics:
            records.append(partitions_record(group.group_id, topics))
        records.append(epoch_record(RecordKind.CONSUMER_GROUP, group.group_id, group.epoch + 1))
        self.forget(group, member_ids)
        return records

    def forget(self, group: ConsumerGroup, member_ids: Iterable[str]) -> None:
        """Drop the timers of members that go."""
        for member_id in member_ids:
            self._cancel(group, member_id)

    def touch(self, group: ConsumerGroup, member: ConsumerMember, at: Moment) -> None:
        """Let a member's session begin anew."""
        classic = member.subscription.classic
        if classic is None:
            session_ms = self._configs.settings_of_group(group.group_id).consumer_session_timeout_ms
        else:
            session_ms = classic.session_timeout_ms
        key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
        self._timers.set(key, at.mono_ms + session_ms)

    def topics_differ(self, group: ConsumerGroup) -> bool:
        """Return whether the group's topics are others than those its assignment is for."""
        if group.seen_topics_version == self._subscriptions.version:
            return False
        if self._subscriptions.shapes(m.subscription for m in group.members.values()) != group.topics:
            return True
        group.seen_topics_version = self._subscriptions.version
        return False

    def loaded(self, group: ConsumerGroup, at: Moment) -> None:
        """Give every member that the log brought back a fresh session."""
        for member in group.members.values():
            self.touch(group, member, at)
            self._watch_revocation(group, member, at)

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the name of the assignor that most members want."""
        return self._assignor(group.members)

    def _assignor(self, members: Mapping[str, ConsumerMember]) -> str:
        wanted = Counter(m.subscription.server_assignor for m in members.values())
        wanted.pop(None, None)
        return wanted.most_common(1)[0][0] or "" if wanted else self._config.assignors[0]

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember, at: Moment) -> None:
        timer = TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id)
        # One of the classic protocol is told to join again, and has a time for that.
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.subscription.classic is None:
            self._timers.set(timer, at.mono_ms + member.subscription.rebalance_timeout_ms)
        else:
            self._timers.cancel(timer)

    def _update_target(
        self, group: ConsumerGroup, member: ConsumerMember, records: list[StateRecord], *, bump: bool
    ) -> tuple[int, Assignment]:
        """Bring the target assignment up to date; return its epoch, and what it gives to `member`."""
        members = {**group.members, member.member_id: member}
        topics = self._subscriptions.shapes(m.subscription for m in members.values())
        if topics != group.topics:
            bump = True
            records.append(partitions_record(group.group_id, topics))
        epoch = group.epoch + bump
        if bump:
            records.append(epoch_record(RecordKind.CONSUMER_GROUP, group.group_id, epoch))
        if epoch == group.target_epoch:
            return epoch, group.targets.get(member.member_id, {})
        wanted = self._subscriptions.ids((m.subscription for m in members.values()), topics)
        spec = [
            AssignorMember(m.member_id, m.subscription.instance_id, ids, group.targets.get(m.member_id, {}))
            for m, ids in zip(members.values(), wanted, strict=True)
        ]
        counts = {shape.topic_id: shape.partitions for shape in topics.values()}
        computed = ASSIGNORS[self._assignor(members)](spec, counts)
        for member_id, assignment in computed.items():
            if group.targets.get(member_id) != assignment:
                records.append(target_record(group.group_id, member_id, assignment))
        records.append(epoch_record(RecordKind.CONSUMER_TARGET_EPOCH, group.group_id, epoch))
        return epoch, computed[member.member_id]

    def _cancel(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id, member_id))


def group_tombstones(group: ConsumerGroup) -> list[StateRecord]:
    """Return the records that delete a group without members."""
    return [
        tombstone(kind, group.group_id)
        for kind in (
            RecordKind.CONSUMER_TARGET_EPOCH,
            RecordKind.CONSUMER_PARTITIONS,
            RecordKind.CONSUMER_GROUP,
        )
    ]


def member_tombstones(group_id: str, member_id: str) -> list[StateRecord]:
    """Return the records that delete a member."""
    return [
        tombstone(kind, group_id, member_id)
        for kind in (
            RecordKind.CONSUMER_CURRENT_MEMBER,
            RecordKind.CONSUMER_TARGET_MEMBER,
            RecordKind.CONSUMER_MEMBER,
        )
    ]


def _gave_way(holder: ConsumerMember, request: ConsumerHeartbeat) -> bool:
    """Return whether a static member joins in the place of one that left for a while, or by the other protocol."""
    if request.instance_id is None or holder.subscription.instance_id != request.instance_id:
        return False
    return holder.epoch == STATIC_LEFT_EPOCH or holder.subscription.classic is not None


def _wants_other(before: Subscription, after: Subscription) -> bool:
    return before.topic_names != after.topic_names or before.topic_regex != after.topic_regex
