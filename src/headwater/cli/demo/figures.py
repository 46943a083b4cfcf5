"""What the demo shows: rates and percentiles made from the running totals that its processes report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW_SECONDS = 3.0
"""Rates and percentiles are of the last few seconds: long enough to be steady, short enough to be live."""


@dataclass(frozen=True)
class Flow:
    """Records through one client: each second, and in all."""

    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    records: int = 0
    bytes: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Usage:
    """What the broker's process takes of the machine; `cpu` is 1.0 for one core kept busy."""

    cpu: float
    resident_bytes: int


@dataclass(frozen=True)
class Figures:
    """One moment of the demo."""

    seconds: float
    produced: Flow
    consumed: Flow
    p50_ms: float | None = None
    p99_ms: float | None = None
    lag: int = 0
    broker: Usage | None = None


class Meter:
    """Turns running totals into a rate over the window."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def add(self, at: float, total: float) -> None:
        """Take the total that was reached at a moment."""
        self._points.append((at, total))
        # The newest point outside the window stays, so that the rate spans all of it.
        while len(self._points) > 2 and self._points[1][0] <= at - WINDOW_SECONDS:
            self._points.popleft()

    def rate(self) -> float:
        """Return the growth of the total each second."""
        if len(self._points) < 2:
            return 0.0
        (first_at, first), (last_at, last) = self._points[0], self._points[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0


class FlowMeter:
    """The flow through one client, from its reports."""

    def __init__(self) -> None:
        self._records, self._bytes = Meter(), Meter()
        self._last = Flow()

    def add(self, at: float, records: int, size: int, failed: int) -> None:
        """Take one report."""
        self._records.add(at, records)
        self._bytes.add(at, size)
        self._last = Flow(self._records.rate(), self._bytes.rate(), records, size, failed)

    def flow(self) -> Flow:
        """Return the flow as of the last report."""
        return self._last


class Percentiles:
    """Percentiles of the values of the window."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque()

    def add(self, at: float, values: Iterable[float]) -> None:
        """Take values seen at a moment."""
        self._values.extend((at, value) for value in values)
        while self._values and self._values[0][0] <= at - WINDOW_SECONDS:
            self._values.popleft()

    def at(self, *fractions: float) -> list[float | None]:
        """Return the nearest-rank percentiles, or None for each where there is no value."""
        ordered = sorted(value for _, value in self._values)
        if not ordered:
            return [None for _ in fractions]
        return [ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] for fraction in fractions]
