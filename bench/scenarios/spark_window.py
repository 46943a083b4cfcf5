"""How fast a windowed aggregation with much state goes.

Spark's side is `groupBy().agg()` on its connector; ours is `summarise`, and `groupBy().agg()` on our source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import HEADWATER, SPARK, AtLeast, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import ORDERS, SparkScenario
from bench.spark.child import best_pass
from bench.spark.orders import fill

PASSES = 3


class SparkWindow(SparkScenario):
    """Sum and count of each user in windows of 10 s, where every order makes a group of its own."""

    name = "spark-window"
    figures = (
        Figure("spark-window", "10 s window by user", "rows/s", Better.HIGHER, (AtLeast(2.0, SPARK),)),
        Figure("spark-window-agg", "the same by groupBy().agg()", "rows/s", Better.HIGHER, peer=SPARK),
        Figure("spark-window-cpu", "CPU, million so aggregated", "s", Better.LOWER, peer=SPARK),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill a topic and aggregate it."""
        orders = scale.of(ORDERS)
        fill(broker.bootstrap, orders)
        plain = best_pass(self.side, "window", broker.bootstrap, scratch / "window", orders, PASSES)
        best = plain
        if self.side == HEADWATER:
            best = best_pass(self.side, "summary", broker.bootstrap, scratch / "summary", orders, PASSES)
        return {"spark-window": best.rate, "spark-window-cpu": best.cpu, "spark-window-agg": plain.rate}
