"""Rates as Kafka's `Rate` over `SampledStat` measures them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.rates import Bucket, Rate, Rates, Window
from headwater.testing.clock import ManualClock

WINDOW = Window(11, 1000)


def test_a_quiet_taker_may_take_ten_seconds_worth_at_once() -> None:
    rate = Rate(WINDOW)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(1000, 0) == 1
    assert WINDOW.capacity(1000) == 10_000


def test_the_throttle_brings_the_rate_down_to_the_limit() -> None:
    # Kafka: (observed - limit) / limit * window; 30,000 in ten seconds is three times 1,000 a second.
    rate = Rate(WINDOW)
    rate.record(30_000, 0)
    assert rate.throttle_ms(1000, 0) == 20_000


def test_the_window_slides() -> None:
    rate = Rate(WINDOW)
    clock = ManualClock()
    rate.record(50_000, clock.monotonic_ms())
    clock.advance(10_999)
    assert rate.total(clock.monotonic_ms()) == 50_000
    clock.advance(1)
    assert rate.total(clock.monotonic_ms()) == 0
    assert rate.throttle_ms(1000, clock.monotonic_ms()) == 0


def test_what_is_taken_back_was_never_taken() -> None:
    rate = Rate(WINDOW)
    rate.record(50_000, 5)
    rate.record(-50_000, 5)
    assert rate.total(5) == 0
    assert rate.throttle_ms(1, 5) == 0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10**6)), max_size=60))
def test_the_total_is_that_of_the_samples_in_the_window(taken: list[tuple[int, int]]) -> None:
    rate = Rate(WINDOW)
    now = 0
    samples: list[list[int]] = []  # start, last, amount
    for pause, amount in taken:
        now += pause
        rate.record(amount, now)
        if not samples or now - samples[-1][0] >= 1000:
            samples.append([now, now, 0])
        samples[-1][1:] = [now, samples[-1][2] + amount]
        live = [sample for sample in samples if now - sample[1] < 11_000]
        assert rate.total(now) == sum(sample[2] for sample in live)


@given(
    st.integers(1000, 10**7),
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 2000)), min_size=20, max_size=80),
)
def test_whoever_obeys_takes_no_more_than_the_limit_in_the_long_run(
    limit: int, taken: list[tuple[int, int]]
) -> None:
    rate = Rate(WINDOW)
    now = 0
    total = 0
    for pause, thousandths in taken:
        amount = limit * thousandths // 1000  # at most two seconds' worth at once
        rate.record(amount, now)
        total += amount
        now += pause + rate.throttle_ms(limit, now)
    # A window of eleven samples counts as ten seconds when it is young, so a tenth more than the limit passes.
    # Besides, a full window's worth may come at once at either end.
    assert total <= 1.1 * limit * (now + 2 * (WINDOW.full_ms + WINDOW.span_ms)) / 1000 + 1


def test_takers_heard_of_least_lately_are_forgotten() -> None:
    rates = Rates(Rate, WINDOW, limit=2)
    rates.of("a").record(7, 0)
    rates.of("b").record(7, 0)
    rates.of("a")
    rates.of("c")
    assert len(rates) == 2
    assert rates.of("a").total(0) == 7
    assert rates.of("b").total(0) == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_short_window_still_divides_by_some_time(count: int) -> None:
    rate = Rate(Window(count, 1000))
    rate.record(5000, 0)
    assert rate.throttle_ms(1000, 0) > 0
    assert Window(count, 1000).capacity(1000) == 1000


def test_a_bucket_may_be_overdrawn_once() -> None:
    bucket = Bucket(WINDOW)
    assert bucket.overdrawn_ms(5, 0) == 0
    bucket.take(60, 5, 0)  # of the 55 that eleven seconds are worth
    assert bucket.overdrawn_ms(5, 0) == 1000
    assert bucket.overdrawn_ms(5, 999) == 1
    assert bucket.overdrawn_ms(5, 1000) == 0
    bucket.take(1, 5, 10**9)
    bucket.take(54, 5, 10**9)
    assert bucket.overdrawn_ms(5, 10**9) == 0
    bucket.take(1, 5, 10**9)
    assert bucket.overdrawn_ms(5, 10**9) == 200


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 50)), min_size=1, max_size=40))
def test_who_waits_as_told_gets_no_more_than_the_limit_and_one_draught(
    draughts: list[tuple[int, int]],
) -> None:
    bucket, now, taken = Bucket(WINDOW), 0, 0
    for pause, amount in draughts:
        now += pause + bucket.overdrawn_ms(5, now + pause)
        bucket.take(amount, 5, now)
        taken += amount
        assert taken <= 5 * (11 + now / 1000) + 50 + 1
