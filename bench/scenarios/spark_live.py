"""How soon an order that was produced can be read in a view."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from bench.brokers import Broker
from bench.clients import create_topics
from bench.figures import HEADWATER, SPARK, AtMost, Better, Figure, percentile
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark.child import headwater_run, ready
from bench.spark.orders import PARTITIONS, TOPIC
from bench.spark.watch import RATE, Reader, Stopwatch, TableReader, ViewReader
from headwater.views import open_store

WARM_SECONDS = 20
SECONDS = 40


class SparkLive(SparkScenario):
    """A thousand orders a second, summed by window and user into a view in a SQLite file."""

    name = "spark-live"
    figures = (
        Figure(
            "spark-live-p50",
            "produced to readable at 1,000/s, p50",
            "ms",
            Better.LOWER,
            (AtMost(1.0, SPARK),),
        ),
        Figure(
            "spark-live-p99",
            "produced to readable at 1,000/s, p99",
            "ms",
            Better.LOWER,
            (AtMost(1.0, SPARK),),
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Start the pipeline, produce at an even pace and take the percentiles, the first seconds left out."""
        create_topics(broker.bootstrap, [TOPIC], PARTITIONS)
        warm = WARM_SECONDS * RATE
        with (ours if self.side == HEADWATER else by_hand)(broker.bootstrap, scratch) as reader:
            latencies = Stopwatch(broker.bootstrap, reader).latencies(warm + scale.of(SECONDS * RATE))
        ordered = sorted(latencies[warm:])
        return {"spark-live-p50": percentile(ordered, 0.50), "spark-live-p99": percentile(ordered, 0.99)}


@contextmanager
def ours(bootstrap: str, scratch: Path) -> Iterator[Reader]:
    """Run the application, and read its view."""
    with (
        headwater_run("live_app.py", bootstrap, scratch),
        open_store(f"sqlite:///{scratch}/views.db") as store,
    ):
        yield ViewReader(store, "spending")


@contextmanager
def by_hand(bootstrap: str, scratch: Path) -> Iterator[Reader]:
    """Run the query that was written by hand, and read its table."""
    command = [
        sys.executable,
        "-m",
        "bench.spark.handwritten",
        f"--broker={bootstrap}",
        f"--scratch={scratch}",
    ]
    with ready(command, scratch / "log"), closing(TableReader(scratch / "views-0.db")) as reader:
        yield reader
