"""What a driver uses that has nothing to do."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import HEADWATER, SPARK, Better, Figure, Limit
from bench.process import tree_cpu_seconds
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark.child import headwater_run, ready
from bench.spark.orders import fill

QUERIES = 8
ORDERS = 10_000
SETTLE_SECONDS = 30.0
SECONDS = 30.0


class SparkIdle(SparkScenario):
    """Eight queries in one driver, once they have read the few orders that there are."""

    name = "spark-idle"
    figures = (
        Figure(
            "spark-idle", "CPU of 8 idle queries", "% of a core", Better.LOWER, (Limit(20, "%"),), peer=SPARK
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Start the queries, let them settle, and meter the driver and the processes below it."""
        fill(broker.bootstrap, ORDERS)
        command = [
            sys.executable, "-m", "bench.spark.handwritten",
            f"--broker={broker.bootstrap}", f"--scratch={scratch}", f"--queries={QUERIES}",
        ]  # fmt: skip
        driver = (
            headwater_run("idle_app.py", broker.bootstrap, scratch)
            if self.side == HEADWATER
            else ready(command, scratch / "log")
        )
        with driver as process:
            time.sleep(SETTLE_SECONDS)
            began, before = time.monotonic(), tree_cpu_seconds(process.pid)
            time.sleep(SECONDS)
            used = tree_cpu_seconds(process.pid) - before
            return {"spark-idle": 100 * used / (time.monotonic() - began)}
