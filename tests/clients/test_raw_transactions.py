"""Transaction requests out of turn: producers that come back to a transaction that is still open."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .brokers import eventually, unique
from .raw import Raw, batch

pytestmark = pytest.mark.real

TRANSACTIONAL = 0x10


def init(raw: Raw, name: str, producer_id: int = -1, epoch: int = -1) -> tuple[int, int]:
    """Ask for a producer id, by one that says who it was or by a new one, until open transactions are aborted."""

    def ask() -> Any:
        fields = {"producer_id": producer_id, "producer_epoch": epoch}
        return raw.call("init_producer_id", 5, transactional_id=name, transaction_timeout=60_000, **fields)

    wait = (ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress)
    eventually(
        lambda: raw.call("find_coordinator", 2, key=name, key_type=1).error_code, lambda seen: not seen
    )
    answer = eventually(ask, lambda seen: bool(seen.error_code not in wait))
    assert answer.error_code == ErrorCode.none
    return int(answer.producer_id), int(answer.producer_epoch)


def write(raw: Raw, name: str, topic: str, producer: tuple[int, int], sequence: int = 0) -> ErrorCode:
    """Write a record in a transaction that it begins if need be."""
    records = batch(attributes=TRANSACTIONAL, producer=(*producer, sequence))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]

    def ask() -> ErrorCode:
        answer = raw.call("produce", 12, transactional_id=name, acks=-1, timeout=10_000, topic_data=data)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    return eventually(ask, lambda seen: seen != ErrorCode.concurrent_transactions)


def end(raw: Raw, name: str, producer: tuple[int, int], *, commit: bool) -> ErrorCode:
    producer_id, epoch = producer
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "committed": commit}
    return ErrorCode(raw.call("end_txn", 5, transactional_id=name, **fields).error_code)


def test_a_producer_that_says_who_it_was_goes_on_without_its_open_transaction(raw: Raw, topic: str) -> None:
    name = unique("txn")
    first = init(raw, name)
    assert write(raw, name, topic, first) == ErrorCode.none
    second = init(raw, name, *first)
    assert second == (first[0], first[1] + 1)
    assert write(raw, name, topic, first) == ErrorCode.invalid_producer_epoch
    assert write(raw, name, topic, second) == ErrorCode.none
    assert end(raw, name, second, commit=True) == ErrorCode.none


def test_a_new_producer_shuts_the_one_before_it_out(raw: Raw, topic: str) -> None:
    name = unique("txn")
    first = init(raw, name)
    assert write(raw, name, topic, first) == ErrorCode.none
    second = init(raw, name)
    assert second[1] > first[1]
    for commit in (True, False):
        assert end(raw, name, first, commit=commit) == ErrorCode.producer_fenced
    assert (
        raw.call(
            "init_producer_id",
            5,
            transactional_id=name,
            transaction_timeout=60_000,
            producer_id=first[0],
            producer_epoch=first[1],
        ).error_code
        == ErrorCode.producer_fenced
    )


def test_a_batch_that_comes_before_the_first_of_a_transaction_is_refused(raw: Raw, topic: str) -> None:
    name = unique("txn")
    producer = init(raw, name)
    assert write(raw, name, topic, producer, sequence=1) == ErrorCode.out_of_order_sequence_number
    assert write(raw, name, topic, producer) == ErrorCode.none
    assert write(raw, name, topic, producer, sequence=1) == ErrorCode.none
    assert end(raw, name, producer, commit=True) == ErrorCode.none
