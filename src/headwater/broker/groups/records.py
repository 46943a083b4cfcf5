"""The records of `__consumer_offsets`, in Kafka's own layout, so that Kafka's tools read the topic.

A key starts with a 16-bit number that says what kind of record it is, a value with its schema's
version. Kafka's numbers, and the version written here:

    1  OffsetCommit                      value 3 (1 where the client set a retention time)
    2  GroupMetadata                     value 3; a classic group's last stable generation
    3  ConsumerGroupMetadata             value 0; a consumer group's epoch
    4  ConsumerGroupPartitionMetadata    value 0; topics and partition counts its assignment is for
    5  ConsumerGroupMemberMetadata       value 0; what a member subscribes to, and by which protocol
    6  ConsumerGroupTargetAssignmentMetadata  value 0; the epoch of the target assignment
    7  ConsumerGroupTargetAssignmentMember    value 0; what a member shall own
    8  ConsumerGroupCurrentMemberAssignment   value 0; what a member owns, and has yet to give up

10 to 15 are of share groups (`share_records`), and there is one of our own (1000), which Kafka's tools pass over:

    1000  an OffsetCommit that is part of a transaction, by the producer's id; values as of kind 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from uuid import UUID

from headwater.broker.groups.packing import CorruptGroupRecord, Reader, Writer
from headwater.broker.state import StateRecord

Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""


class RecordKind(IntEnum):
    """What a record is about."""

    OFFSET = 1
    GROUP = 2
    CONSUMER_GROUP = 3
    CONSUMER_PARTITIONS = 4
    CONSUMER_MEMBER = 5
    CONSUMER_TARGET_EPOCH = 6
    CONSUMER_TARGET_MEMBER = 7
    CONSUMER_CURRENT_MEMBER = 8
    SHARE_MEMBER = 10
    SHARE_GROUP = 11
    SHARE_TARGET_EPOCH = 12
    SHARE_TARGET_MEMBER = 13
    SHARE_CURRENT_MEMBER = 14
    SHARED_TOPICS = 15
    PENDING_OFFSET = 1000


_WITH_MEMBER = {
    RecordKind.CONSUMER_MEMBER,
    RecordKind.CONSUMER_TARGET_MEMBER,
    RecordKind.CONSUMER_CURRENT_MEMBER,
    RecordKind.SHARE_MEMBER,
    RecordKind.SHARE_TARGET_MEMBER,
    RecordKind.SHARE_CURRENT_MEMBER,
}
OF_SHARE_GROUPS = frozenset(range(RecordKind.SHARE_MEMBER, RecordKind.SHARED_TOPICS + 1))
"""The kinds that `share_records` reads and writes."""


_WITH_PARTITION = {RecordKind.OFFSET, RecordKind.PENDING_OFFSET}


_CLASSIC_TAG = 0
"""The tagged field of a member's subscription with what it told by the classic protocol."""


class MemberState(IntEnum):
    """Where a member of the consumer protocol is on its way to its target; Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True)
class RecordKey:
    """The decoded key of a record; fields that its kind does not have keep their defaults."""

    kind: RecordKind
    group: str
    member: str = ""
    topic: str = ""
    partition: int = -1
    producer_id: int = -1


@dataclass(frozen=True)
class CommittedOffset:
    """A committed offset and what was stored with it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


@dataclass(frozen=True)
class StoredMember:
    """A member of a classic group in its last stable generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True)
class StoredGroup:
    """A classic group's last stable, or empty, generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True)
class ClassicProtocols:
    """What a member of a consumer group that uses the classic protocol told in its JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Subscription:
    """What a member of a consumer group told about itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None
    """None for a member that uses the consumer protocol."""


@dataclass(frozen=True)
class TopicShape:
    """A subscribed topic as the assignment saw it."""

    topic_id: UUID
    partitions: int


@dataclass(frozen=True)
class CurrentAssignment:
    """What a member of the consumer protocol owns, at which epoch."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    pending_revocation: Assignment


def encode_key(key: RecordKey) -> bytes:
    """Return the bytes of a record's key."""
    out = Writer()
    out.i16(key.kind)
    out.string(key.group)
    if key.kind in _WITH_PARTITION:
        out.string(key.topic)
        out.i32(key.partition)
        if key.kind is RecordKind.PENDING_OFFSET:
            out.i64(key.producer_id)
    elif key.kind in _WITH_MEMBER:
        out.string(key.member)
    return out.done()


