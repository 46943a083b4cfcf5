"""What the scenarios that compare pipelines have in common: one broker, two ways to read from it."""

from __future__ import annotations

from typing import ClassVar, Self

from bench.figures import HEADWATER, SPARK
from bench.scenarios.base import Scenario

ORDERS = 3_000_000


class SparkScenario(Scenario):
    """One kind of pipeline, through Headwater's source and sinks or through Spark's connector.

    Both sides run on Headwater's broker, so that it is the pipelines that differ.
    """

    sides: ClassVar[tuple[str, ...]] = (SPARK, HEADWATER)

    def __init__(self, side: str = HEADWATER) -> None:
        self.side = side

    def on(self, side: str) -> Self:
        """Return the scenario for one side."""
        return type(self)(side)
