"""How fast events meet ten thousand stored searches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import HEADWATER, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark import events
from bench.spark.child import state

SEARCHES = 10_000
FLATS = 400_000


class SparkSearches(SparkScenario):
    """Flats with texts of 30 words against 10,000 searches for a city, a rent, rooms and a word."""

    name = "spark-searches"
    sides = (HEADWATER,)
    figures = (
        Figure("spark-searches", "events against 10,000 searches", "events/s", Better.HIGHER),
        Figure("spark-searches-cpu", "CPU, million so matched", "s", Better.LOWER),
        Figure("spark-searches-memory", "memory so matching", "MB", Better.LOWER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill both topics and match."""
        flats = scale.of(FLATS)
        rows = events.fill_flats(broker.bootstrap, flats, SEARCHES)
        # The first batch brings the searches and makes the index.
        found = state("searches", broker.bootstrap, scratch / "searches", rows, skip=SEARCHES)
        return {
            "spark-searches": found["rate"],
            "spark-searches-cpu": found["cpu"],
            "spark-searches-memory": found["memory"],
        }
