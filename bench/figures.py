"""What a benchmark measures, what it is to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

HEADWATER = "headwater"
HEADWATER_OS = "headwater-os"
"""Headwater that answers before the disk has it, as Kafka does by default."""
KAFKA = "kafka"
KAFKA_FLUSH = "kafka-flush"
"""Kafka that flushes after every append, as Headwater does by default."""
RABBITMQ = "rabbitmq"
DEBEZIUM = "debezium"
"""Debezium's embedded engine; both it and Headwater's capture write to Headwater's broker."""
ESPER = "esper"
EVENTSOURCING = "eventsourcing"
"""The eventsourcing library, on SQLite."""
FLINK = "flink"
HAND = "by-hand"
"""What one writes by hand with the database's own driver."""
PROCESS = "process"
"""One process of ours that does without Spark what we do with it."""
SPARK = "spark"
"""Spark's own Kafka connector; both it and Headwater's pipelines read from Headwater's broker."""

Samples = Mapping[str, Sequence[float]]
"""What each side measured, round by round."""


class Better(Enum):
    """Which way a figure improves."""

    HIGHER = "higher"
    LOWER = "lower"


class Verdict(Enum):
    """What came of a target."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "-"


@dataclass(frozen=True)
class AtLeast:
    """A ratio to a peer that Headwater's figure is not to fall below."""

    ratio: float
    peer: str = KAFKA

    def __str__(self) -> str:
        return f"≥ {self.ratio:g}× {self.peer}"


@dataclass(frozen=True)
class AtMost:
    """A ratio to a peer that Headwater's figure is not to exceed."""

    ratio: float
    peer: str = KAFKA

    def __str__(self) -> str:
        return f"≤ {self.ratio:g}× {self.peer}"


@dataclass(frozen=True)
class Limit:
    """A value of its own that Headwater's figure is not to exceed, whatever a peer does."""

    value: float
    unit: str

    def __str__(self) -> str:
        return f"≤ {self.value:g} {self.unit}"


@dataclass(frozen=True)
class Floor:
    """A value of its own that Headwater's figure is not to fall below, whatever a peer does."""

    value: float
    unit: str

    def __str__(self) -> str:
        return f"≥ {self.value:,.0f} {self.unit}"


Target = AtLeast | AtMost | Limit | Floor


@dataclass(frozen=True)
class Figure:
    """One number that a scenario measures on every side."""

    name: str
    title: str
    unit: str
    better: Better
    targets: tuple[Target, ...] = ()
    peer: str = KAFKA
    """Whose value is shown beside ours where no target names a peer."""
    ours: str = HEADWATER
    """Which of our sides is measured."""


@dataclass(frozen=True)
class Line:
    """A figure's outcome against one peer and one target: one line of the table."""

    figure: Figure
    peer: str
    ours: float | None
    theirs: float | None
    target: Target | None
    verdict: Verdict

    @property
    def ratio(self) -> float | None:
        """Return ours divided by theirs, or None where either is missing or theirs is nothing."""
        if self.ours is None or not self.theirs:
            return None
        return self.ours / self.theirs


def middle(values: Sequence[float]) -> float | None:
    """Return the median of the rounds, or None when none was measured.

    >>> middle([3.0, 100.0, 4.0])
    4.0
    """
    return median(values) if values else None


def judge(target: Target, ours: float | None, theirs: float | None) -> Verdict:
    """Tell whether a target was met; unknown where a side that it needs was not measured."""
    if ours is None:
        return Verdict.UNKNOWN
    if isinstance(target, Limit):
        return _verdict(met=ours <= target.value)
    if isinstance(target, Floor):
        return _verdict(met=ours >= target.value)
    if not theirs:
        return Verdict.UNKNOWN
    ratio = ours / theirs
    return _verdict(met=ratio >= target.ratio if isinstance(target, AtLeast) else ratio <= target.ratio)


def _verdict(*, met: bool) -> Verdict:
    return Verdict.MET if met else Verdict.MISSED


def lines(figure: Figure, samples: Samples) -> list[Line]:
    """Return a figure's lines: one for each target, or one for information where it has none."""
    medians = {side: middle(values) for side, values in samples.items()}
    ours = medians.get(figure.ours)
    if not figure.targets:
        return [Line(figure, figure.peer, ours, medians.get(figure.peer), None, Verdict.UNKNOWN)]
    found = []
    for target in figure.targets:
        peer = figure.peer if isinstance(target, Limit | Floor) else target.peer
        theirs = medians.get(peer)
        found.append(Line(figure, peer, ours, theirs, target, judge(target, ours, theirs)))
    return found


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of sorted values does not exceed (nearest rank).

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not ordered:
        raise ValueError("a percentile of no values")
    rank = -(-share * len(ordered) // 1)
    return ordered[min(len(ordered), max(1, int(rank))) - 1]
