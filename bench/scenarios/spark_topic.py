"""How fast orders go from one topic to another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import SPARK, AtLeast, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import ORDERS, SparkScenario
from bench.spark.child import best_pass
from bench.spark.orders import fill

PASSES = 4


class SparkTopic(SparkScenario):
    """Typed orders with a column more, written as JSON: exactly once by Headwater, at least once by Spark's sink."""

    name = "spark-topic"
    figures = (
        Figure("spark-topic", "topic to topic", "rows/s", Better.HIGHER, (AtLeast(1.5, SPARK),)),
        Figure("spark-topic-cpu", "CPU, million from topic to topic", "s", Better.LOWER, peer=SPARK),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill a topic and copy it, in each pass to a topic of its own."""
        orders = scale.of(ORDERS)
        fill(broker.bootstrap, orders)
        best = best_pass(self.side, "topic", broker.bootstrap, scratch / "topic", orders, PASSES)
        return {"spark-topic": best.rate, "spark-topic-cpu": best.cpu}
