"""The transaction coordinator's answers, one request at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from headwater.broker.transactions import ProducerIdentity, TopicPartition, TransactionState
from headwater.broker.transactions.records import MAX_EPOCH
from headwater.core.errors import ApiError, ErrorCode

from .harness import P0, P1, TIMEOUT_MS, Harness


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_a_new_id_starts_at_epoch_0_and_rises_with_every_init(h: Harness) -> None:
    first = h.begin()
    assert first.epoch == 0
    assert h.begin() == ProducerIdentity(first.producer_id, 1)
    assert h.begin("y").producer_id != first.producer_id


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(h: Harness, timeout_ms: int) -> None:
    assert refused(partial(h.init, timeout_ms=timeout_ms)) is ErrorCode.invalid_transaction_timeout


@pytest.mark.parametrize("name", ["", "x" * 40_000])
def test_an_id_that_no_record_holds_is_refused(h: Harness, name: str) -> None:
    assert refused(partial(h.init, name)) is ErrorCode.invalid_request


def test_a_transaction_commits_and_the_epoch_rises(h: Harness) -> None:
    producer = h.begin()
    h.add(producer, P0)
    h.add(producer, P1)
    assert h.state() is TransactionState.ONGOING
    out = h.end(producer, commit=True)
    assert out.reply.producer == ProducerIdentity(producer.producer_id, 1)
    (ending,) = out.endings
    assert (ending.commit, ending.partitions) == (True, (P0, P1))
    assert ending.producer.epoch == 1, "the marker carries the new epoch, which fences the old one"
    assert h.state() is TransactionState.PREPARE_COMMIT
    h.finish(out.endings)
    assert h.state() is TransactionState.COMPLETE_COMMIT
    assert h.transaction.partitions == frozenset()


def test_before_protocol_v2_the_epoch_stays(h: Harness) -> None:
    producer = h.begin()
    for commit in (True, False):
        h.add(producer, version=0)
        assert h.end_whole(producer, commit=commit, bumps=False) == producer


def test_an_end_that_is_repeated_gets_the_same_answer(h: Harness) -> None:
    producer = h.begin()
    for commit in (True, False):
        h.add(producer)
        out = h.end(producer, commit=commit)
        assert refused(partial(h.end, producer, commit=commit)) is ErrorCode.concurrent_transactions
        assert refused(partial(h.end, producer, commit=not commit)) is ErrorCode.invalid_txn_state
        h.finish(out.endings)
        again = h.end(producer, commit=commit)
        assert again.reply == out.reply
        assert not again.records
        assert not again.endings
        assert refused(partial(h.end, producer, commit=not commit)) is ErrorCode.invalid_txn_state
        producer = out.reply.producer


def test_before_v2_a_repeated_end_gets_the_same_answer(h: Harness) -> None:
    producer = h.begin()
    h.add(producer, version=0)
    out = h.end(producer, commit=True, bumps=False)
    again = partial(h.end, producer, bumps=False)
    assert refused(partial(again, commit=True)) is ErrorCode.concurrent_transactions
    assert refused(partial(again, commit=False)) is ErrorCode.invalid_txn_state
    h.finish(out.endings)
    assert again(commit=True).reply.producer == producer
    assert refused(partial(again, commit=False)) is ErrorCode.invalid_txn_state


def test_a_commit_of_nothing_is_refused_and_an_abort_of_nothing_raises_the_epoch(h: Harness) -> None:
    producer = h.begin()
    assert refused(partial(h.end, producer, commit=True)) is ErrorCode.invalid_txn_state
    raised = h.end_whole(producer, commit=False)
    assert raised.epoch == producer.epoch + 1
    assert refused(partial(h.end, raised, commit=True)) is ErrorCode.invalid_txn_state
    assert h.end_whole(raised, commit=False).epoch == raised.epoch + 1
    assert refused(partial(h.end, raised, commit=False, bumps=False)) is ErrorCode.producer_fenced


def test_a_delayed_request_of_an_earlier_transaction_is_fenced(h: Harness) -> None:
    first = h.begin()
    h.add(first)
    second = h.end_whole(first, commit=True)
    h.add(second)
    assert refused(partial(h.add, first)) is ErrorCode.producer_fenced
    assert refused(partial(h.end, first, commit=True)) is ErrorCode.producer_fenced
    assert refused(partial(h.end, first, commit=False)) is ErrorCode.producer_fenced
    assert refused(partial(h.coordinator.verify, "x", first, P0)) is ErrorCode.producer_fenced
    assert h.state() is TransactionState.ONGOING


def test_who_is_not_the_producer_is_refused(h: Harness) -> None:
    producer = h.begin()
    other = ProducerIdentity(producer.producer_id + 1, producer.epoch)
    assert refused(partial(h.add, other)) is ErrorCode.invalid_producer_id_mapping
    assert refused(partial(h.end, other, commit=True)) is ErrorCode.invalid_producer_id_mapping
    assert refused(partial(h.end, other, commit=True, bumps=False)) is ErrorCode.invalid_producer_id_mapping
    assert refused(partial(h.coordinator.verify, "z", producer, P0)) is ErrorCode.invalid_producer_id_mapping


def test_a_partition_that_was_not_added_is_not_part_of_it(h: Harness) -> None:
    producer = h.begin()
    h.add(producer, P0)
    h.coordinator.verify("x", producer, P0)
    assert refused(partial(h.coordinator.verify, "x", producer, P1)) is ErrorCode.transaction_abortable


def test_nothing_is_added_while_the_markers_are_written(h: Harness) -> None:
    producer = h.begin()
    h.add(producer)
    following = h.end(producer, commit=True).reply.producer
    assert refused(partial(h.add, following)) is ErrorCode.concurrent_transactions
    assert refused(partial(h.coordinator.verify, "x", following, P0)) is ErrorCode.concurrent_transactions
    assert refused(h.init) is ErrorCode.concurrent_transactions


def test_init_aborts_an_open_transaction_and_fences_its_producer(h: Harness) -> None:
    first = h.begin()
    h.add(first)
    out = h.init()
    assert out.reply.error is ErrorCode.concurrent_transactions
    (ending,) = out.endings
    assert not ending.commit
    assert ending.producer.epoch > first.epoch
    h.finish(out.endings)
    second = h.begin()
    assert second.epoch > ending.producer.epoch
    for commit in (True, False):
        assert refused(partial(h.end, first, commit=commit)) is ErrorCode.producer_fenced


def time_out(h: Harness) -> None:
    """Let the open transaction take too long."""
    h.now_ms += TIMEOUT_MS + 1
    out = h.coordinator.timed_out(h.now_ms)
    h.apply(out.records)
    h.finish(out.endings)
    assert h.state() is TransactionState.COMPLETE_ABORT


def test_a_producer_whose_transaction_timed_out_aborts_and_goes_on(h: Harness) -> None:
    first = h.begin()
    h.add(first)
    time_out(h)
    assert refused(partial(h.add, first)) is ErrorCode.producer_fenced
    assert refused(partial(h.end, first, commit=True)) is ErrorCode.invalid_txn_state
    assert refused(partial(h.end, first, commit=False, bumps=False)) is ErrorCode.producer_fenced
    second = h.end(first, commit=False).reply.producer
    assert second.epoch == first.epoch + 1
    h.add(second)
    assert h.end_whole(second, commit=True).epoch == second.epoch + 1


def test_a_producer_that_says_who_it_was_is_rid_of_its_open_transaction(h: Harness) -> None:
    first = h.begin()
    h.add(first)
    out = h.init(expected=first)
    assert out.reply.error is ErrorCode.concurrent_transactions
    h.finish(out.endings)
    second = h.init(expected=first).reply.producer
    assert second == ProducerIdentity(first.producer_id, first.epoch + 1)
    assert out.endings[0].producer == second
    h.add(second)
    time_out(h)
    assert h.init(expected=second).reply.producer.epoch == second.epoch + 1


def test_a_producer_that_times_out_at_its_last_epoch_goes_on_under_a_new_id(h: Harness) -> None:
    last = at_epoch(h, MAX_EPOCH - 1)
    h.add(last)
    time_out(h)
    assert refused(partial(h.end, last, commit=False)) is ErrorCode.producer_fenced
    following = h.init(expected=last).reply.producer
    assert following.producer_id != last.producer_id
    assert following.epoch == 0
    assert h.init(expected=last).reply.producer == following, "a retry"


def test_a_transaction_is_aborted_when_its_time_is_over_and_not_before(h: Harness) -> None:
    producer = h.begin()
    h.add(producer)
    h.now_ms += TIMEOUT_MS
    assert not h.coordinator.timed_out(h.now_ms).records
    h.add(producer, P1)
    h.restart()
    h.now_ms += 1
    out = h.coordinator.timed_out(h.now_ms)
    assert [ending.partitions for ending in out.endings] == [(P0, P1)]


def test_a_producer_that_comes_back_keeps_its_place(h: Harness) -> None:
    producer = h.begin()
    raised = h.init(expected=producer).reply.producer
    assert raised.epoch == producer.epoch + 1
    assert h.init(expected=producer).reply.producer == raised, "a retry whose answer was lost"
    h.restart()
    assert h.init(expected=producer).reply.producer == raised
    h.begin()
    assert refused(partial(h.init, expected=raised)) is ErrorCode.producer_fenced
    stranger = ProducerIdentity(producer.producer_id + 7, 0)
    assert refused(partial(h.init, expected=stranger)) is ErrorCode.producer_fenced


def test_a_producer_of_an_id_that_expired_gets_a_new_one(h: Harness) -> None:
    producer = h.begin()
    h.now_ms += 604_800_000
    h.apply(h.coordinator.expired(h.now_ms))
    assert h.coordinator.transactions == {}
    again = h.init(expected=producer).reply.producer
    assert again.producer_id != producer.producer_id
    assert again.epoch == 0


def test_only_what_is_idle_expires(h: Harness) -> None:
    producer = h.begin()
    h.add(producer)
    h.now_ms += 604_800_000
    assert h.coordinator.expired(h.now_ms) == []
    out = h.end(producer, commit=True)
    h.now_ms += 604_800_000
    assert h.coordinator.expired(h.now_ms) == []
    h.finish(out.endings)
    assert h.coordinator.expired(h.now_ms - 1) == []
    assert h.coordinator.expired(h.now_ms + 604_800_000) != []


def at_epoch(h: Harness, epoch: int) -> ProducerIdentity:
    producer = h.begin()
    h.put(replace(h.transaction, epoch=epoch))
    return producer._replace(epoch=epoch)


def test_the_last_epoch_is_followed_by_a_new_producer_id(h: Harness) -> None:
    last = at_epoch(h, MAX_EPOCH - 1)
    h.add(last)
    out = h.end(last, commit=True)
    (ending,) = out.endings
    assert ending.producer == ProducerIdentity(last.producer_id, MAX_EPOCH)
    h.finish(out.endings)
    following = out.reply.producer
    assert following.producer_id != last.producer_id
    assert following.epoch == 0
    assert h.end(last, commit=True).reply.producer == following, "a retry"
    h.add(following)
    assert refused(partial(h.end, last, commit=True)) is ErrorCode.producer_fenced
    assert h.end_whole(following, commit=True).epoch == 1


def test_init_with_no_epoch_left_gives_a_new_producer_id(h: Harness) -> None:
    last = at_epoch(h, MAX_EPOCH - 1)
    following = h.init(expected=last).reply.producer
    assert following.producer_id != last.producer_id
    assert following.epoch == 0
    assert h.init(expected=last).reply.producer == following, "a retry"


@pytest.mark.parametrize("epoch", [MAX_EPOCH - 1, MAX_EPOCH - 2])
def test_a_producer_at_its_last_epochs_can_still_be_fenced(h: Harness, epoch: int) -> None:
    last = at_epoch(h, epoch)
    h.add(last)
    out = h.init()
    (ending,) = out.endings
    assert ending.producer == ProducerIdentity(last.producer_id, epoch + 1)
    h.finish(out.endings)
    assert h.begin().producer_id != last.producer_id


def test_what_was_decided_is_finished_after_a_restart(h: Harness) -> None:
    producer = h.begin()
    h.add(producer)
    out = h.end(producer, commit=True)
    h.restart()
    assert h.coordinator.decided() == out.endings
    h.finish(h.coordinator.decided())
    assert h.state() is TransactionState.COMPLETE_COMMIT
    assert h.coordinator.decided() == []
    assert h.coordinator.complete(h.now_ms, out.endings[0]) == [], "once is enough"


def test_a_partition_that_knows_more_is_taken_in(h: Harness) -> None:
    producer = h.begin()
    kept = len(h.log)
    h.add(producer, P0)
    h.restart(kept)
    assert h.state() is TransactionState.EMPTY
    h.apply(h.coordinator.adopt(h.now_ms, producer, P0) or [])
    assert h.state() is TransactionState.ONGOING
    assert h.coordinator.adopt(h.now_ms, producer, P0) == []
    assert h.coordinator.adopt(h.now_ms, producer._replace(epoch=7), P1) is None
    assert h.coordinator.adopt(h.now_ms, ProducerIdentity(99_999, 0), P1) is None


def test_a_crash_that_loses_the_end_of_a_transaction_keeps_it_apart_from_the_next() -> None:
    h = Harness()
    producer = h.begin()
    h.add(producer, P0)
    decided = h.end(producer, commit=True)
    on_disk = len(h.log)
    h.finish(decided.endings)
    h.add(decided.reply.producer, P0, P1)
    h.restart(
        on_disk
    )  # the partitions kept what the next transaction wrote, this log did not keep its beginning
    for place in (P0, P1):
        h.apply(h.coordinator.adopt(h.now_ms, decided.reply.producer, place) or [])
    assert h.coordinator.decided() == [], "the commit would take in what nobody committed"
    assert h.state() is TransactionState.ONGOING
    assert h.transaction.partitions == {P0, P1}
    assert h.end(decided.reply.producer, commit=False).endings[0].commit is False


def test_partitions_of_any_topic_take_part(h: Harness) -> None:
    producer = h.begin()
    partitions = [TopicPartition(f"topic-{n % 3}", n) for n in range(10)]
    h.add(producer, *partitions)
    h.restart()
    assert h.transaction.partitions == frozenset(partitions)
