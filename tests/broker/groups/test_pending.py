"""Offsets that are committed in transactions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups import GroupCoordinator, Moment, OffsetCommit, PartitionCommit
from headwater.broker.groups.records import CommittedOffset, decode_key, pending_record
from headwater.broker.state import StateRecord
from headwater.core.errors import ErrorCode

from .harness import Harness

AT = Moment(1000, 1_000_000)


def commit(h: Harness, producer_id: int, offset: int, *, group: str = "g", partition: int = 0) -> None:
    request = OffsetCommit(group, (PartitionCommit("t", partition, offset),))
    out = h.groups.commit_transactional(AT, request, producer_id)
    assert out.reply == [ErrorCode.none]
    apply(h.groups, out.records)


def apply(groups: GroupCoordinator, records: list[StateRecord]) -> None:
    for record in records:
        groups.replay(record)


def end(h: Harness, producer_id: int, *, commit: bool) -> None:
    apply(h.groups, h.groups.end_transaction(producer_id, commit=commit).records)


def stored(h: Harness, group: str = "g", partition: int = 0) -> int | None:
    value = h.groups.fetch_offset(group, "t", partition)
    return None if value is None else value.offset


def test_pending_offsets_take_effect_when_the_transaction_commits() -> None:
    h = Harness()
    commit(h, 7, 42)
    assert stored(h) is None
    assert h.groups.pending.has("g", "t", 0)
    end(h, 7, commit=True)
    assert stored(h) == 42
    assert not h.groups.pending.has("g", "t", 0)


def test_pending_offsets_vanish_when_it_aborts() -> None:
    h = Harness()
    commit(h, 7, 1)
    end(h, 7, commit=True)
    commit(h, 7, 2)
    end(h, 7, commit=False)
    assert stored(h) == 1
    assert not len(h.groups.pending)


def test_each_producer_ends_its_own() -> None:
    h = Harness()
    commit(h, 7, 70)
    commit(h, 8, 80)
    commit(h, 8, 81, group="other")
    end(h, 7, commit=False)
    assert h.groups.pending.has("g", "t", 0)
    end(h, 8, commit=True)
    assert (stored(h), stored(h, "other")) == (80, 81)


def test_an_end_that_a_crash_cut_short_is_done_again() -> None:
    h = Harness()
    for partition in range(3):
        commit(h, 7, 10 + partition, partition=partition)
    records = h.groups.end_transaction(7, commit=True).records
    apply(h.groups, records[:3])
    end(h, 7, commit=True)
    assert [stored(h, partition=p) for p in range(3)] == [10, 11, 12]
    assert not len(h.groups.pending)


def test_a_deleted_group_or_topic_takes_its_pending_offsets_along() -> None:
    h = Harness()
    commit(h, 7, 1)
    commit(h, 7, 2, group="other")
    apply(h.groups, h.groups.delete_groups(["g"]).records)
    assert not h.groups.pending.has_group("g")
    apply(h.groups, h.groups.topics_deleted(["t"]).records)
    assert not len(h.groups.pending)
    end(h, 7, commit=True)
    assert (stored(h), stored(h, "other")) == (None, None)


@given(
    st.integers(0, 2**63 - 1),
    st.text(max_size=9),
    st.text(min_size=1, max_size=9),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_records_name_the_producer(
    producer_id: int, group: str, topic: str, partition: int, offset: int
) -> None:
    record = pending_record(producer_id, group, topic, partition, CommittedOffset(offset, -1, "m", 5))
    key = decode_key(record.key)
    assert key is not None
    assert (key.producer_id, key.group, key.topic, key.partition) == (producer_id, group, topic, partition)
    h = Harness()
    h.groups.replay(record)
    [tombstone] = h.groups.end_transaction(producer_id, commit=False).records
    assert tombstone == (record.key, None)
