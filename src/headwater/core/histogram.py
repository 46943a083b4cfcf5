"""A histogram cheap enough for the hot path: one bisection and two additions for each value.

There is no lock: a histogram belongs to one thread, and whoever reads it from there sees whole values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

LATENCY_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for how long a request takes, from a page cache's answer to a disk that hangs."""


class Histogram:
    """Counts of values by upper bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value; a bound belongs to the bucket below it, as in Prometheus."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, and how many values are not above it."""
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            yield bound, below
