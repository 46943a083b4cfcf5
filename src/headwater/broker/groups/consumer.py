"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat, and the timers behind it.

There is one request. It carries what changed on the member's side and the answer what changed on
the coordinator's; joining, leaving and acknowledging a revocation are heartbeats as well. The
broker computes who shall own what, and brings every member there at the member's own pace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
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
        if before.epoch == STATIC_LEFT_EPOCH and request.member_epoch == 0:
            absent_id = before.member_id
            before = replace(before, member_id=request.member_id or self._new_id(), epoch=0, previous_epoch=0)
            self._replace_member(group, absent_id, before, out.records)
            view = group.with_replaced(absent_id, before)
        member = replace(before, subscription=updated(before.subscription, request))
        if member.subscription != before.subscription:
            out.records.append(member_record(group.group_id, member.member_id, member.subscription))
        target_epoch, target = view.target_epoch, view.targets.get(member.member_id, {})
        joins = known is None or _wants_other(before.subscription, member.subscription)
        # Most heartbeats bring nothing new: only the others look at the whole group.
        if joins or group.seen_topics_version != self._subscriptions.version or view.epoch > target_epoch:
            target_epoch, target = self._update_target(view, member, out.records, bump=joins)
            group.seen_topics_version = self._subscriptions.version
        after = member
        if not member.reconciled_to(target_epoch):
            after = reconcile(member, target_epoch, target, view.owners, request.owned)
        if after != member:
            out.records.append(current_record(group.group_id, after.member_id, after.current()))
            self._watch_revocation(group, after, at)
        settings = self._configs.settings_of_group(group.group_id)
        self._timers.set(_session(group, after.member_id), at.mono_ms + settings.consumer_session_timeout_ms)
        changed = after.assigned != before.assigned
        out.reply = ConsumerReply(
            after.member_id,
            after.epoch,
            settings.consumer_heartbeat_interval_ms,
            after.assigned if request.is_full or changed else None,
        )
        return out

    def _find_member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember | None:
        """Return who the heartbeat comes from, None for a new member, or raise for an impostor."""
        joins = request.member_epoch == 0
        if request.instance_id is None:
            if joins:
                # Also one that is still known, since it was fenced or its goodbye was lost: it owns nothing now.
                return group.members.get(request.member_id)
            member = group.member(request.member_id)
        else:
            holder = group.static_member(request.instance_id)
            if joins:
                if holder is not None and holder.epoch != STATIC_LEFT_EPOCH:
                    raise ApiError(
                        ErrorCode.unreleased_instance_id,
                        f"Static member {request.member_id} with instance id {request.instance_id} cannot join "
                        f"the group because the instance id is owned by {holder.member_id} member.",
                    )
                return holder or group.members.get(request.member_id)
            member = self._static(group, request)
        check_epoch(member, request)
        return member

    def _static(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        holder = group.static_member(request.instance_id or "")
        if holder is None:
            raise ApiError(ErrorCode.unknown_member_id, f"Instance id {request.instance_id} is unknown.")
        if holder.member_id != request.member_id:
            raise ApiError(
                ErrorCode.fenced_instance_id,
                f"Static member {request.member_id} with instance id {request.instance_id} "
                f"was fenced by member {holder.member_id}.",
            )
        return holder

    def _replace_member(
        self, group: ConsumerGroup, old_id: str, member: ConsumerMember, records: list[StateRecord]
    ) -> None:
        if old_id != member.member_id:
            records += _removal(group, old_id)
            self._cancel(group, old_id)
        records.append(member_record(group.group_id, member.member_id, member.subscription))
        records.append(target_record(group.group_id, member.member_id, group.targets.get(old_id, {})))
        records.append(current_record(group.group_id, member.member_id, member.current()))

    def leave(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> Outcome[ConsumerReply]:
        """Let a member go, or a static member for a while."""
        member = (
            group.member(request.member_id) if request.instance_id is None else self._static(group, request)
        )
        if request.member_epoch == STATIC_LEFT_EPOCH:
            out: Outcome[ConsumerReply] = Outcome()
            absent = replace(member, epoch=STATIC_LEFT_EPOCH, pending_revocation={})
            out.records.append(current_record(group.group_id, member.member_id, absent.current()))
            self._timers.cancel(TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id))
        else:
            out = Outcome(records=self.fence(group, member.member_id))
        out.reply = ConsumerReply(member.member_id, request.member_epoch)
        return out

    def fence(self, group: ConsumerGroup, member_id: str) -> list[StateRecord]:
        """Return the records that take a member out of the group."""
        records = _removal(group, member_id)
        topics = self._subscriptions.shapes(
            m.subscription for m in group.members.values() if m.member_id != member_id
        )
        if topics != group.topics:
            records.append(partitions_record(group.group_id, topics))
        records.append(epoch_record(RecordKind.CONSUMER_GROUP, group.group_id, group.epoch + 1))
        self._cancel(group, member_id)
        return records

    def loaded(self, group: ConsumerGroup, at: Moment) -> None:
        """Give every member that the log brought back a fresh session."""
        session_ms = self._configs.settings_of_group(group.group_id).consumer_session_timeout_ms
        for member in group.members.values():
            self._timers.set(_session(group, member.member_id), at.mono_ms + session_ms)
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
        if member.state is MemberState.UNREVOKED_PARTITIONS:
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
        self._timers.cancel(_session(group, member_id))
        self._timers.cancel(TimerKey(TimerKind.REBALANCE, group.group_id, member_id))


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


def _removal(group: ConsumerGroup, member_id: str) -> list[StateRecord]:
    return [
        tombstone(kind, group.group_id, member_id)
        for kind in (
            RecordKind.CONSUMER_CURRENT_MEMBER,
            RecordKind.CONSUMER_TARGET_MEMBER,
            RecordKind.CONSUMER_MEMBER,
        )
    ]


def _session(group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def _wants_other(before: Subscription, after: Subscription) -> bool:
    return before.topic_names != after.topic_names or before.topic_regex != after.topic_regex
