"""What becomes of records that members of a share group take, one case at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.broker.share.partition import Ack
from headwater.broker.share.taker import Acquired
from headwater.core.errors import ApiError, ErrorCode

from .harness import ACCEPT, GAP, KEY, REJECT, RELEASE, RENEW, Harness


def test_members_take_turns_and_what_is_accepted_is_done() -> None:
    h = Harness()
    assert h.fetch("a", (0, 4), (5, 9), most=3) == [Acquired(0, 4, 1)]
    assert h.fetch("b", (0, 4), (5, 9)) == [Acquired(5, 9, 1)]
    assert h.fetch("c", (0, 4), (5, 9)) == []
    h.say("b", (5, 9, ACCEPT))
    assert (h.partition.start_offset, h.partition.complete) == (0, 5)
    h.say("a", (0, 4, ACCEPT))
    assert (h.partition.start_offset, h.partition.complete) == (10, 0)
    assert h.partition.next_offset() == 10


def test_what_is_released_comes_again_and_what_is_rejected_does_not() -> None:
    h = Harness()
    h.fetch("a", (0, 5))
    h.say("a", (0, 5, [RELEASE, ACCEPT, REJECT, RELEASE, RELEASE, GAP]))
    assert h.fetch("b", (0, 5)) == [Acquired(0, 0, 2), Acquired(3, 4, 2)]
    h.say("b", (0, 0, ACCEPT))
    assert h.partition.start_offset == 3
    h.say("b", (3, 4, ACCEPT))
    assert h.partition.start_offset == 6


def test_large_fetches_are_split_into_batches_of_the_size_that_the_member_likes() -> None:
    h = Harness()
    batches = [(first, first + 1) for first in range(0, 12, 2)]
    assert h.fetch("a", *batches, batch_size=4) == [
        Acquired(0, 3, 1),
        Acquired(4, 7, 1),
        Acquired(8, 11, 1),
    ]


def test_an_exact_limit_leaves_the_rest_of_the_batch_to_others() -> None:
    h = Harness()
    assert h.fetch("a", (0, 9), most=3, exact=True) == [Acquired(0, 2, 1)]
    assert h.fetch("b", (0, 9), most=4, exact=True) == [Acquired(3, 6, 1)]
    h.say("a", (0, 2, RELEASE))
    assert h.fetch("b", (0, 9), most=2, exact=True) == [Acquired(0, 1, 2)]
    assert h.fetch("b", (0, 9), most=9, exact=True) == [Acquired(2, 2, 2), Acquired(7, 9, 1)]


def test_a_lock_ends_and_the_record_goes_to_another() -> None:
    h = Harness()
    h.fetch("a", (0, 2))
    h.pass_time(999)
    assert h.fetch("b", (0, 2)) == []
    h.pass_time(1)
    assert h.fetch("b", (0, 2)) == [Acquired(0, 2, 2)]
    assert h.refused("a", (0, 2, ACCEPT)) == "invalid_record_state"
    h.say("b", (0, 2, ACCEPT))


def test_renewing_gives_more_time() -> None:
    h = Harness()
    h.fetch("a", (0, 3))
    h.pass_time(600)
    h.say("a", (0, 3, [RENEW, RENEW, ACCEPT, RENEW]))
    h.pass_time(600)
    assert h.fetch("b", (0, 3)) == []
    h.pass_time(400)
    assert h.fetch("b", (0, 3)) == [Acquired(0, 1, 2), Acquired(3, 3, 2)]


def test_where_renewing_is_switched_off_nothing_of_the_words_counts() -> None:
    h = Harness()
    h.fetch("a", (0, 3))
    config = replace(h.shares.config("g"), renews=False)
    words = [Ack(0, 1, (ACCEPT,)), Ack(2, 3, (RENEW,))]
    with pytest.raises(ApiError, match="not enabled") as caught:
        h.partition.acknowledge("a", words, config, h.now_ms)
    assert caught.value.code is ErrorCode.invalid_record_state
    h.say("a", (0, 3, ACCEPT))


def test_near_its_limit_a_batch_is_delivered_in_smaller_parts_and_a_record_alone_at_last() -> None:
    h = Harness()
    for deliveries in (1, 2, 3):
        assert h.fetch("a", (0, 7)) == [Acquired(0, 7, deliveries)]
        h.say("a", (0, 7, RELEASE))
    assert h.fetch("a", (0, 7)) == [Acquired(0, 3, 4)]
    h.say("a", (0, 3, RELEASE))
    assert h.fetch("a", (0, 7)) == [Acquired(0, 0, 5)]
    h.say("a", (0, 0, RELEASE))
    assert h.partition.start_offset == 1
    assert h.fetch("a", (0, 7)) == [Acquired(1, 1, 5)]
    h.say("a", (1, 1, ACCEPT))
    assert h.partition.start_offset == 2


def test_no_more_than_the_limit_are_in_flight() -> None:
    h = Harness()
    batches = [(first, first + 4) for first in range(0, 40, 5)]
    assert h.fetch("a", *batches) == [Acquired(0, 19, 1)]
    assert not h.partition.may_acquire(20)
    assert h.fetch("b", *batches) == []
    h.say("a", (7, 7, RELEASE))
    assert h.partition.may_acquire(20)
    assert h.fetch("b", *batches) == [Acquired(7, 7, 2)]
    h.say("a", (0, 6, ACCEPT))
    assert h.fetch("b", *batches) == [Acquired(20, 29, 1)]


def test_what_a_member_held_when_its_session_ended_is_free() -> None:
    h = Harness()
    h.fetch("a", (0, 2))
    h.fetch("b", (0, 2), (3, 5))
    h.leave("a")
    assert h.fetch("b", (0, 2)) == [Acquired(0, 2, 2)]
    h.leave("stranger")
    assert h.fetch("c", (0, 2), (3, 5)) == []


@pytest.mark.parametrize(
    ("acks", "code"),
    [
        ([(0, 2, ACCEPT), (2, 3, ACCEPT)], "invalid_record_state"),
        ([(0, 5, ACCEPT)], "invalid_record_state"),  # the last one is b's
        ([(6, 9, ACCEPT)], "invalid_request"),
        ([(4, 6, ACCEPT)], "invalid_request"),
    ],
)
def test_words_about_what_a_member_does_not_have_change_nothing(
    acks: list[tuple[int, int, object]], code: str
) -> None:
    h = Harness()
    h.fetch("a", (0, 4))
    h.fetch("b", (5, 5))
    assert h.refused("a", *acks) == code  # type: ignore[arg-type]


def test_a_partition_without_records_in_flight_refuses_all() -> None:
    assert Harness().refused("a", (0, 0, ACCEPT)) == "invalid_record_state"
    h = Harness(start_offset=10)
    h.say("a", (0, 9, ACCEPT))  # done with already


def test_records_that_the_log_has_lost_are_done_with() -> None:
    h = Harness()
    h.fetch("a", (0, 4), (5, 9))
    h.partition.begin_at(7)
    assert h.partition.start_offset == 7
    h.say("a", (0, 8, ACCEPT))
    assert h.partition.start_offset == 9
    h.partition.begin_at(30)
    assert (h.partition.start_offset, h.partition.next_offset()) == (30, 30)


def test_records_that_compaction_has_removed_are_given_up() -> None:
    h = Harness()
    h.fetch("a", (0, 4), (5, 9))
    h.say("a", (0, 9, RELEASE))
    assert h.fetch("a", (3, 4), (8, 9), offset=0) == [Acquired(3, 9, 2)]
    assert h.partition.start_offset == 3
    h.say("a", (3, 9, ACCEPT))
    assert h.fetch("a", (20, 24)) == [Acquired(20, 24, 1)]
    assert h.partition.start_offset == 20
    assert h.fetch("a", (40, 41)) == [Acquired(40, 41, 1)]
    h.say("a", (20, 24, ACCEPT))
    assert h.partition.start_offset == 40


def test_what_an_aborted_transaction_wrote_is_withheld() -> None:
    h = Harness()
    h.fetch("a", (0, 4), (5, 9))
    h.partition.withhold(0, 4)
    assert h.partition.start_offset == 5
    h.say("a", (5, 9, ACCEPT))


def test_a_restart_forgets_who_had_what_and_nothing_that_was_settled() -> None:
    h = Harness(start_offset=2)
    h.fetch("a", (0, 4), (5, 9), (10, 14))
    h.say("a", (5, 9, [ACCEPT, RELEASE, ACCEPT, REJECT, ACCEPT]))
    assert h.fetch("b", (5, 9)) == [Acquired(6, 6, 2)]
    h.say("a", (14, 14, ACCEPT))
    h.restart()
    assert h.partition.start_offset == 2
    assert h.partition.complete == 5
    batches = ((0, 4), (5, 9), (10, 14), (15, 15))
    assert h.fetch("c", *batches) == [
        Acquired(2, 4, 1),
        Acquired(6, 6, 2),
        Acquired(10, 13, 1),
    ]
    assert h.fetch("c", *batches) == [Acquired(15, 15, 1)]


def test_an_administrator_sets_where_a_group_goes_on() -> None:
    h = Harness()
    h.fetch("a", (0, 9))
    h.say("a", (0, 9, ACCEPT))
    h.apply(h.shares.alter(h.at, {KEY: 3}))
    for _ in range(2):
        assert (h.partition.start_offset, h.partition.state_epoch) == (3, 1)
        h.restart()
    assert h.fetch("a", (0, 9)) == [Acquired(3, 9, 1)]
    h.apply(h.shares.forget(["g"]))
    assert KEY not in h.shares.partitions