def decode_key(data: bytes) -> RecordKey | None:
    """Return the key in `data`, or None when its kind is not one of ours."""
    reader = Reader(data)
    try:
        kind = RecordKind(reader.i16())
    except ValueError:
        return None
    group = reader.string()
    if kind in _WITH_PARTITION:
        topic, partition = reader.string(), reader.i32()
        producer_id = reader.i64() if kind is RecordKind.PENDING_OFFSET else -1
        return RecordKey(kind, group, topic=topic, partition=partition, producer_id=producer_id)
    return RecordKey(kind, group, member=reader.string() if kind in _WITH_MEMBER else "")


def tombstone(kind: RecordKind, group: str, member: str = "") -> StateRecord:
    """Return the record that deletes what a group, or one of its members, has of `kind`."""
    return StateRecord(encode_key(RecordKey(kind, group, member)), None)


def offset_record(group: str, topic: str, partition: int, value: CommittedOffset | None) -> StateRecord:
    """Return the record of a committed offset, or of its deletion."""
    key = encode_key(RecordKey(RecordKind.OFFSET, group, topic=topic, partition=partition))
    return StateRecord(key, None if value is None else _encode_offset(value))


def pending_record(
    producer_id: int, group: str, topic: str, partition: int, value: CommittedOffset | None
) -> StateRecord:
    """Return the record of an offset that a transaction is about to commit, or of its end."""
    key = encode_key(
        RecordKey(RecordKind.PENDING_OFFSET, group, topic=topic, partition=partition, producer_id=producer_id)
    )
    return StateRecord(key, None if value is None else _encode_offset(value))


def _encode_offset(value: CommittedOffset) -> bytes:
    out = Writer()
    out.i16(3 if value.expire_ms is None else 1)
    out.i64(value.offset)
    if value.expire_ms is None:
        out.i32(value.leader_epoch)
    out.string(value.metadata)
    out.i64(value.commit_ms)
    if value.expire_ms is not None:
        out.i64(value.expire_ms)
    return out.done()


def decode_offset(data: bytes) -> CommittedOffset:
    """Return the committed offset in a record's value."""
    reader, version = open_value(data, 0, 1, 2, 3)
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.i64()
    expire_ms = reader.i64() if version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, None if expire_ms < 0 else expire_ms)


def group_record(group: str, value: StoredGroup) -> StateRecord:
    """Return the record of a classic group."""
    out = Writer()
    out.i16(3)
    out.string(value.protocol_type)
    out.i32(value.generation)
    out.string(value.protocol)
    out.string(value.leader)
    out.i64(value.state_ms)
    out.i32(len(value.members))
    for member in value.members:
        out.string(member.member_id)
        out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.i32(member.rebalance_timeout_ms)
        out.i32(member.session_timeout_ms)
        out.blob(member.subscription)
        out.blob(member.assignment)
    return StateRecord(encode_key(RecordKey(RecordKind.GROUP, group)), out.done())


def decode_group(data: bytes) -> StoredGroup:
    """Return the classic group in a record's value."""
    reader, _ = open_value(data, 3)

    def member() -> StoredMember:
        return StoredMember(
            reader.string(),
            reader.nullable_string(),
            reader.string(),
            reader.string(),
            reader.i32(),
            reader.i32(),
            reader.blob(),
            reader.blob(),
        )

    return StoredGroup(
        reader.string(),
        reader.i32(),
        reader.nullable_string(),
        reader.nullable_string(),
        reader.i64(),
        tuple(reader.array(member)),
    )


def epoch_record(kind: RecordKind, group: str, epoch: int) -> StateRecord:
    """Return the record of a consumer group's epoch, or of its target assignment's."""
    out = Writer()
    out.i16(0)
    out.i32(epoch)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(kind, group)), out.done())


def decode_epoch(data: bytes) -> int:
    """Return the epoch in a record's value."""
    reader, _ = open_value(data, 0)
    return reader.i32()


def partitions_record(group: str, topics: Mapping[str, TopicShape]) -> StateRecord:
    """Return the record of the topics that a consumer group's assignment is for."""
    out = Writer()
    out.i16(0)

    def topic(name: str) -> None:
        out.uuid(topics[name].topic_id)
        out.compact_string(name)
        out.i32(topics[name].partitions)
        out.uvarint(1)  # no racks
        out.no_tags()

    out.compact_array(sorted(topics), topic)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(RecordKind.CONSUMER_PARTITIONS, group)), out.done())


def decode_partitions(data: bytes) -> dict[str, TopicShape]:
    """Return the topics in a record's value."""
    reader, _ = open_value(data, 0)

    def rack() -> None:
        reader.i32()
        reader.compact_array(reader.compact_string)
        reader.skip_tags()

    def topic() -> tuple[str, TopicShape]:
        topic_id, name, partitions = reader.uuid(), reader.compact_string(), reader.i32()
        reader.compact_array(rack)
        reader.skip_tags()
        return name, TopicShape(topic_id, partitions)

    return dict(reader.compact_array(topic))


