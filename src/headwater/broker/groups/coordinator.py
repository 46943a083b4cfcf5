"""The group coordinator: every group and every committed offset, rebuilt from `__consumer_offsets`.

    start      replay(record) for all of the log, then loaded(at)
    request    a method below → Outcome; append and replay its records before the next call, and
               let its replies go when they are durable
    time       tick(at) whenever next_deadline() has passed, until it lies ahead

What the log holds changes in `replay` alone. What it does not hold, that is parked requests, ids
waiting to join, the phase of a classic rebalance and all timers, the handlers change themselves: a
restart forgets it, and the clients' retries bring it back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups import records
from headwater.broker.groups.classic import ClassicProtocol, JoinRequest, MemberIdentity, SyncRequest
from headwater.broker.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from headwater.broker.groups.consumer import ConsumerProtocol, group_tombstones
from headwater.broker.groups.consumer_group import LEFT_EPOCH, STATIC_LEFT_EPOCH, ConsumerGroup
from headwater.broker.groups.consumer_heartbeat import ConsumerHeartbeat, ConsumerReply, validate
from headwater.broker.groups.migration import Migration
from headwater.broker.groups.mixed import MixedProtocol
from headwater.broker.groups.offsets import OffsetCommit, Offsets
from headwater.broker.groups.outcome import JoinReply, Moment, Outcome, SyncReply, Ticket
from headwater.broker.groups.pending import PendingOffsets, Place
from headwater.broker.groups.rebalance import Rebalance
from headwater.broker.groups.records import CommittedOffset, RecordKey, RecordKind, StoredGroup
from headwater.broker.groups.settings import GroupConfig
from headwater.broker.groups.share import ShareProtocol, share_tombstones
from headwater.broker.groups.share_group import ShareGroup
from headwater.broker.groups.subscriptions import Subscriptions, TopicsView
from headwater.broker.groups.timers import TimerKey, TimerKind, Timers
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode
from headwater.core.settings import Value

Group = ClassicGroup | ConsumerGroup | ShareGroup

_REFUSED = {ErrorCode.inconsistent_group_protocol, ErrorCode.group_max_size_reached}
_MAX_NAME = 32_000
"""Bytes of an id or name: records of the classic protocol hold 32,767, and some ids grow by a UUID."""


class GroupCoordinator:
    """All groups of the broker."""

    def __init__(
        self,
        settings: Mapping[str, Value],
        topics: TopicsView,
        configs: GroupConfigs,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._config = GroupConfig.of(settings)
        self._timers = Timers()
        self._rebalance = Rebalance(self._config, self._timers)
        self._subscriptions = Subscriptions(topics)
        self._classic = ClassicProtocol(self._config, self._timers, self._rebalance, new_id)
        self._consumer = ConsumerProtocol(self._config, configs, self._timers, self._subscriptions, new_id)
        self._mixed = MixedProtocol(self._config, self._timers, self._consumer, topics, new_id)
        self._live = False
        self.groups: dict[str, Group] = {}
        self.share = ShareProtocol(self._config, configs, self._timers, self._subscriptions, self.groups)
        self._migration = Migration(
            self._config,
            topics,
            self._subscriptions,
            self._rebalance,
            self._classic,
            self._consumer,
            self._mixed,
            self.groups,
        )
        self.offsets = Offsets()
        self.pending = PendingOffsets()

    # The log

    def replay(self, record: StateRecord) -> None:
        """Apply a record, be it just appended or read on start."""
        key = records.decode_key(record.key)
        if key is None:
            return
        if key.kind is RecordKind.OFFSET:
            value = None if record.value is None else records.decode_offset(record.value)
            self.offsets.put(key.group, key.topic, key.partition, value)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group)
        elif key.kind is RecordKind.PENDING_OFFSET:
            value = None if record.value is None else records.decode_offset(record.value)
            self.pending.put(key.producer_id, Place(key.group, key.topic, key.partition), value)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group)
        elif key.kind is RecordKind.GROUP:
            self._replay_classic(key.group, record.value)
        else:
            self._replay_modern(key, record.value)

    def _replay_classic(self, group_id: str, value: bytes | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                self._rebalance.forget(group)
                del self.groups[group_id]
            return
        stored = records.decode_group(value)
        if not self._live or not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id)
            group.load(stored)
            return
        group.stored = stored
        if group.state is ClassicState.COMPLETING and stored.generation == group.generation:
            for member in stored.members:
                group.members[member.member_id].assignment = member.assignment
            group.state = ClassicState.STABLE
            group.state_ms = stored.state_ms

    def _replay_modern(self, key: RecordKey, value: bytes | None) -> None:
        kind = ShareGroup if key.kind in records.OF_SHARE_GROUPS else ConsumerGroup
        group = self.groups.get(key.group)
        if not isinstance(group, kind):
            if value is None:
                return
            group = self.groups[key.group] = kind(key.group)
        if value is None and key.kind in (RecordKind.CONSUMER_GROUP, RecordKind.SHARE_GROUP):
            del self.groups[key.group]
        else:
            group.replay(key, value)

    def loaded(self, at: Moment) -> Outcome[None]:
        """Begin to serve: every member that the log brought back gets a fresh session."""
        self._live = True
        out: Outcome[None] = Outcome()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self._rebalance.loaded(group, at, out)
            elif isinstance(group, ShareGroup):
                self.share.loaded(group, at)
            else:
                self._consumer.loaded(group, at)
        self._timers.set(
            TimerKey(TimerKind.OFFSET_EXPIRY), at.mono_ms + self._config.offsets_check_interval_ms
        )
        return out

    # Time

    def next_deadline(self) -> int | None:
        """Return when, by the monotonic clock, `tick` has something to do."""
        return self._timers.next_deadline()

    def tick(self, at: Moment) -> Outcome[None]:
        """Do what has fallen due, up to the first thing that has records to write."""
        out: Outcome[None] = Outcome()
        while not out.records and (key := self._timers.pop_due(at.mono_ms)) is not None:
            self._fire(key, at, out)
        return out

    def _fire(self, key: TimerKey, at: Moment, out: Outcome[None]) -> None:
        group = self.groups.get(key.group)
        if key.kind is TimerKind.OFFSET_EXPIRY:
            out.records += self._expire_offsets(at)
            self._timers.set(key, at.mono_ms + self._config.offsets_check_interval_ms)
        elif isinstance(group, ConsumerGroup):
            self._migration.due(group, key, at, out)
        elif isinstance(group, ShareGroup):
            if key.kind is TimerKind.SESSION and key.member in group.members:
                out.records += self.share.fence(group, key.member)
        elif group is not None:
            match key.kind:
                case TimerKind.SESSION:
                    self._rebalance.session_due(group, key.member, at, out)
                case TimerKind.JOIN:
                    self._rebalance.join_due(group, at, out)
                case TimerKind.SYNC:
                    self._rebalance.sync_due(group, at, out)
                case _:
                    pass  # of a consumer group that was there under this id before

    def _expire_offsets(self, at: Moment) -> list[StateRecord]:
        expired: list[StateRecord] = []
        for group in self.groups.values():
            if isinstance(group, ShareGroup):
                continue  # it has none, and stays until it is deleted
            gone, all_gone = self.offsets.expired(group, at.wall_ms, self._config.offsets_retention_ms)
            expired += gone
            if self.pending.has_group(group.group_id):
                continue
            if all_gone and group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_join):
                expired += _tombstones(group)
        return expired

    # The classic protocol

    def join(self, at: Moment, ticket: Ticket, request: JoinRequest) -> Outcome[JoinReply]:
        """Answer a JoinGroup, or park it under `ticket`."""
        timeout_ms = request.session_timeout_ms
        if not request.group_id or _too_long(request.group_id):
            return Outcome(JoinReply(request.member_id, ErrorCode.invalid_group_id))
        names = (name for name, _ in request.protocols)
        if _too_long(request.client_id, request.instance_id, request.protocol_type, *names):
            return Outcome(JoinReply(request.member_id, ErrorCode.invalid_request))
        if not self._config.min_session_timeout_ms <= timeout_ms <= self._config.max_session_timeout_ms:
            return Outcome(JoinReply(request.member_id, ErrorCode.invalid_session_timeout))
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.join(group, request, ticket, at)
        if isinstance(group, ShareGroup):
            return Outcome(JoinReply("", ErrorCode.inconsistent_group_protocol))
        if group is not None and not group.is_empty:
            try:
                return self._migration.join(group, request, ticket, at)
            except ApiError as error:
                return Outcome(JoinReply("", error.code))
        if request.member_id:
            return Outcome(JoinReply(request.member_id, ErrorCode.unknown_member_id))
        created = ClassicGroup(request.group_id, at.wall_ms)
        out = self._classic.join(created, request, ticket, at)
        if out.reply is not None and out.reply.error in _REFUSED:
            return out
        self.groups[request.group_id] = created
        empty = StoredGroup("", 0, None, None, at.wall_ms)
        before = [] if group is None else group_tombstones(group)
        out.records[:0] = [*before, records.group_record(request.group_id, empty)]
        return out

    def sync(self, at: Moment, ticket: Ticket, request: SyncRequest) -> Outcome[SyncReply]:
        """Answer a SyncGroup, or park it under `ticket`."""
        if not request.group_id:
            return Outcome(SyncReply(ErrorCode.invalid_group_id))
        group = self.groups.get(request.group_id)
        if group is None or group.is_empty or isinstance(group, ShareGroup):
            return Outcome(SyncReply(ErrorCode.unknown_member_id))
        if isinstance(group, ClassicGroup):
            return self._classic.sync(group, request, ticket, at)
        try:
            return self._mixed.sync(group, request, at)
        except ApiError as error:
            return Outcome(SyncReply(error.code))

    def heartbeat(
        self, at: Moment, group_id: str, generation: int, member_id: str, instance_id: str | None = None
    ) -> ErrorCode:
        """Return the answer to a Heartbeat."""
        if not group_id:
            return ErrorCode.invalid_group_id
        group = self.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            return ErrorCode.unknown_member_id
        try:
            if isinstance(group, ClassicGroup):
                return self._classic.heartbeat(group, generation, member_id, instance_id, at)
            return self._mixed.heartbeat(group, generation, member_id, instance_id, at)
        except ApiError as error:
            return error.code

    def leave(
        self, at: Moment, group_id: str, identities: Sequence[MemberIdentity]
    ) -> Outcome[list[ErrorCode]]:
        """Answer a LeaveGroup with a code for each member."""
        if not group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        group = self.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            return Outcome([ErrorCode.unknown_member_id for _ in identities])
        if isinstance(group, ClassicGroup):
            return self._classic.leave(group, list(identities), at)
        return self._migration.leave(group, identities, at)

    # The consumer protocol

    def consumer_heartbeat(self, at: Moment, request: ConsumerHeartbeat) -> Outcome[ConsumerReply]:
        """Answer a ConsumerGroupHeartbeat, or raise `ApiError`."""
        validate(request, self._config.assignors)
        if _too_long(request.group_id, request.member_id):
            raise ApiError(ErrorCode.invalid_request, f"GroupId and MemberId have {_MAX_NAME} bytes at most.")
        group = self.groups.get(request.group_id)
        joins = request.member_epoch == 0
        if isinstance(group, ConsumerGroup):
            if request.member_epoch in (LEFT_EPOCH, STATIC_LEFT_EPOCH):
                return self._migration.consumer_leave(group, request, at)
            return self._consumer.heartbeat(group, request, at)
        if group is None and not joins:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {request.group_id} not found.")
        if isinstance(group, ShareGroup) or (group is not None and not joins):
            raise ApiError(ErrorCode.group_id_not_found, f"Group {request.group_id} is not a consumer group.")
        if group is not None and not group.is_empty:
            return self._migration.upgrade(group, request, at)
        out = self._consumer.heartbeat(ConsumerGroup(request.group_id), request, at)
        if group is not None:
            out.records[:0] = _tombstones(group)
        return out

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the name of the assignor that a group uses."""
        return self._consumer.assignor_of(group)

    def topics_changed(self) -> None:
        """Take note that topics came, went, or gained partitions: members learn it as they heartbeat."""
        self._subscriptions.version += 1

    def topics_deleted(self, names: Iterable[str]) -> Outcome[None]:
        """Forget the offsets of topics that were deleted."""
        self.topics_changed()
        gone = set(names)
        out: Outcome[None] = Outcome()
        for group_id in self.offsets.group_ids():
            out.records += self.offsets.tombstones(group_id, lambda topic, _: topic in gone)
        out.records += self.pending.tombstones(topics=gone)
        for group in self.groups.values():
            if isinstance(group, ShareGroup):
                out.records += self.share.topics_deleted(group, gone)
        return out

    # Offsets

    def _consuming(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return a group that may have offsets, or None; raise for one that has none."""
        group = self.groups.get(group_id)
        if isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return group

    def commit_offsets(self, at: Moment, request: OffsetCommit) -> Outcome[list[ErrorCode]]:
        """Commit offsets, with a code for each partition, or raise `ApiError` for all of them."""
        if _too_long(request.group_id):
            raise ApiError(ErrorCode.invalid_group_id)
        group = self._consuming(request.group_id)
        if group is None:
            if request.generation >= 0:
                code = ErrorCode.group_id_not_found if request.version >= 9 else ErrorCode.illegal_generation
                raise ApiError(code, f"Group {request.group_id} not found.")
        elif isinstance(group, ClassicGroup):
            group.validate_commit(request.member_id, request.instance_id, request.generation)
            self._classic.touch(group, request.member_id, at)
        elif request.generation >= 0 or not group.is_empty:
            if group.member(request.member_id).subscription.classic is None and request.version < 9:
                raise ApiError(
                    ErrorCode.unsupported_version,
                    "OffsetCommit version 9 or above must be used by members using the modern group protocol",
                )
            group.validate_epoch(request.member_id, request.generation)
        codes, committed = self.offsets.commit(request, at.wall_ms, self._config.offset_metadata_max_bytes)
        return Outcome(codes, committed)

    def commit_transactional(
        self, at: Moment, request: OffsetCommit, producer_id: int
    ) -> Outcome[list[ErrorCode]]:
        """Keep offsets for when the producer's transaction commits, or raise `ApiError` for all of them."""
        if _too_long(request.group_id):
            raise ApiError(ErrorCode.invalid_group_id)
        group = self._consuming(request.group_id)
        nobody = request.generation < 0 and not request.member_id and request.instance_id is None
        if group is None:
            if request.generation >= 0:
                raise ApiError(ErrorCode.illegal_generation, f"Group {request.group_id} not found.")
        elif isinstance(group, ClassicGroup):
            group.validate_commit(
                request.member_id, request.instance_id, request.generation, transactional=True
            )
        elif not (nobody or (request.generation < 0 and group.is_empty)):
            try:
                group.validate_epoch(request.member_id, request.generation)
            except ApiError as error:
                if error.code is not ErrorCode.stale_member_epoch:
                    raise
                raise ApiError(ErrorCode.illegal_generation, error.message) from error
        return Outcome(
            *self.offsets.commit(
                request, at.wall_ms, self._config.offset_metadata_max_bytes, producer_id=producer_id
            )
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> Outcome[None]:
        """Commit or forget the offsets of a transaction that ends."""
        return Outcome(None, self.pending.ended(producer_id, commit=commit))

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise `ApiError` when a member may not read its group's offsets."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and (member_id is not None or member_epoch >= 0):
            group.validate_epoch(member_id or "", member_epoch)

    def fetch_offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset, or None."""
        return self.offsets.get(group_id, topic, partition)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Outcome[list[ErrorCode]]:
        """Delete offsets of topics that nobody in the group consumes, with a code for each partition."""
        if not group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        group = self._consuming(group_id)
        if group is None:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        if (
            isinstance(group, ClassicGroup)
            and not group.is_empty
            and group.protocol_type != CONSUMER_PROTOCOL
        ):
            raise ApiError(ErrorCode.non_empty_group)
        consumed = {topic for topic in {topic for topic, _ in partitions} if group.subscribes_to(topic)}
        codes = [
            ErrorCode.group_subscribed_to_topic if topic in consumed else ErrorCode.none
            for topic, _ in partitions
        ]
        chosen = {slot for slot in partitions if slot[0] not in consumed}
        return Outcome(codes, list(self.offsets.tombstones(group_id, lambda t, p: (t, p) in chosen)))

    # Administration

    def delete_groups(self, group_ids: Sequence[str]) -> Outcome[list[ErrorCode]]:
        """Delete groups that have no members, and their offsets, with a code for each group."""
        out: Outcome[list[ErrorCode]] = Outcome([])
        codes = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None:
                codes.append(ErrorCode.group_id_not_found)
            elif not group.is_empty:
                codes.append(ErrorCode.non_empty_group)
            else:
                codes.append(ErrorCode.none)
                out.records += self.offsets.tombstones(group_id)
                out.records += self.pending.tombstones(group=group_id)
                out.records += _tombstones(group)
        out.reply = codes
        return out


def _tombstones(group: Group) -> list[StateRecord]:
    if isinstance(group, ShareGroup):
        return share_tombstones(group)
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    return [records.tombstone(RecordKind.GROUP, group.group_id)]


def _too_long(*names: str | None) -> bool:
    return any(name is not None and len(name.encode()) > _MAX_NAME for name in names)
