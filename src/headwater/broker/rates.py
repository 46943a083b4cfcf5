"""Rates over a sliding window of samples, as Kafka measures what quotas limit.

A rate is what the last `count` samples hold, divided by the time since the oldest of them began, and by no
less than all samples but one: a client that was quiet may send several seconds' worth at once.
Time comes in as an argument and only ever grows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["Rate", "Rates", "Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """How many samples a rate has, and how long each is (`quota.window.num`, `quota.window.size.seconds`)."""

    count: int = 11
    span_ms: int = 1000

    @property
    def full_ms(self) -> int:
        """The least time that a rate is taken over."""
        return (self.count - 1) * self.span_ms

    def capacity(self, limit: float) -> int:
        """Return how much a quiet client may take at once without being over its limit."""
        return max(1, int(limit * max(self.full_ms, self.span_ms) / 1000))


class _Sample:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.amount = 0.0


class Rate:
    """What somebody has taken lately."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []

    def record(self, amount: float, now_ms: int) -> None:
        """Add what was taken just now; a negative amount takes back what was recorded at this moment."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window.span_ms:
            self._purge(now_ms)
            samples.append(_Sample(now_ms))
        samples[-1].amount += amount
        samples[-1].last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """Return what the window holds."""
        self._purge(now_ms)
        return sum(sample.amount for sample in self._samples)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return after how long of taking nothing the rate, in units a second, is down to the limit."""
        total = self.total(now_ms)
        return max(0, round(total * 1000 / limit - self._elapsed_ms(now_ms)))

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0
        lacking = self._window.count - 1 - elapsed // self._window.span_ms
        return max(1, elapsed + max(0, lacking) * self._window.span_ms)

    def _purge(self, now_ms: int) -> None:
        # A sample that overlaps the window stays whole, as in Kafka.
        expired = now_ms - self._window.count * self._window.span_ms
        samples = self._samples
        while samples and samples[0].last_ms <= expired:
            samples.pop(0)


class Rates:
    """The rates of many takers, of whom those heard of least lately are forgotten beyond a limit."""

    def __init__(self, window: Window, limit: int = 10_000) -> None:
        self.window = window
        self._limit = limit
        self._rates: OrderedDict[Hashable, Rate] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rates)

    def of(self, taker: Hashable) -> Rate:
        """Return the rate of a taker."""
        rate = self._rates.get(taker)
        if rate is None:
            rate = self._rates[taker] = Rate(self.window)
            if len(self._rates) > self._limit:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(taker)
        return rate
