"""Medians, percentiles, ratios and verdicts."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench.figures
from bench.figures import (
    HEADWATER,
    KAFKA,
    KAFKA_FLUSH,
    AtLeast,
    AtMost,
    Better,
    Figure,
    Floor,
    Limit,
    Target,
    Verdict,
    judge,
    lines,
    middle,
    percentile,
)

RATE = Figure("rate", "rate", "records/s", Better.HIGHER, (AtLeast(1.0), AtLeast(3.0, KAFKA_FLUSH)))


def test_examples() -> None:
    assert doctest.testmod(bench.figures).failed == 0


@pytest.mark.parametrize(
    ("target", "ours", "theirs", "verdict"),
    [
        (AtLeast(1.0), 100.0, 100.0, Verdict.MET),
        (AtLeast(1.0), 99.9, 100.0, Verdict.MISSED),
        (AtLeast(3.0), 299.0, 100.0, Verdict.MISSED),
        (AtMost(0.5), 1.0, 2.0, Verdict.MET),
        (AtMost(0.5), 1.1, 2.0, Verdict.MISSED),
        (Limit(0.5, "s"), 0.5, None, Verdict.MET),
        (Limit(0.5, "s"), 0.51, 3.6, Verdict.MISSED),
        (Limit(0.5, "s"), None, 3.6, Verdict.UNKNOWN),
        (Floor(100, "rows/s"), 100.0, None, Verdict.MET),
        (Floor(100, "rows/s"), 99.0, 10.0, Verdict.MISSED),
        (AtMost(1.0), None, 2.0, Verdict.UNKNOWN),
        (AtMost(1.0), 1.0, None, Verdict.UNKNOWN),
        (AtMost(1.0), 1.0, 0.0, Verdict.UNKNOWN),
    ],
)
def test_a_verdict_needs_the_sides_its_target_names(
    target: Target, ours: float | None, theirs: float | None, verdict: Verdict
) -> None:
    assert judge(target, ours, theirs) is verdict


def test_a_figure_has_a_line_for_each_target_with_the_peer_it_names() -> None:
    samples = {HEADWATER: [300.0, 310.0, 1.0], KAFKA: [200.0, 200.0, 200.0], KAFKA_FLUSH: [120.0]}
    against_kafka, against_flush = lines(RATE, samples)
    assert (against_kafka.peer, against_kafka.ratio, against_kafka.verdict) == (KAFKA, 1.5, Verdict.MET)
    assert (against_flush.peer, against_flush.ratio, against_flush.verdict) == (
        KAFKA_FLUSH,
        2.5,
        Verdict.MISSED,
    )


def test_a_figure_without_a_target_is_shown_for_information() -> None:
    (line,) = lines(Figure("x", "x", "s", Better.LOWER), {HEADWATER: [1.0], KAFKA: [4.0]})
    assert (line.ratio, line.target, line.verdict) == (0.25, None, Verdict.UNKNOWN)


def test_a_side_that_was_not_measured_has_no_ratio() -> None:
    assert [line.ratio for line in lines(RATE, {HEADWATER: [1.0]})] == [None, None]


def test_the_median_of_nothing_is_nothing() -> None:
    assert middle([]) is None


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert sum(value <= found for value in ordered) >= share * len(ordered)
    assert sum(value < found for value in ordered) < share * len(ordered)
