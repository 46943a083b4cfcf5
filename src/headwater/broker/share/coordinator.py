"""The share coordinator: every share partition of every group, rebuilt from `__share_group_state`.

    start      replay(record) for all of the log, then loaded()
    request    a method below → Changes; append and replay its records before the next call, and
               let the answer go when they are durable
    time       tick(at) whenever next_deadline() has passed, until it lies ahead

A partition that no member of a group has asked for has no state, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups.outcome import Moment
from headwater.broker.groups.timers import Deadlines
from headwater.broker.share.in_flight import InFlight
from headwater.broker.share.partition import Ack, SharePartition
from headwater.broker.share.records import (
    ShareKey,
    Snapshot,
    decode_key,
    decode_snapshot,
    snapshot_record,
)
from headwater.broker.share.sessions import SessionKey, ShareSession, ShareSessions
from headwater.broker.share.settings import ShareConfig, max_sessions, share_config
from headwater.broker.share.taker import Acquired, Wish
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError
from headwater.core.settings import Value

Refusals = dict[ShareKey, ApiError]


@dataclass
class Changes:
    """What a handler found: records for the log, and the partitions that may have something to take now."""

    records: list[StateRecord] = field(default_factory=list)
    woken: list[ShareKey] = field(default_factory=list)


class ShareCoordinator:
    """All share partitions of the broker."""

    def __init__(self, settings: Mapping[str, Value], configs: GroupConfigs) -> None:
        self._configs = configs
        self._locks: Deadlines[ShareKey] = Deadlines()
        self._live = False
        self.partitions: dict[ShareKey, SharePartition] = {}
        self.sessions = ShareSessions(max_sessions(settings))

    def config(self, group_id: str) -> ShareConfig:
        """Return what holds for the records of a group."""
        return share_config(self._configs.settings_of_group(group_id))

    # The log

    def replay(self, record: StateRecord) -> None:
        """Apply a record, be it just appended or read on start."""
        key = decode_key(record.key)
        if key is None:
            return
        if record.value is None:
            self.partitions.pop(key, None)
            self._locks.cancel(key)
            return
        snapshot = decode_snapshot(record.value)
        partition = self.partitions.get(key)
        if partition is None or not self._live or partition.state_epoch != snapshot.state_epoch:
            self.partitions[key] = SharePartition(snapshot)
            self._locks.cancel(key)
        else:
            partition.apply(snapshot)

    def loaded(self) -> None:
        """Begin to serve: what was acquired before is available."""
        self._live = True

    # Requests

    def initialize(self, at: Moment, starts: Mapping[ShareKey, int]) -> Changes:
        """Let groups begin to share partitions at some offsets."""
        return Changes(
            [
                snapshot_record(key, Snapshot(0, 0, start_offset, at.wall_ms, at.wall_ms))
                for key, start_offset in starts.items()
            ]
        )

    def acquire(
        self, at: Moment, key: ShareKey, wish: Wish, offset: int, batches: Sequence[tuple[int, int]]
    ) -> list[Acquired]:
        """Give records of what was read at `offset` to a member; nothing of it is stored."""
        partition = self.partitions[key]
        acquired = partition.acquire(wish, self.config(key.group), at.mono_ms, offset, batches)
        if acquired:
            self._watch(key, partition)
        return acquired

    def acknowledge(
        self, at: Moment, member: str, acks: Mapping[ShareKey, Sequence[Ack]]
    ) -> tuple[Changes, Refusals]:
        """Take a member's words about records, and return why some of them are refused, by partition."""
        changes, refused = Changes(), Refusals()
        for key, words in acks.items():
            partition = self.partitions[key]
            try:
                after = partition.acknowledge(member, words, self.config(key.group), at.mono_ms)
            except ApiError as error:
                refused[key] = error
                continue
            self._change(changes, key, partition, after, at)
            self._watch(key, partition)
        return changes, refused

    def end_session(self, at: Moment, key: SessionKey) -> tuple[Changes, ShareSession | None]:
        """Forget a member's session, and free what it has acquired in it."""
        changes = Changes()
        session = self.sessions.close(key)
        for topic_id, index in session.slots if session is not None else ():
            place = ShareKey(key.group, topic_id, index)
            partition = self.partitions.get(place)
            if partition is not None:
                after = partition.release(key.member, self.config(key.group))
                self._change(changes, place, partition, after, at)
        return changes, session

    # Time

    def next_deadline(self) -> int | None:
        """Return when, by the monotonic clock, `tick` has something to do."""
        return self._locks.next_deadline()

    def tick(self, at: Moment) -> Changes:
        """Free the records that members have held for too long."""
        changes = Changes()
        while (key := self._locks.pop_due(at.mono_ms)) is not None:
            partition = self.partitions.get(key)
            if partition is not None:
                after = partition.expire(at.mono_ms, self.config(key.group))
                self._change(changes, key, partition, after, at)
                self._watch(key, partition, at.mono_ms)
        return changes

    def _watch(self, key: ShareKey, partition: SharePartition, after_ms: int = -1) -> None:
        # A timer that is early looks again; only one that is missing or late would be wrong.
        deadline_ms = partition.next_deadline(after_ms)
        if deadline_ms is not None:
            self._locks.set(key, deadline_ms)

    def _change(
        self, changes: Changes, key: ShareKey, partition: SharePartition, after: InFlight | None, at: Moment
    ) -> None:
        if after is not None:
            changes.records.append(snapshot_record(key, partition.changed(after, at.wall_ms)))
            changes.woken.append(key)

    # Administration

    def alter(self, at: Moment, offsets: Mapping[ShareKey, int]) -> Changes:
        """Let a group without members go on at other offsets."""
        changes = Changes()
        for key, offset in offsets.items():
            known = self.partitions.get(key)
            if offset < 0:
                # To begin as if it had never been there.
                changes.records.append(snapshot_record(key, None))
                continue
            epoch, state_epoch = (0, 0) if known is None else (known.epoch + 1, known.state_epoch + 1)
            snapshot = Snapshot(epoch, state_epoch, offset, at.wall_ms, at.wall_ms)
            changes.records.append(snapshot_record(key, snapshot))
        return changes

    def forget(self, groups: Iterable[str]) -> Changes:
        """Forget the state of groups that are deleted."""
        gone = set(groups)
        return Changes([snapshot_record(key, None) for key in self.partitions if key.group in gone])

    def forget_topics(self, topics: Iterable[UUID], group: str | None = None) -> Changes:
        """Forget the state of topics that are deleted, or that one group shares no more."""
        gone = set(topics)
        return Changes(
            [
                snapshot_record(key, None)
                for key in self.partitions
                if key.topic_id in gone and group in (None, key.group)
            ]
        )
