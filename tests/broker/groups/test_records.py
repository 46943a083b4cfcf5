from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups import records
from headwater.broker.groups.packing import CorruptGroupRecord
from headwater.broker.groups.records import (
    ClassicProtocols,
    CommittedOffset,
    CurrentAssignment,
    MemberState,
    RecordKey,
    RecordKind,
    StoredGroup,
    StoredMember,
    Subscription,
    TopicShape,
)
from headwater.broker.state import StateRecord

names = st.text(max_size=20)
optional = st.none() | names
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
assignments = st.dictionaries(
    st.uuids(), st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=5), max_size=4
)

keys = st.one_of(
    st.builds(RecordKey, st.just(RecordKind.OFFSET), names, topic=names, partition=i32),
    st.builds(
        RecordKey,
        st.sampled_from([RecordKind.GROUP, RecordKind.CONSUMER_GROUP, RecordKind.CONSUMER_PARTITIONS]),
        names,
    ),
    st.builds(
        RecordKey,
        st.sampled_from([RecordKind.CONSUMER_MEMBER, RecordKind.CONSUMER_CURRENT_MEMBER]),
        names,
        names,
    ),
)
offsets = st.builds(CommittedOffset, i64, st.just(-1), names, i64, st.none() | st.integers(0, 2**63 - 1))
members = st.builds(
    StoredMember, names, optional, names, names, i32, i32, st.binary(max_size=30), st.binary(max_size=30)
)
groups = st.builds(StoredGroup, names, i32, optional, optional, i64, st.lists(members, max_size=3).map(tuple))
classic = st.builds(
    ClassicProtocols, i32, st.lists(st.tuples(names, st.binary(max_size=30)), max_size=3).map(tuple)
)
subscriptions = st.builds(
    Subscription,
    optional,
    optional,
    names,
    names,
    st.frozensets(names, max_size=4),
    optional,
    i32,
    optional,
    st.none() | classic,
)
currents = st.builds(CurrentAssignment, i32, i32, st.sampled_from(MemberState), assignments, assignments)
KAFKAS_CLASSIC_MEMBER = bytes.fromhex(
    "00000269000263032f6802027400000003e8000100120100001e61020672616e6765040102030000"
)
"""What Kafka 4.3.0 writes of a member of a consumer group that uses the classic protocol."""

shapes = st.dictionaries(names, st.builds(TopicShape, st.uuids(), i32), max_size=4)


@given(keys)
def test_keys_round_trip(key: RecordKey) -> None:
    assert records.decode_key(records.encode_key(key)) == key


@given(offsets)
def test_offsets_round_trip(value: CommittedOffset) -> None:
    record = records.offset_record("g", "t", 3, value)
    assert record.value is not None
    assert records.decode_offset(record.value) == value


@given(groups)
def test_groups_round_trip(value: StoredGroup) -> None:
    record = records.group_record("g", value)
    assert record.value is not None
    assert records.decode_group(record.value) == value


@given(subscriptions, currents, assignments, shapes)
def test_consumer_records_round_trip(
    wanted: Subscription, current: CurrentAssignment, target: dict[UUID, Any], topics: dict[str, TopicShape]
) -> None:
    pairs: list[tuple[StateRecord, Callable[[bytes], object], object]] = [
        (records.member_record("g", "m", wanted), records.decode_member, wanted),
        (records.current_record("g", "m", current), records.decode_current, current),
        (records.target_record("g", "m", target), records.decode_target, target),
        (records.partitions_record("g", topics), records.decode_partitions, topics),
        (records.epoch_record(RecordKind.CONSUMER_GROUP, "g", 7), records.decode_epoch, 7),
    ]
    for record, decode, value in pairs:
        assert record.value is not None
        assert decode(record.value) == value


@given(
    st.sampled_from(
        [
            records.decode_offset,
            records.decode_group,
            records.decode_member,
            records.decode_current,
            records.decode_target,
            records.decode_partitions,
            records.decode_epoch,
        ]
    ),
    st.sampled_from([b"\0\0", b"\0\3"]) | st.just(b""),
    st.binary(max_size=60),
)
def test_any_bytes_are_read_or_refused(decode: Callable[[bytes], object], head: bytes, rest: bytes) -> None:
    with contextlib.suppress(CorruptGroupRecord):
        decode(head + rest)


def test_the_layout_is_kafkas() -> None:
    record = records.offset_record("grp", "top", 2, CommittedOffset(300, 5, "m", 1000))
    assert record.key == b"\0\1" + b"\0\3grp" + b"\0\3top" + b"\0\0\0\2"
    assert record.value == (
        b"\0\3" + (300).to_bytes(8, "big") + b"\0\0\0\5" + b"\0\1m" + (1000).to_bytes(8, "big")
    )
    kept = records.offset_record("grp", "top", 2, CommittedOffset(300, -1, "m", 1000, 2000))
    assert kept.value == (
        b"\0\1" + (300).to_bytes(8, "big") + b"\0\1m" + (1000).to_bytes(8, "big") + (2000).to_bytes(8, "big")
    )
    group = records.group_record("grp", StoredGroup("consumer", 4, "range", None, 9, ()))
    assert group.key == b"\0\2" + b"\0\3grp"
    assert group.value == (
        b"\0\3"
        + b"\0\x08consumer"
        + b"\0\0\0\4"
        + b"\0\5range"
        + b"\xff\xff"
        + (9).to_bytes(8, "big")
        + bytes(4)
    )
    epoch = records.epoch_record(RecordKind.CONSUMER_GROUP, "grp", 4)
    assert epoch == (b"\0\3" + b"\0\3grp", b"\0\0" + b"\0\0\0\4" + b"\0")
    topic = UUID(int=1)
    target = records.target_record("grp", "mem", {topic: frozenset({1, 0})})
    assert target.key == b"\0\7" + b"\0\3grp" + b"\0\3mem"
    assert target.value == (b"\0\0" + b"\2" + topic.bytes + b"\3" + b"\0\0\0\0" + b"\0\0\0\1" + b"\0" + b"\0")


def test_a_kind_from_the_future_is_passed_over() -> None:
    assert records.decode_key(b"\0\x63anything") is None


def test_a_value_from_the_future_is_refused() -> None:
    with pytest.raises(CorruptGroupRecord, match="version 9"):
        records.decode_group(b"\0\x09")


def test_a_member_that_uses_the_classic_protocol_is_stored_as_kafka_stores_it() -> None:
    classic_protocol = ClassicProtocols(7777, (("range", b"\1\2\3"),))
    member = Subscription("i", None, "c", "/h", frozenset({"t"}), None, 1000, None, classic_protocol)
    assert records.member_record("g", "m", member).value == KAFKAS_CLASSIC_MEMBER
    assert records.decode_member(KAFKAS_CLASSIC_MEMBER) == member
    null = KAFKAS_CLASSIC_MEMBER[:20] + bytes.fromhex("01000100")
    assert records.decode_member(null).classic is None, "Kafka says so explicitly"
