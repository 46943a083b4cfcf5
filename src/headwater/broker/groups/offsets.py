"""Committed offsets: a store by group, topic and partition, and what expires from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headwater.broker.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.records import CommittedOffset, offset_record, pending_record
from headwater.broker.state import StateRecord
from headwater.core.errors import ErrorCode

_RECORD_STRING_MAX = 2**15 - 1


@dataclass(frozen=True)
class PartitionCommit:
    """One partition of an OffsetCommit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True)
class OffsetCommit:
    """An OffsetCommit of topics that exist."""

    group_id: str
    partitions: tuple[PartitionCommit, ...]
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    retention_ms: int = -1
    version: int = 9
    """The API's: what a missing group or a modern member is answered depends on it."""


class Offsets:
    """The committed offsets of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset, or None."""
        return self._groups.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return a group's committed offsets by topic and partition."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> Iterable[str]:
        """Return the groups that have offsets."""
        return self._groups.keys()

    def put(self, group_id: str, topic: str, partition: int, value: CommittedOffset | None) -> None:
        """Set or delete a committed offset; only `replay` calls this."""
        if value is not None:
            self._groups.setdefault(group_id, {})[topic, partition] = value
        elif (offsets := self._groups.get(group_id)) is not None:
            offsets.pop((topic, partition), None)
            if not offsets:
                del self._groups[group_id]

    def commit(
        self, request: OffsetCommit, wall_ms: int, metadata_max: int, *, producer_id: int | None = None
    ) -> tuple[list[ErrorCode], list[StateRecord]]:
        """Return a code for each partition, and the records of those that are committed.

        With a producer's id they are part of its transaction.
        """
        codes: list[ErrorCode] = []
        records: list[StateRecord] = []
        expire_ms = None if request.retention_ms < 0 else wall_ms + request.retention_ms
        for item in request.partitions:
            if len(item.metadata) > metadata_max or len(item.metadata.encode()) > _RECORD_STRING_MAX:
                codes.append(ErrorCode.offset_metadata_too_large)
                continue
            codes.append(ErrorCode.none)
            value = CommittedOffset(item.offset, item.leader_epoch, item.metadata, wall_ms, expire_ms)
            place = request.group_id, item.topic, item.partition
            if producer_id is None:
                records.append(offset_record(*place, value))
            else:
                records.append(pending_record(producer_id, *place, value))
        return codes, records

    def tombstones(
        self, group_id: str, chosen: Callable[[str, int], bool] | None = None
    ) -> Iterator[StateRecord]:
        """Yield the records that delete a group's offsets, or those of the chosen partitions."""
        for topic, partition in self.of_group(group_id):
            if chosen is None or chosen(topic, partition):
                yield offset_record(group_id, topic, partition, None)

    def expired(
        self, group: ClassicGroup | ConsumerGroup, wall_ms: int, retention_ms: int
    ) -> tuple[list[StateRecord], bool]:
        """Return the records that delete a group's expired offsets, and whether those are all it has."""
        offsets = self.of_group(group.group_id)
        if not offsets:
            return [], True
        since = _expiry_base(group)
        if since is None:
            return [], False
        consumed = {topic for topic in {topic for topic, _ in offsets} if _in_use(group, topic)}
        records = []
        for (topic, partition), value in offsets.items():
            # Old clients choose themselves how long an offset is kept.
            end_ms = since(value) + retention_ms if value.expire_ms is None else value.expire_ms
            if wall_ms >= end_ms and topic not in consumed:
                records.append(offset_record(group.group_id, topic, partition, None))
        return records, len(records) == len(offsets)


def _expiry_base(group: ClassicGroup | ConsumerGroup) -> Callable[[CommittedOffset], int] | None:
    """Return from when an offset's age counts, or None when nothing of the group may expire now.

    A group that had members keeps its offsets for as long as it has been empty; where there are no
    members to speak of, or where they say which topics they consume, it is the commit that counts.
    """
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return lambda value: value.commit_ms
    if group.state is ClassicState.EMPTY:
        emptied_ms = group.state_ms
        return lambda value: emptied_ms if emptied_ms >= 0 else value.commit_ms
    if group.state is ClassicState.STABLE and group.subscribed_topics() is not None:
        return lambda value: value.commit_ms
    return None


def _in_use(group: ClassicGroup | ConsumerGroup, topic: str) -> bool:
    if isinstance(group, ConsumerGroup):
        return group.subscribes_to(topic)
    return group.protocol_type == CONSUMER_PROTOCOL and group.subscribes_to(topic)
