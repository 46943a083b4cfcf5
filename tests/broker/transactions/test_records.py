"""The records of `__transaction_state`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups.packing import CorruptGroupRecord
from headwater.broker.transactions import TopicPartition, Transaction, TransactionState
from headwater.broker.transactions.records import decode, decode_key, encode, key_of, tombstone

IDS = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
TIMES = st.integers(-1, 2**62)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2**31 - 1)), max_size=6
)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    return Transaction(
        draw(st.text(min_size=1, max_size=20)),
        draw(IDS),
        draw(EPOCHS),
        draw(st.integers(1, 2**31 - 1)),
        state,
        frozenset() if state is TransactionState.EMPTY else draw(PARTITIONS),
        draw(TIMES),
        draw(TIMES),
        draw(EPOCHS),
        draw(IDS),
        draw(IDS),
        draw(st.sampled_from([0, 2])),
    )


@given(transactions())
def test_what_is_written_is_read(transaction: Transaction) -> None:
    record = encode(transaction)
    assert record.value is not None
    assert decode_key(record.key) == transaction.transactional_id
    assert decode(transaction.transactional_id, record.value) == transaction


@given(transactions(), st.data())
def test_a_record_that_is_cut_or_changed_never_reads_as_something_else_than_a_transaction(
    transaction: Transaction, data: st.DataObject
) -> None:
    value = encode(transaction).value
    assert value is not None
    damaged = bytearray(value[: data.draw(st.integers(0, len(value)))])
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptGroupRecord):
        assert isinstance(decode("x", bytes(damaged)), Transaction)


def test_the_bytes_are_kafkas() -> None:
    transaction = Transaction(
        "id",
        producer_id=7,
        epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        updated_ms=9,
        started_ms=8,
        client_version=2,
    )
    assert encode(transaction).key == b"\0\0\0\2id"
    assert encode(transaction).value == (
        b"\0\1"
        b"\0\0\0\0\0\0\0\7"
        b"\0\3"
        b"\0\0\xea\x60"
        b"\1"
        b"\2\2t\3\0\0\0\0\0\0\0\1\0"
        b"\0\0\0\0\0\0\0\x09"
        b"\0\0\0\0\0\0\0\x08"
        b"\1\2\2\0\2"
    )


def test_version_0_is_read() -> None:
    value = (
        b"\0\0"
        b"\0\0\0\0\0\0\0\7"
        b"\0\3"
        b"\0\0\xea\x60"
        b"\4"
        b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5"
        b"\0\0\0\0\0\0\0\x09"
        b"\0\0\0\0\0\0\0\x08"
    )
    read = decode("x", value)
    assert (read.producer_id, read.epoch, read.state) == (7, 3, TransactionState.COMPLETE_COMMIT)
    assert read.partitions == {TopicPartition("t", 5)}


def test_versions_of_the_future_are_told_from_damage() -> None:
    assert decode_key(b"\0\7whatever") is None
    assert tombstone("x") == (key_of("x"), None)
    with pytest.raises(CorruptGroupRecord, match="version 9"):
        decode("x", b"\0\x09")
