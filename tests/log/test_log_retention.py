"""Retention: which segments have expired, and what a clock that jumps may delete."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.log.config import LogConfig
from headwater.log.retention import (
    PATIENCE_MS,
    PAUSE_MS,
    TOLERANCE_MS,
    SegmentAge,
    SteadyTime,
    expired,
    oversized,
)
from headwater.testing.clock import ManualClock

DAY = 24 * 3600 * 1000
NOW = 1_700_000_000_000
WEEK = LogConfig(retention_ms=7 * DAY)


def segments(*ages: int, size: int = 100) -> list[SegmentAge]:
    return [SegmentAge(i + 1, size, NOW - age) for i, age in enumerate(ages)]


def test_a_segment_expires_when_its_newest_record_has() -> None:
    assert expired(segments(8 * DAY, 7 * DAY, 0), WEEK, NOW) == 1
    assert expired(segments(8 * DAY, 7 * DAY + 1, 0), WEEK, NOW) == 2
    assert expired(segments(8 * DAY, 8 * DAY), WEEK, NOW) == 2, "the growing one, too"


def test_one_that_has_not_expired_keeps_those_after_it() -> None:
    assert expired(segments(8 * DAY, -DAY, 8 * DAY, 0), WEEK, NOW) == 1


def test_retention_may_be_without_limit_or_not_asked_for() -> None:
    old = segments(365 * DAY, 365 * DAY)
    assert expired(old, LogConfig(retention_ms=-1), NOW) == 0
    assert expired(old, LogConfig(deleted=False), NOW) == 0
    assert oversized(old, LogConfig(retention_bytes=-1)) == 0
    assert oversized(old, LogConfig(deleted=False, retention_bytes=0)) == 0


def test_a_log_keeps_at_least_what_it_may_hold() -> None:
    log = segments(0, 0, 0, 0)
    assert oversized(log, LogConfig(retention_bytes=400)) == 0
    assert oversized(log, LogConfig(retention_bytes=301)) == 0
    assert oversized(log, LogConfig(retention_bytes=300)) == 1
    assert oversized(log, LogConfig(retention_bytes=0)) == 3, "the growing one stays"


def test_time_that_passes_is_believed() -> None:
    clock = ManualClock(NOW)
    time = SteadyTime(clock)
    for _ in range(100):
        clock.advance(300_000)
        assert time.now_ms() == clock.wall_ms()
        assert not time.doubted


def test_a_clock_that_drifts_is_believed() -> None:
    clock = ManualClock(NOW)
    time = SteadyTime(clock)
    for _ in range(100):
        clock.advance(300_000)
        clock.jump(TOLERANCE_MS // 2)
        assert time.now_ms() == clock.wall_ms()


def test_a_day_forward_and_back_again_expires_nothing() -> None:
    clock = ManualClock(NOW)
    time = SteadyTime(clock)
    clock.jump(DAY)
    for _ in range(11):
        assert time.now_ms() - NOW < PATIENCE_MS
        assert time.doubted
        clock.advance(PATIENCE_MS // 12)
    clock.jump(-DAY)
    assert time.now_ms() == clock.wall_ms()
    assert not time.doubted


def test_a_day_forward_is_believed_when_it_stays() -> None:
    clock = ManualClock(NOW)
    time = SteadyTime(clock)
    clock.jump(DAY)
    assert time.now_ms() == NOW
    clock.advance(PATIENCE_MS - 1)
    assert time.now_ms() == NOW + PATIENCE_MS - 1
    clock.advance(1)
    assert time.now_ms() == clock.wall_ms() == NOW + PATIENCE_MS + DAY


def test_a_day_back_is_believed_at_once() -> None:
    clock = ManualClock(NOW)
    time = SteadyTime(clock)
    clock.jump(-DAY)
    assert time.now_ms() == NOW - DAY
    clock.advance(1000)
    assert time.now_ms() == NOW - DAY + 1000
    # What was written before the jump lies in the future now, and stays a day longer.
    assert expired([SegmentAge(1, 1, NOW)], LogConfig(retention_ms=1000), time.now_ms()) == 0


def test_a_clock_found_ahead_at_the_start_is_doubted() -> None:
    clock = ManualClock(NOW + DAY)
    time = SteadyTime(clock, believed_ms=NOW)
    assert time.now_ms() == NOW
    clock.advance(PATIENCE_MS)
    assert time.now_ms() == NOW + DAY + PATIENCE_MS


def test_after_a_short_pause_the_clock_is_believed() -> None:
    assert SteadyTime(ManualClock(NOW + PAUSE_MS), believed_ms=NOW).now_ms() == NOW + PAUSE_MS


@given(st.lists(st.tuples(st.integers(0, 10 * 60 * 1000), st.integers(-2 * DAY, 2 * DAY)), max_size=40))
def test_believed_time_never_runs_ahead_of_both_clocks(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock(NOW)
    time = SteadyTime(clock)
    for passed, jump in steps:
        before, elapsed = time.now_ms(), clock.monotonic_ms()
        clock.advance(passed)
        clock.jump(jump)
        now = time.now_ms()
        steady = now <= before + clock.monotonic_ms() - elapsed + TOLERANCE_MS
        assert now <= clock.wall_ms() or steady
        assert steady or not time.doubted
