"""The share group protocol (KIP-932): ShareGroupHeartbeat, and the session behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups.assignors import AssignorMember
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.outcome import Moment, Outcome
from headwater.broker.groups.records import (
    Assignment,
    RecordKind,
    TopicShape,
    epoch_record,
    target_record,
    tombstone,
)
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.share_assignor import assign_simple
from headwater.broker.groups.share_group import ShareGroup, ShareMember
from headwater.broker.groups.share_records import (
    SharedTopic,
    shape_hash,
    share_current_record,
    share_group_record,
    share_member_record,
    shared_topics_record,
)
from headwater.broker.groups.subscriptions import Subscriptions
from headwater.broker.groups.timers import TimerKey, TimerKind, Timers
from headwater.broker.share.sessions import MAX_MEMBER_ID
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode

Groups = dict[str, ClassicGroup | ConsumerGroup | ShareGroup]

LEFT_EPOCH = -1
"""The epoch with which a member leaves."""
_MAX_NAME = 32_000
"""Bytes of an id: keys of records hold 32,767."""


@dataclass(frozen=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat; what is None has not changed since the last."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topic_names: frozenset[str] | None = None


@dataclass(frozen=True)
class ShareReply:
    """The answer to a heartbeat; `assignment` is None when it has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def validate(request: ShareHeartbeat) -> None:
    """Raise what Kafka answers to a heartbeat that contradicts itself."""
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if text == "":
            raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")
        if text is not None and len(text.encode()) > _MAX_NAME:
            raise ApiError(ErrorCode.invalid_request, f"{name} has {_MAX_NAME} bytes at most.")
    if len(request.member_id) > MAX_MEMBER_ID:
        raise ApiError(ErrorCode.invalid_request, f"MemberId has {MAX_MEMBER_ID} characters at most.")
    if request.member_epoch == 0 and not request.topic_names:
        raise ApiError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEFT_EPOCH:
        raise ApiError(ErrorCode.invalid_request, "MemberEpoch is invalid.")


