"""What consumers of the classic protocol tell each other, which the broker reads where it has to take part.

Members of protocol type `consumer` embed a subscription in JoinGroup, and get an assignment from SyncGroup: opaque
bytes to the coordinator of a classic group, and all that it knows of a member once the group is of the consumer
protocol. Both begin with a version and grow at their end, so a newer one than is known reads as the newest known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.broker.groups.packing import CorruptGroupRecord, Reader, Writer
from headwater.broker.groups.records import Assignment
from headwater.broker.groups.subscriptions import TopicsView

_NEWEST = 3


@dataclass(frozen=True)
class EmbeddedSubscription:
    """A ConsumerProtocolSubscription: the topics that a consumer wants, and what it still owns of the last ones."""

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None = None


def decode_subscription(data: bytes) -> EmbeddedSubscription:
    """Return the subscription in a member's metadata, or raise `CorruptGroupRecord`."""
    reader, version = _open(data)
    topics = frozenset(reader.array(reader.string))
    reader.nullable_blob()
    owned = _read_partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.i32()  # the generation that it is owned since
    return EmbeddedSubscription(topics, owned, reader.nullable_string() if version >= 3 else None)


def decode_assignment(data: bytes) -> dict[str, frozenset[int]]:
    """Return the partitions by topic in a member's assignment, or raise `CorruptGroupRecord`."""
    return _read_partitions(_open(data)[0]) if data else {}


def has_user_data(data: bytes) -> bool:
    """Return whether an assignment holds more than partitions: what an assignor tells its members."""
    if not data:
        return False
    reader, _ = _open(data)
    _read_partitions(reader)
    return bool(reader.nullable_blob())


def encode_assignment(metadata: bytes, assignment: Mapping[str, frozenset[int]]) -> bytes:
    """Return an assignment, in the version of the subscription that it answers."""
    out = Writer()
    out.i16(min(Reader(metadata).i16(), _NEWEST))
    out.i32(len(assignment))
    for topic in sorted(assignment):
        out.string(topic)
        out.i32(len(assignment[topic]))
        for partition in sorted(assignment[topic]):
            out.i32(partition)
    out.i32(-1)  # no data of an assignor's own
    return out.done()


def by_id(partitions: Mapping[str, frozenset[int]], topics: TopicsView) -> Assignment:
    """Return partitions by the ids of their topics, without those that do not exist."""
    result: dict[UUID, frozenset[int]] = {}
    for name, indexes in partitions.items():
        topic = topics.by_name.get(name)
        known = frozenset() if topic is None else indexes & frozenset(range(topic.partitions))
        if topic is not None and known:
            result[topic.id] = known
    return result


def by_name(assignment: Assignment, topics: TopicsView) -> dict[str, frozenset[int]]:
    """Return partitions by the names of their topics, without those that do not exist."""
    return {
        topics.by_id[topic_id].name: indexes
        for topic_id, indexes in assignment.items()
        if topic_id in topics.by_id
    }


def _open(data: bytes) -> tuple[Reader, int]:
    reader = Reader(data)
    version = reader.i16()
    if version < 0:
        raise CorruptGroupRecord(f"a consumer's metadata has version {version}")
    return reader, version


def _read_partitions(reader: Reader) -> dict[str, frozenset[int]]:
    def topic() -> tuple[str, frozenset[int]]:
        return reader.string(), frozenset(reader.array(reader.i32))

    result: dict[str, frozenset[int]] = {}
    for name, indexes in reader.array(topic):
        result[name] = result.get(name, frozenset()) | indexes
    return result
