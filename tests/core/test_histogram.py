"""Histograms against counting by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.histogram import LATENCY_SECONDS, Histogram

VALUES = st.lists(st.floats(0, 20) | st.sampled_from(LATENCY_SECONDS))


@given(VALUES)
def test_counts_what_is_not_above_each_bound(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    expected = [
        (bound, sum(value <= bound for value in values)) for bound in (*LATENCY_SECONDS, float("inf"))
    ]
    assert list(histogram.cumulative()) == expected
    assert histogram.count == len(values)
    assert abs(histogram.total - sum(values)) < 1e-6