class ShareProtocol:
    """The handlers of the share group protocol, on those of the coordinator's groups that are share groups."""

    def __init__(
        self,
        config: GroupConfig,
        configs: GroupConfigs,
        timers: Timers,
        subscriptions: Subscriptions,
        groups: Groups,
    ) -> None:
        self._config = config
        self._configs = configs
        self._timers = timers
        self._subscriptions = subscriptions
        self._groups = groups

    def find(self, group_id: str) -> ShareGroup:
        """Return a share group, or raise GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        what = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        raise ApiError(ErrorCode.group_id_not_found, what)

    def heartbeat(self, at: Moment, request: ShareHeartbeat) -> Outcome[ShareReply]:
        """Answer a ShareGroupHeartbeat, or raise `ApiError`."""
        validate(request)
        if request.group_id not in self._groups and request.member_epoch != LEFT_EPOCH:
            if request.member_epoch > 0:
                raise ApiError(ErrorCode.group_id_not_found, f"Share group {request.group_id} not found.")
            return self._stay(ShareGroup(request.group_id), request, at)
        group = self.find(request.group_id)
        if request.member_epoch == LEFT_EPOCH:
            return self._leave(group, request)
        return self._stay(group, request, at)

    def _stay(self, group: ShareGroup, request: ShareHeartbeat, at: Moment) -> Outcome[ShareReply]:
        """Take what changed on the member's side, and tell it what it has now."""
        if len(group.members) >= self._config.share_max_size and request.member_id not in group.members:
            raise ApiError(
                ErrorCode.group_max_size_reached,
                f"The share group has reached its maximum capacity of {self._config.share_max_size} members.",
            )
        known = self._find_member(group, request)
        before = known or ShareMember(request.member_id)
        out: Outcome[ShareReply] = Outcome()
        wanted = replace(
            before.subscription,
            client_id=request.client_id,
            client_host=request.client_host,
            rack_id=before.subscription.rack_id if request.rack_id is None else request.rack_id,
            topic_names=before.subscription.topic_names
            if request.topic_names is None
            else request.topic_names,
        )
        member = replace(before, subscription=wanted)
        if known is None or wanted != before.subscription:
            out.records.append(share_member_record(group.group_id, member.member_id, wanted))
        target_epoch, target = group.target_epoch, group.targets.get(member.member_id, {})
        changed = known is None or wanted.topic_names != before.subscription.topic_names
        # Most heartbeats bring nothing new: only the others look at the whole group.
        if changed or group.seen_topics_version != self._subscriptions.version or group.epoch > target_epoch:
            target_epoch, target = self._update_target(group, member, out.records, bump=changed)
            group.seen_topics_version = self._subscriptions.version
        after = member
        if member.epoch != target_epoch:
            after = replace(member, epoch=target_epoch, previous_epoch=member.epoch, assigned=target)
            out.records.append(
                share_current_record(
                    group.group_id, after.member_id, after.epoch, after.previous_epoch, after.assigned
                )
            )
        self._touch(group, after.member_id, at)
        told = (
            request.member_epoch == 0 or request.topic_names is not None or after.assigned != before.assigned
        )
        out.reply = ShareReply(
            after.member_id,
            after.epoch,
            self._configs.settings_of_group(group.group_id).share_heartbeat_interval_ms,
            after.assigned if told else None,
        )
        return out

    def _find_member(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember | None:
        """Return who the heartbeat comes from, None for a new member, or raise for one at another epoch."""
        if request.member_epoch == 0:
            return group.members.get(request.member_id)
        member = group.member(request.member_id)
        epoch = request.member_epoch
        if epoch == member.epoch or (epoch < member.epoch and epoch == member.previous_epoch):
            return member
        greater = epoch > member.epoch
        before = f", and it does not match the previous member epoch ({member.previous_epoch})"
        raise ApiError(
            ErrorCode.fenced_member_epoch,
            f"The share group member has a {'greater' if greater else 'smaller'} member epoch ({epoch}) "
            f"than the one known by the group coordinator ({member.epoch}){'' if greater else before}. "
            "The member must abandon all its partitions and rejoin.",
        )

    def _leave(self, group: ShareGroup, request: ShareHeartbeat) -> Outcome[ShareReply]:
        member = group.member(request.member_id)
        reply = ShareReply(member.member_id, request.member_epoch)
        return Outcome(reply, self.fence(group, member.member_id))

    def fence(self, group: ShareGroup, member_id: str) -> list[StateRecord]:
        """Return the records that take a member out of the group."""
        self._timers.cancel(_session(group, member_id))
        topics = self._subscriptions.shapes(
            each.subscription for each in group.members.values() if each.member_id != member_id
        )
        removed = (
            RecordKind.SHARE_CURRENT_MEMBER,
            RecordKind.SHARE_TARGET_MEMBER,
            RecordKind.SHARE_MEMBER,
        )
        return [
            *(tombstone(kind, group.group_id, member_id) for kind in removed),
            share_group_record(group.group_id, group.epoch + 1, shape_hash(topics)),
        ]

    def share_topics(self, group_id: str, names: Iterable[str]) -> Outcome[ErrorCode]:
        """Let a group without members, or a new one, share topics before any member subscribes."""
        group = self.find(group_id) if group_id in self._groups else ShareGroup(group_id)
        _check_empty(group)
        out: Outcome[ErrorCode] = Outcome(ErrorCode.none)
        if group.epoch == 0:
            out.records.append(share_group_record(group.group_id, 1, 0))
        wanted = replace(ShareMember("").subscription, topic_names=frozenset(names))
        shared = with_topics(group.shared, self._subscriptions.shapes([wanted]))
        if shared != group.shared:
            out.records.append(shared_topics_record(group.group_id, shared))
        return out

    def unshare_topics(self, group_id: str, topic_ids: Iterable[UUID]) -> Outcome[ErrorCode]:
        """Let a group without members share topics no more."""
        group = self.find(group_id)
        _check_empty(group)
        gone = set(topic_ids)
        shared = {topic_id: topic for topic_id, topic in group.shared.items() if topic_id not in gone}
        out: Outcome[ErrorCode] = Outcome(ErrorCode.none)
        if shared != group.shared:
            out.records.append(shared_topics_record(group.group_id, shared))
        return out

    def topics_deleted(self, group: ShareGroup, names: set[str]) -> list[StateRecord]:
        """Return the records with which a group shares topics no more that are gone."""
        left = {topic_id: topic for topic_id, topic in group.shared.items() if topic.name not in names}
        return [] if left == group.shared else [shared_topics_record(group.group_id, left)]

    def loaded(self, group: ShareGroup, at: Moment) -> None:
        """Give every member that the log brought back a fresh session."""
        for member_id in group.members:
            self._touch(group, member_id, at)

    def _touch(self, group: ShareGroup, member_id: str, at: Moment) -> None:
        """Begin a member's session anew."""
        session_ms = self._configs.settings_of_group(group.group_id).share_session_timeout_ms
        self._timers.set(_session(group, member_id), at.mono_ms + session_ms)

    def _update_target(
        self, group: ShareGroup, member: ShareMember, records: list[StateRecord], *, bump: bool
    ) -> tuple[int, Assignment]:
        """Bring the target assignment up to date; return its epoch, and what it gives to `member`."""
        members = {**group.members, member.member_id: member}
        topics = self._subscriptions.shapes(each.subscription for each in members.values())
        topics_hash = shape_hash(topics)
        bump = bump or topics_hash != group.topics_hash
        epoch = group.epoch + bump
        if bump:
            records.append(share_group_record(group.group_id, epoch, topics_hash))
        shared = with_topics(group.shared, topics)
        if shared != group.shared:
            records.append(shared_topics_record(group.group_id, shared))
        if epoch == group.target_epoch:
            return epoch, group.targets.get(member.member_id, {})
        wanted = self._subscriptions.ids((each.subscription for each in members.values()), topics)
        spec = [
            AssignorMember(each.member_id, None, ids, group.targets.get(each.member_id, {}))
            for each, ids in zip(members.values(), wanted, strict=True)
        ]
        computed = assign_simple(spec, {shape.topic_id: shape.partitions for shape in topics.values()})
        for member_id, assignment in computed.items():
            if group.targets.get(member_id) != assignment:
                records.append(
                    target_record(group.group_id, member_id, assignment, RecordKind.SHARE_TARGET_MEMBER)
                )
        records.append(epoch_record(RecordKind.SHARE_TARGET_EPOCH, group.group_id, epoch))
        return epoch, computed[member.member_id]


def with_topics(shared: dict[UUID, SharedTopic], topics: dict[str, TopicShape]) -> dict[UUID, SharedTopic]:
    """Return the topics that a group shares with some more, or with more partitions of them."""
    more = {
        shape.topic_id: SharedTopic(name, frozenset(range(shape.partitions)))
        for name, shape in topics.items()
    }
    return shared | more


def share_tombstones(group: ShareGroup) -> list[StateRecord]:
    """Return the records that delete a group without members."""
    return [
        tombstone(kind, group.group_id)
        for kind in (RecordKind.SHARE_TARGET_EPOCH, RecordKind.SHARED_TOPICS, RecordKind.SHARE_GROUP)
    ]


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise ApiError(ErrorCode.non_empty_group, "The group is not empty.")


def _session(group: ShareGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)
