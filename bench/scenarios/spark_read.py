"""How fast a streaming query reads a topic: bytes as they are, and typed columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import SPARK, AtLeast, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import ORDERS, SparkScenario
from bench.spark.child import best_pass
from bench.spark.orders import fill

PASSES = 6


class SparkRead(SparkScenario):
    """Everything that a topic holds, into a sink that throws it away."""

    name = "spark-read"
    figures = (
        Figure("spark-raw", "raw key and value", "rows/s", Better.HIGHER, (AtLeast(2.0, SPARK),)),
        Figure("spark-json", "typed JSON", "rows/s", Better.HIGHER, (AtLeast(3.0, SPARK),)),
        Figure("spark-raw-cpu", "CPU, million raw", "s", Better.LOWER, peer=SPARK),
        Figure("spark-json-cpu", "CPU, million typed", "s", Better.LOWER, peer=SPARK),
        Figure("spark-start", "start of a query", "s", Better.LOWER, peer=SPARK),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill a topic and read it twice over."""
        orders = scale.of(ORDERS)
        fill(broker.bootstrap, orders)
        raw = best_pass(self.side, "raw", broker.bootstrap, scratch / "raw", orders, PASSES)
        typed = best_pass(self.side, "json", broker.bootstrap, scratch / "json", orders, PASSES)
        return {
            "spark-raw": raw.rate,
            "spark-json": typed.rate,
            "spark-raw-cpu": raw.cpu,
            "spark-json-cpu": typed.cpu,
            "spark-start": typed.start,
        }
