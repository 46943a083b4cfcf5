"""The records of share groups and share partitions."""

from __future__ import annotations

import contextlib
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups import records as group_records
from headwater.broker.groups import share_records
from headwater.broker.groups.packing import CorruptGroupRecord
from headwater.broker.groups.records import RecordKind, Subscription, TopicShape
from headwater.broker.groups.share_records import SharedTopic
from headwater.broker.share.in_flight import RecordState
from headwater.broker.share.records import (
    ShareKey,
    Snapshot,
    StateRun,
    decode_key,
    decode_snapshot,
    snapshot_record,
)

names = st.text(max_size=20)
i16 = st.integers(0, 2**15 - 1)
i32 = st.integers(0, 2**31 - 1)
i64 = st.integers(0, 2**63 - 1)
share_keys = st.builds(ShareKey, names, st.uuids(), i32)
runs = st.lists(st.builds(StateRun, i64, i64, st.sampled_from(RecordState), i16), max_size=4).map(tuple)
snapshots = st.builds(Snapshot, i32, i32, i64, i64, i64, runs, i32)
assignments = st.dictionaries(st.uuids(), st.frozensets(i32, min_size=1, max_size=5), max_size=4)


@given(share_keys, snapshots)
def test_snapshots_read_as_they_were_written(key: ShareKey, snapshot: Snapshot) -> None:
    record = snapshot_record(key, snapshot)
    assert record.value is not None
    assert (decode_key(record.key), decode_snapshot(record.value)) == (key, snapshot)
    gone = snapshot_record(key, None)
    assert (gone.key, gone.value) == (record.key, None)


def test_a_snapshot_is_laid_out_as_kafka_does() -> None:
    key = ShareKey("g", UUID(int=1), 2)
    run = StateRun(5, 9, RecordState.ACKNOWLEDGED, 1)
    record = snapshot_record(key, Snapshot(3, 4, 5, 6, 7, (run,), 8))
    assert record.key.hex() == "00000001670000000000000000000000000000000100000002"
    assert record.value is not None
    assert record.value.hex() == (
        "0000" "00000003" "00000004" "00000000" "0000000000000005" "0000000000000006" "0000000000000007"
        "02" "0000000000000005" "0000000000000009" "02" "0001" "00" "01" "00" "04" "00000008"
    )  # fmt: skip
    assert decode_key(b"\0\1" + record.key[2:]) is None  # an update, which is not written here


@given(st.binary(max_size=60))
def test_damage_is_said_to_be_damage(data: bytes) -> None:
    for read in (
        decode_snapshot,
        decode_key,
        share_records.decode_share_group,
        share_records.decode_share_member,
        share_records.decode_share_current,
        share_records.decode_shared_topics,
    ):
        with contextlib.suppress(CorruptGroupRecord):
            read(data)


@given(names, names, i32, st.integers(-(2**63), 2**63 - 1), assignments)
def test_group_records_read_as_they_were_written(
    group: str, member: str, epoch: int, topics_hash: int, assigned: dict[UUID, frozenset[int]]
) -> None:
    record = share_records.share_group_record(group, epoch, topics_hash)
    assert record.value is not None
    assert share_records.decode_share_group(record.value) == (epoch, topics_hash)
    record = share_records.share_current_record(group, member, epoch, epoch // 2, assigned)
    assert record.value is not None
    assert share_records.decode_share_current(record.value) == (epoch, epoch // 2, assigned)
    key = group_records.decode_key(record.key)
    assert key == group_records.RecordKey(RecordKind.SHARE_CURRENT_MEMBER, group, member)
    shared = {topic: SharedTopic(member, indexes) for topic, indexes in assigned.items()}
    record = share_records.shared_topics_record(group, shared)
    assert record.value is not None
    assert share_records.decode_shared_topics(record.value) == shared


@given(st.none() | names, names, names, st.frozensets(names, max_size=4))
def test_subscriptions_read_as_they_were_written(
    rack: str | None, client: str, host: str, topics: frozenset[str]
) -> None:
    wanted = Subscription(None, rack, client, host, topics, None, -1, None)
    record = share_records.share_member_record("g", "m", wanted)
    assert record.value is not None
    assert share_records.decode_share_member(record.value) == wanted


def test_the_hash_of_topics_differs_where_they_do() -> None:
    first, second = UUID(int=1), UUID(int=2)
    shapes = [
        {},
        {"t": TopicShape(first, 1)},
        {"t": TopicShape(second, 1)},
        {"t": TopicShape(first, 2)},
        {"t": TopicShape(first, 1), "u": TopicShape(second, 1)},
    ]
    assert len({share_records.shape_hash(each) for each in shapes}) == len(shapes)
    assert share_records.shape_hash(shapes[4]) == share_records.shape_hash(dict(reversed(shapes[4].items())))
