"""How fast events meet the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import HEADWATER, SPARK, AtLeast, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark import events
from bench.spark.child import state

USERS = 10_000
ORDERS = 1_000_000
ORDERS_BY_HAND = 300_000
"""Fewer, because they take so long."""


class SparkLookup(SparkScenario):
    """Orders with the newest version of their user, of 10,000, a tenth as many changes coming in beside them.

    Beside `lookup` stands `transformWithStateInPandas` by user, written by hand; both read with our source.
    """

    name = "spark-lookup"
    figures = (
        Figure("spark-lookup", "orders and changes so joined", "rows/s", Better.HIGHER, (AtLeast(1.0, SPARK),)),
        Figure("spark-lookup-cpu", "CPU, million so joined", "s", Better.LOWER, peer=SPARK),
        Figure("spark-lookup-memory", "memory so joining", "MB", Better.LOWER, peer=SPARK),
    )  # fmt: skip

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill both topics and join."""
        ours = self.side == HEADWATER
        orders = max(scale.of(ORDERS if ours else ORDERS_BY_HAND), 2 * events.BATCH)
        rows = events.fill_orders(broker.bootstrap, USERS, orders)
        # The first batch brings the users, starts Python workers and compiles.
        work = "lookup" if ours else "lookup-by-hand"
        found = state(work, broker.bootstrap, scratch / "lookup", rows, skip=events.BATCH)
        return {
            "spark-lookup": found["rate"],
            "spark-lookup-cpu": found["cpu"],
            "spark-lookup-memory": found["memory"],
        }
