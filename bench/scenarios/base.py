"""What every scenario offers to the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.brokers import Broker
from bench.figures import HEADWATER, KAFKA, Figure


@dataclass(frozen=True)
class Scale:
    """How much work is done: all of it, or a share for a quick look."""

    divisor: int = 1

    def of(self, count: int) -> int:
        """Return the share of a whole count, at least one.

        >>> Scale(divisor=5).of(5_000_000)
        1000000
        """
        return max(1, count // self.divisor)


class Scenario(ABC):
    """One kind of work, done on a fresh broker of each side in turn."""

    name: ClassVar[str]
    figures: ClassVar[tuple[Figure, ...]]
    sides: ClassVar[tuple[str, ...]] = (KAFKA, HEADWATER)
    optional_sides: ClassVar[tuple[str, ...]] = ()
    """Sides that are measured only when asked for, because they take long and no target needs them."""

    def on(self, side: str) -> Scenario:
        """Return the scenario as one side does it: the same for all, where it is brokers that differ."""
        return self

    @abstractmethod
    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Do the work on a running broker with empty data, and return a value for every figure it measured.

        The broker may be stopped, killed and started again; `scratch` is an empty directory of the scenario's own.
        """