def member_record(group: str, member: str, value: Subscription) -> StateRecord:
    """Return the record of a consumer group member's subscription."""
    out = Writer()
    out.i16(0)
    out.compact_string(value.instance_id)
    out.compact_string(value.rack_id)
    out.compact_string(value.client_id)
    out.compact_string(value.client_host)
    out.compact_array(sorted(value.topic_names), out.compact_string)
    out.compact_string(value.topic_regex)
    out.i32(value.rebalance_timeout_ms)
    out.compact_string(value.server_assignor)
    out.tags({} if value.classic is None else {_CLASSIC_TAG: _encode_classic(value.classic)})
    return StateRecord(encode_key(RecordKey(RecordKind.CONSUMER_MEMBER, group, member)), out.done())


def _encode_classic(value: ClassicProtocols) -> bytes:
    out = Writer()
    out.i8(1)  # not null
    out.i32(value.session_timeout_ms)

    def protocol(item: tuple[str, bytes]) -> None:
        out.compact_string(item[0])
        out.compact_blob(item[1])
        out.no_tags()

    out.compact_array(value.protocols, protocol)
    out.no_tags()
    return out.done()


def _decode_classic(data: bytes) -> ClassicProtocols | None:
    reader = Reader(data)
    if reader.i8() == 0:
        return None

    def protocol() -> tuple[str, bytes]:
        item = reader.compact_string(), reader.compact_blob()
        reader.skip_tags()
        return item

    return ClassicProtocols(reader.i32(), tuple(reader.compact_array(protocol)))


def decode_member(data: bytes) -> Subscription:
    """Return the subscription in a record's value."""
    reader, _ = open_value(data, 0)
    subscription = Subscription(
        reader.compact_nullable_string(),
        reader.compact_nullable_string(),
        reader.compact_string(),
        reader.compact_string(),
        frozenset(reader.compact_array(reader.compact_string)),
        reader.compact_nullable_string(),
        reader.i32(),
        reader.compact_nullable_string(),
    )
    classic = reader.tags().get(_CLASSIC_TAG)
    return subscription if classic is None else replace(subscription, classic=_decode_classic(classic))


def target_record(
    group: str,
    member: str,
    assignment: Assignment,
    kind: RecordKind = RecordKind.CONSUMER_TARGET_MEMBER,
) -> StateRecord:
    """Return the record of what a member shall own."""
    out = Writer()
    out.i16(0)
    write_assignment(out, assignment)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(kind, group, member)), out.done())


def decode_target(data: bytes) -> Assignment:
    """Return the target assignment in a record's value."""
    reader, _ = open_value(data, 0)
    return read_assignment(reader)


def current_record(group: str, member: str, value: CurrentAssignment) -> StateRecord:
    """Return the record of what a consumer group member owns."""
    out = Writer()
    out.i16(0)
    out.i32(value.epoch)
    out.i32(value.previous_epoch)
    out.i8(value.state)
    write_assignment(out, value.assigned)
    write_assignment(out, value.pending_revocation)
    out.no_tags()
    return StateRecord(encode_key(RecordKey(RecordKind.CONSUMER_CURRENT_MEMBER, group, member)), out.done())


def decode_current(data: bytes) -> CurrentAssignment:
    """Return the current assignment in a record's value."""
    reader, _ = open_value(data, 0)
    epoch, previous = reader.i32(), reader.i32()
    try:
        state = MemberState(reader.i8())
    except ValueError as error:
        raise CorruptGroupRecord(f"a group member's state is none of Kafka's: {error}") from None
    return CurrentAssignment(epoch, previous, state, read_assignment(reader), read_assignment(reader))


def open_value(data: bytes, *versions: int) -> tuple[Reader, int]:
    """Return a reader of a record's value after its version, which is one of those given, and the version."""
    reader = Reader(data)
    version = reader.i16()
    if version not in versions:
        raise CorruptGroupRecord(f"a group record has version {version}, readable are {versions}")
    return reader, version


def write_assignment(out: Writer, assignment: Assignment) -> None:
    """Write partitions by topic."""

    def topic(item: tuple[UUID, Sequence[int]]) -> None:
        out.uuid(item[0])
        out.compact_array(item[1], out.i32)
        out.no_tags()

    out.compact_array([(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)], topic)


def read_assignment(reader: Reader) -> Assignment:
    """Read partitions by topic."""

    def topic() -> tuple[UUID, frozenset[int]]:
        item = reader.uuid(), frozenset(reader.compact_array(reader.i32))
        reader.skip_tags()
        return item

    return dict(reader.compact_array(topic))
