"""How fast keyed state in Python is, and how it fares with millions of keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import HEADWATER, SPARK, AtLeast, Better, Figure, Limit
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark import events
from bench.spark.child import state

FEW = 10_000
MANY = 2_000_000
EVENTS = 1_000_000
PLAIN_EVENTS = 300_000
"""Fewer, because they take so long."""


class SparkKeyed(SparkScenario):
    """A count for each key, in batches of 100,000 events.

    Beside it stands `transformWithStateInPandas` by key, as its documentation has it; both read with our source.
    """

    name = "spark-keyed"
    figures = (
        Figure("spark-keyed", "state of 10,000 keys", "rows/s", Better.HIGHER, (AtLeast(8.0, SPARK),)),
        Figure("spark-keyed-cpu", "CPU, million rows so counted", "s", Better.LOWER, peer=SPARK),
        Figure("spark-keyed-memory", "memory so counting", "MB", Better.LOWER, peer=SPARK),
        Figure("spark-keyed-many", "state of 2 million keys", "rows/s", Better.HIGHER, peer=SPARK),
        Figure("spark-keyed-many-memory", "memory with 2 million keys", "MB", Better.LOWER, peer=SPARK),
        Figure(
            "spark-keyed-slower", "slower with 2 million keys", "times", Better.LOWER, (Limit(3.0, "times"),)
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Count the events of few keys, and on our side those of many too."""
        ours = self.side == HEADWATER
        rows = events.fill_keys(
            broker.bootstrap, events.FEW_KEYS, FEW, scale.of(EVENTS if ours else PLAIN_EVENTS)
        )
        # The first batch starts Python workers and compiles.
        few = state("keyed" if ours else "plain", broker.bootstrap, scratch / "few", rows, events.BATCH)
        found = {
            "spark-keyed": few["rate"],
            "spark-keyed-cpu": few["cpu"],
            "spark-keyed-memory": few["memory"],
        }
        if not ours:
            return found
        keys = scale.of(MANY)
        rows = events.fill_keys(broker.bootstrap, events.MANY_KEYS, keys, scale.of(EVENTS), all_first=True)
        many = state("keyed-many", broker.bootstrap, scratch / "many", rows, keys)
        return found | {
            "spark-keyed-many": many["rate"],
            "spark-keyed-many-memory": many["memory"],
            "spark-keyed-slower": few["rate"] / many["rate"],
        }
