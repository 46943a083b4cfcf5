"""The state of `sliding` against a reference in plain Python, without Spark."""

from __future__ import annotations

from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.sliding import Aggregate
from headwater.pipeline.sliding_state import Bucket

LAST = 50
FUNCTIONS = ("count", "sum", "mean", "min", "max")
WANTED = [Aggregate("n", "count", None, "bigint")] + [
    Aggregate(f"{function}_{column}", function, column, kind)
    for column, kind in (("whole", "bigint"), ("real", "double"))
    for function in FUNCTIONS
]
TYPES = [("whole", "bigint"), ("real", "double")]
# Beyond 2**53, where a detour over floats would show.
WHOLE = st.none() | st.integers(-(2**55), 2**55)
REAL = st.none() | st.integers(-100, 100).map(lambda number: number / 4)
EVENT = st.tuples(st.sampled_from("abc"), st.integers(0, 99), WHOLE, REAL)
STEP = st.tuples(st.lists(EVENT, max_size=12), st.integers(0, 60))


@given(st.lists(STEP, min_size=1, max_size=8))
def test_each_event_gets_its_window_once_time_has_passed_it(steps: list[tuple[list[Any], int]]) -> None:
    watermark = 0
    events: list[Any] = []
    found: list[Any] = []
    state: bytes | None = None
    for batch, advance in steps:
        bucket = Bucket.load(state, TYPES)
        new = [
            (len(events) + n, key, watermark + at, whole, real)
            for n, (key, at, whole, real) in enumerate(batch)
        ]
        events += new
        bucket.add(_frame(new))
        watermark += advance
        result = bucket.results(WANTED, watermark, LAST)
        times = [events[int(number)][2] for number in result["event"]]
        assert times == sorted(times)
        found += [
            tuple(None if pd.isna(value) else value for value in row)
            for row in result.itertuples(index=False)
        ]
        waits_for = bucket.expire(watermark, LAST)
        assert waits_for is None or waits_for >= watermark
        state = None if waits_for is None else bucket.dump()
    expected = [_expected(event, events) for event in events if event[2] < watermark]
    assert sorted(found, key=lambda row: int(row[0])) == expected


def test_state_holds_no_more_than_later_windows_need() -> None:
    bucket = Bucket.load(None, TYPES)
    bucket.add(_frame([(n, "a", n, 1, None) for n in range(1000)]))
    bucket.results(WANTED, 900, LAST)
    assert bucket.expire(900, LAST) == 900
    left = Bucket.load(bucket.dump(), TYPES)
    assert len(left.results(WANTED, 2000, LAST)) == 100
    assert left.expire(1000 + LAST, LAST) is None


def test_infinite_and_huge_numbers_and_what_is_none() -> None:
    inf, nan, huge = float("inf"), float("nan"), 2**62
    rows = [(huge, inf), (huge, None), (huge, nan), (-huge, -inf)]
    bucket = Bucket.load(None, TYPES)
    bucket.add(_frame([(n, "a", n, whole, real) for n, (whole, real) in enumerate(rows)]))
    wanted = [each for each in WANTED if each.name in ("mean_whole", "min_real", "max_real")]
    found = bucket.results(wanted, 10, LAST)
    assert found["r0"].tolist() == [huge, huge, huge, huge / 2]
    assert found["r1"].tolist() == [inf, inf, inf, -inf]
    assert found["r2"].tolist() == [inf, inf, inf, inf]


def _frame(events: list[Any]) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "key": [event[1] for event in events],
        "at": pd.Series([event[2] for event in events], dtype="int64"),
        "event": [str(event[0]) for event in events],
    }
    for number, dtype in enumerate(("int64", "float64")):
        values = [event[3 + number] for event in events]
        columns[f"v{number}"] = pd.Series([value or 0 for value in values], dtype=dtype)
        columns[f"p{number}"] = pd.Series([value is not None for value in values], dtype="bool")
    return pd.DataFrame(columns)


def _expected(event: Any, events: list[Any]) -> tuple[Any, ...]:
    window = [each for each in events if each[1] == event[1] and event[2] - LAST < each[2] <= event[2]]
    row: list[Any] = [str(event[0]), len(window)]
    for place in (3, 4):
        values = [each[place] for each in window if each[place] is not None]
        row.append(len(values))
        row += [function(values) if values else None for function in (sum, _mean, min, max)]
    return tuple(row)


def _mean(values: list[Any]) -> float:
    return float(sum(values)) / len(values)
