"""The records of share groups in `__consumer_offsets`, in Kafka's own layout.

10  ShareGroupMemberMetadata              value 0; what a member subscribes to
11  ShareGroupMetadata                    value 0; a share group's epoch, and a hash of its topics
12  ShareGroupTargetAssignmentMetadata    value 0; the epoch of the target assignment
13  ShareGroupTargetAssignmentMember      value 0; what a member shall have
14  ShareGroupCurrentMemberAssignment     value 0; what a member has
15  ShareGroupStatePartitionMetadata      value 0; the topics whose partitions the group shares
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from headwater.broker.groups.packing import Writer
from headwater.broker.groups.records import (
    Assignment,
    MemberState,
    RecordKey,
    RecordKind,
    Subscription,
    TopicShape,
    encode_key,
    open_value,
    read_assignment,
    write_assignment,
)
from headwater.broker.state import StateRecord


@dataclass(frozen=True)
class SharedTopic:
    """A topic that a group shares, and the partitions of it."""

    name: str
    partitions: frozenset[int]


def shape_hash(topics: Mapping[str, TopicShape]) -> int:
    """Return a number that differs where topics, or how many partitions they have, do."""
    text = ";".join(f"{name},{topics[name].topic_id},{topics[name].partitions}" for name in sorted(topics))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def share_group_record(group: str, epoch: int, topics_hash: int) -> StateRecord:
    """Return the record of a share group's epoch."""
    out = Writer()
    out.i16(0)
    out.i32(epoch)
    out.i64(topics_hash)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(RecordKind.SHARE_GROUP, group)), out.done())


def decode_share_group(data: bytes) -> tuple[int, int]:
    """Return a share group's epoch and the hash of its topics."""
    reader, _ = open_value(data, 0)
    return reader.i32(), reader.i64()


def share_member_record(group: str, member: str, value: Subscription) -> StateRecord:
    """Return the record of a share group member's subscription."""
    out = Writer()
    out.i16(0)
    out.compact_string(value.rack_id)
    out.compact_string(value.client_id)
    out.compact_string(value.client_host)
    out.compact_array(sorted(value.topic_names), out.compact_string)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(RecordKind.SHARE_MEMBER, group, member)), out.done())


def decode_share_member(data: bytes) -> Subscription:
    """Return the subscription in a record's value."""
    reader, _ = open_value(data, 0)
    rack_id, client_id, client_host = (
        reader.compact_nullable_string(),
        reader.compact_string(),
        reader.compact_string(),
    )
    names = frozenset(reader.compact_array(reader.compact_string))
    return Subscription(None, rack_id, client_id, client_host, names, None, -1, None)


def share_current_record(
    group: str, member: str, epoch: int, previous_epoch: int, assigned: Assignment
) -> StateRecord:
    """Return the record of what a share group member has."""
    out = Writer()
    out.i16(0)
    out.i32(epoch)
    out.i32(previous_epoch)
    out.i8(MemberState.STABLE)
    write_assignment(out, assigned)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(RecordKind.SHARE_CURRENT_MEMBER, group, member)), out.done())


def decode_share_current(data: bytes) -> tuple[int, int, Assignment]:
    """Return a member's epoch, the one before, and what it has."""
    reader, _ = open_value(data, 0)
    epoch, previous_epoch, _state = reader.i32(), reader.i32(), reader.i8()
    return epoch, previous_epoch, read_assignment(reader)


def shared_topics_record(group: str, topics: Mapping[UUID, SharedTopic]) -> StateRecord:
    """Return the record of the topics that a group shares."""
    out = Writer()
    out.i16(0)

    def topic(topic_id: UUID) -> None:
        out.uuid(topic_id)
        out.compact_string(topics[topic_id].name)
        out.compact_array(sorted(topics[topic_id].partitions), out.i32)
        out.no_tags()

    out.compact_array([], topic)  # being initialised
    out.compact_array(sorted(topics), topic)
    out.compact_array([], topic)  # being deleted
    out.no_tags()
    return StateRecord(encode_key(RecordKey(RecordKind.SHARED_TOPICS, group)), out.done())


def decode_shared_topics(data: bytes) -> dict[UUID, SharedTopic]:
    """Return the topics in a record's value."""
    reader, _ = open_value(data, 0)

    def topic() -> tuple[UUID, SharedTopic]:
        topic_id, name = reader.uuid(), reader.compact_string()
        partitions = frozenset(reader.compact_array(reader.i32))
        reader.skip_tags()
        return topic_id, SharedTopic(name, partitions)

    reader.compact_array(topic)
    return dict(reader.compact_array(topic))
