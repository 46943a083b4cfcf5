"""Partial results, folded in any order and any number of times, against plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.packing import pack, unpack
from headwater.pipeline.summaries import Measure, Summary

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
SUMMARY = Summary(
    2, (Measure("sum"), Measure("count"), Measure("min"), Measure("max"), Measure("mean"), Measure("count"))
)
SCHEMA = pa.schema(
    [
        ("start", TIME),
        ("end", TIME),
        ("k0", pa.string()),
        ("k1", pa.int64()),
        ("v0", pa.int64()),
        ("n1", pa.int64()),
        ("v2", pa.int64()),
        ("v3", pa.int64()),
        ("v4", pa.float64()),
        ("n4", pa.int64()),
        ("n5", pa.int64()),
    ]
)

Event = tuple[int, str | None, int | None, int | None]
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([1, 2**60 + 1, None]),
        st.none() | st.integers(-(2**40), 2**40),
    ),
    max_size=40,
)


def rows(events: list[Event]) -> pa.Table:
    """The events as rows come from Spark: six results of one value, the last of them the number of rows."""
    made = [
        {
            "start": EPOCH + timedelta(seconds=10 * window),
            "end": EPOCH + timedelta(seconds=10 * window + 10),
            "k0": word,
            "k1": number,
            **dict.fromkeys(["v0", "v2", "v3"], value),
            "v4": None if value is None else float(value),
            "n1": int(value is not None),
            "n4": int(value is not None),
            "n5": 1,
        }
        for window, word, number, value in events
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def expected(events: list[Event]) -> dict[Any, Any]:
    groups: dict[Any, list[int | None]] = defaultdict(list)
    for window, word, number, value in events:
        groups[window, word, number].append(value)
    found = {}
    for group, all_values in groups.items():
        values = [value for value in all_values if value is not None]
        found[group] = (
            sum(values) if values else None,
            len(values),
            min(values, default=None),
            max(values, default=None),
            pytest.approx(sum(values) / len(values)) if values else None,
            len(all_values),
        )
    return found


def results(table: pa.Table) -> dict[Any, Any]:
    found = {}
    for row in SUMMARY.results(table).to_pylist():
        window = (row["start"] - EPOCH) // timedelta(seconds=10)
        assert row["end"] - row["start"] == timedelta(seconds=10)
        found[window, row["k0"], row["k1"]] = tuple(row[f"r{each}"] for each in range(6))
    return found


@given(st.lists(EVENTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=examples(150), deadline=None)
def test_partial_results_add_up(batches: list[list[Event]], chance: Any) -> None:
    kept = [unpack(pack(SUMMARY.folded([rows(batch)]))) for batch in batches]
    chance.shuffle(kept)
    while len(kept) > 1 and chance.random() < 0.5:
        kept = [SUMMARY.folded(kept[:2]), *kept[2:]]
    folded = SUMMARY.folded(kept)
    assert folded.num_rows == len(expected([event for batch in batches for event in batch]))
    assert results(folded) == expected([event for batch in batches for event in batch])


@given(EVENTS, st.integers(-5, 50))
@settings(max_examples=examples(100), deadline=None)
def test_windows_close_at_their_end(events: list[Event], second: int) -> None:
    folded = SUMMARY.folded([rows(events)])
    closed, still = SUMMARY.closed(folded, second * 1_000_000)
    assert results(closed) == expected([event for event in events if 10 * event[0] + 10 <= second])
    assert results(still) == expected([event for event in events if 10 * event[0] + 10 > second])


def test_what_is_beside_the_key_stays() -> None:
    table = rows([(0, "a", 1, 5), (0, "a", 1, 6), (1, "b", 2, 7)]).append_column("bucket", [[3, 3, 4]])
    folded = SUMMARY.folded([table], ["bucket"])
    assert sorted(folded["bucket"].to_pylist()) == [3, 4]
    assert folded.select(SUMMARY.columns).schema == SCHEMA


def test_not_a_number_is_passed_over_by_extremes_alone() -> None:
    summary = Summary(0, (Measure("min"), Measure("max"), Measure("sum")))
    nan = float("nan")
    make: Callable[[float], dict[str, Any]] = lambda v: {  # noqa: E731
        "start": EPOCH, "end": EPOCH, "v0": v, "v1": v, "v2": v
    }  # fmt: skip
    row = summary.results(
        summary.folded([pa.Table.from_pylist([make(nan), make(2.0), make(1.0)])])
    ).to_pylist()[0]
    assert (row["r0"], row["r1"]) == (1.0, 2.0)
    assert row["r2"] != row["r2"]
