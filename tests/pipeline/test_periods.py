"""Intervals against earlier ones: every order of arrival ends in the same comparison."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import SettingError
from headwater.pipeline.keyed.logic import unpack
from headwater.pipeline.periods import DAY, VersusPrevious, compare, next_starts, previous_start

HOUR = 3_600_000_000
VALUES = st.none() | st.integers(-3, 3).map(float)
ROWS = st.lists(st.tuples(st.integers(0, 12), VALUES), max_size=20)


@given(st.lists(ROWS, max_size=6), st.sets(st.integers(1, 8), min_size=1, max_size=3))
def test_the_last_result_of_each_interval_compares_the_last_values(
    batches: list[list[Any]], periods: set[int]
) -> None:
    logic = VersusPrevious(tuple(sorted(periods)))
    state = None
    known: dict[int, float | None] = {}
    results: dict[int, Any] = {}
    for batch in batches:
        known.update(batch)
        step = logic.step(("g",), state, [(start, start + 1, value) for start, value in batch], 0)
        state = step.state
        starts = [row[1] for row in step.out]
        assert starts == sorted(set(starts))
        for row in step.out:
            assert results.get(row[1]) != row, "a result that is as it was"
            results[row[1]] = row
    wanted = {}
    for start, value in known.items():
        result: list[Any] = ["g", start, start + 1, value]
        for period in sorted(periods):
            there = start - period in known
            before = known.get(start - period)
            change = None if value is None or before is None else value - before
            ratio = None if value is None or not before else value / before
            result += [before, change, ratio, not there]
        wanted[start] = tuple(result)
    assert results == wanted


def test_an_interval_is_kept_until_the_last_that_is_compared_with_it_has_come() -> None:
    logic = VersusPrevious.of(["1 hour", "1 day"], "1 hour")
    state = None
    for hour in range(100):
        # A closed window comes in the batch in which the watermark reaches its end.
        step = logic.step(("g",), state, [(hour * HOUR, (hour + 1) * HOUR, 1.0)], (hour + 1) * HOUR)
        state = step.state
        assert [row[7] for row in step.out] == [hour < 1]
        assert [row[11] for row in step.out] == [hour < 24]
    assert len(unpack(state or b"")) <= 26
    assert step.due is not None
    assert logic.step(("g",), state, [], 200 * HOUR) == (None, [], None)


@pytest.mark.parametrize(
    ("value", "previous", "missing", "expected"),
    [
        (6.0, 4.0, False, (4.0, 2.0, 1.5, False)),
        (6.0, 0.0, False, (0.0, 6.0, None, False)),
        (6.0, None, False, (None, None, None, False)),
        (None, 4.0, False, (4.0, None, None, False)),
        (6.0, None, True, (None, None, None, True)),
    ],
)
def test_what_has_no_change_or_no_ratio(value: Any, previous: Any, missing: bool, expected: Any) -> None:
    assert compare(value, previous, missing=missing) == expected


def test_windows_that_overlap_are_compared_with_the_one_that_a_hop_is_back() -> None:
    logic = VersusPrevious.of(["5 minutes"])
    minutes, state = 60_000_000, None
    for hop in range(20):
        start = 5 * minutes * hop
        # An hour long and one every five minutes; what is kept is what the next one needs.
        step = logic.step(("g",), state, [(start, start + HOUR, float(hop))], start + HOUR)
        state = step.state
        assert [row[4] for row in step.out] == [hop - 1 if hop else None]
        assert len(unpack(state or b"")) <= 3


def micros(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp()) * 1_000_000


def test_days_go_by_the_calendar_of_a_zone() -> None:
    berlin = "Europe/Berlin"
    # 09:00 on the day on which the clocks went forward, and the day before.
    assert previous_start(micros(2026, 3, 29, 7), DAY, berlin) == micros(2026, 3, 28, 8)
    assert previous_start(micros(2026, 3, 29, 7), DAY) == micros(2026, 3, 28, 7)
    assert previous_start(micros(2026, 3, 29, 7), HOUR, berlin) == micros(2026, 3, 29, 6)
    # There was no 02:00 on the day on which they went forward.
    assert previous_start(micros(2026, 3, 30, 0), DAY, berlin) is None
    assert previous_start(micros(2026, 3, 30, 1), DAY, berlin) == micros(2026, 3, 29, 1)
    # 02:00 comes twice on the day on which they go back: both are compared with the one before.
    before = micros(2026, 10, 24, 0)
    assert next_starts(before, DAY, berlin) == [micros(2026, 10, 25, 0), micros(2026, 10, 25, 1)]


@given(
    st.integers(micros(2026, 3, 20) // HOUR, micros(2026, 11, 5) // HOUR),
    st.sampled_from([DAY, 7 * DAY, HOUR]),
)
def test_next_starts_are_those_that_go_back_to_a_start(hour: int, period: int) -> None:
    start, zone = hour * HOUR, "Europe/Berlin"
    candidates = [start + period + shift * HOUR for shift in (-1, 0, 1)]
    assert next_starts(start, period, zone) == [
        each for each in candidates if previous_start(each, period, zone) == start
    ]


def test_periods_that_no_interval_lies_at_are_refused() -> None:
    with pytest.raises(SettingError, match="'90 minutes' is not a multiple of the interval, '1 hour'"):
        VersusPrevious.of(["90 minutes"], "1 hour")
    with pytest.raises(SettingError, match="the same one twice: 1 day, 24 hours"):
        VersusPrevious.of(["1 day", "24 hours"])
    with pytest.raises(SettingError, match="periods= has to be a list"):
        VersusPrevious.of([], "1 hour")
