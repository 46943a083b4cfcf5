"""Rates over a sliding window of samples, as Kafka measures what most quotas limit, and buckets of tokens.

A rate is what the last `count` samples hold, divided by the time since the oldest of them began, and by no
less than all samples but one: a client that was quiet may send several seconds' worth at once.

A bucket fills with what is granted, up to what all samples together are worth. Whoever finds it not overdrawn may
take any amount, and the next one waits until what was taken too much has come in.

Time comes in as an argument and only ever grows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Bucket", "Rate", "Rates", "Window"]


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


class Bucket:
    """What somebody may still take."""

    __slots__ = ("_seen_ms", "_tokens", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = float("inf")
        self._seen_ms = 0

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        """Take an amount, whatever is left."""
        self._fill(limit, now_ms)
        self._tokens -= amount

    def overdrawn_ms(self, limit: float, now_ms: int) -> int:
        """Return after how long nothing is taken too much any more, at `limit` a second."""
        self._fill(limit, now_ms)
        return max(0, round(-self._tokens / limit * 1000))

    def _fill(self, limit: float, now_ms: int) -> None:
        most = limit * self._window.count * self._window.span_ms / 1000
        self._tokens = min(most, self._tokens + limit * (now_ms - self._seen_ms) / 1000)
        self._seen_ms = now_ms


T = TypeVar("T", Rate, Bucket)


class Rates(Generic[T]):
    """The rates or buckets of many takers, of whom those heard of least lately are forgotten beyond a limit."""

    def __init__(self, kind: Callable[[Window], T], window: Window, limit: int = 10_000) -> None:
        self.window = window
        self._kind: Callable[[Window], T] = kind
        self._limit = limit
        self._rates: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rates)

    def of(self, taker: Hashable) -> T:
        """Return the rate of a taker."""
        rate = self._rates.get(taker)
        if rate is None:
            rate = self._rates[taker] = self._kind(self.window)
            if len(self._rates) > self._limit:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(taker)
        return rate
