"""What both sides offer, and the work that is done with it."""

from __future__ import annotations

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.clients import create_topics, end_offsets
from bench.process import tree_cpu_seconds
from bench.spark.orders import EVENT_TIME, PARTITIONS, TOPIC, WINDOW
from headwater import summarise, tumbling


class Side(ABC):
    """A session, and the orders as one side reads and writes them."""

    bootstrap: str
    spark: SparkSession

    @abstractmethod
    def raw(self) -> DataFrame:
        """Return the key and the value of every record."""

    @abstractmethod
    def typed(self) -> DataFrame:
        """Return the orders in typed columns."""

    @abstractmethod
    def timed(self) -> DataFrame:
        """Return the orders in typed columns, with a watermark."""

    @abstractmethod
    def start_topic(self, rows: DataFrame, topic: str, checkpoint: str) -> StreamingQuery:
        """Start a query that writes rows as JSON to a topic, by `order_id`."""


def spending(orders: DataFrame) -> DataFrame:
    """Return the sum and the count of each user in each window."""
    return orders.groupBy(F.window(EVENT_TIME, WINDOW), "user_id").agg(
        F.sum("amount").alias("total"), F.count("*").alias("orders")
    )


def summary(orders: DataFrame) -> DataFrame:
    """Return the same by `summarise`, once each window has closed."""
    windows = orders.transform(tumbling(EVENT_TIME, WINDOW))
    return summarise(windows, by="user_id", aggregate={"total": "sum(amount)", "orders": "count(*)"})


def gross(orders: DataFrame) -> DataFrame:
    """Return the orders as they go to another topic."""
    return orders.withColumn("gross", F.col("amount") * 1.19)


def read_raw(side: Side, checkpoint: str) -> StreamingQuery:
    """Read keys and values, and throw them away."""
    return drain(side.raw(), "append", checkpoint)


def read_json(side: Side, checkpoint: str) -> StreamingQuery:
    """Read typed columns, and throw them away."""
    return drain(side.typed(), "append", checkpoint)


def aggregate(side: Side, checkpoint: str) -> StreamingQuery:
    """Aggregate by window and user, and throw the results away."""
    return drain(spending(side.timed()), "update", checkpoint)


def summed_up(side: Side, checkpoint: str) -> StreamingQuery:
    """Sum up by window and user, and throw the results away."""
    return drain(summary(side.timed()), "append", checkpoint)


def copy(side: Side, checkpoint: str) -> StreamingQuery:
    """Read the orders and write them to a topic that is made for it."""
    topic = Path(checkpoint).name
    create_topics(side.bootstrap, [topic], PARTITIONS)
    query = side.start_topic(gross(side.typed()), topic, checkpoint)
    query.processAllAvailable()
    query.stop()
    written, read = (sum(end_offsets(side.bootstrap, [name], PARTITIONS)) for name in (topic, TOPIC))
    if written < read:
        raise RuntimeError(f"{written} of {read} orders were written")
    return query


def drain(rows: DataFrame, mode: str, checkpoint: str) -> StreamingQuery:
    """Read everything that is there now, into nothing."""
    query = (
        rows.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


WORK: dict[str, Callable[[Side, str], StreamingQuery]] = {
    "raw": read_raw,
    "json": read_json,
    "window": aggregate,
    "summary": summed_up,
    "topic": copy,
}


def passes_of(side: Side, work: str, orders: int, passes: int, scratch: Path) -> list[dict[str, float]]:
    """Do the work over and over in one session, and return what each pass measured.

    The first pass compiles and starts the Python workers, so it is not one to count.
    """
    measured = []
    for number in range(passes):
        checkpoint = scratch / f"{work}-{number}"
        began, cpu = time.monotonic(), tree_cpu_seconds(os.getpid())
        query = WORK[work](side, str(checkpoint))
        took, cpu = time.monotonic() - began, tree_cpu_seconds(os.getpid()) - cpu
        batches = sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress) / 1e3
        read = sum(progress.numInputRows for progress in query.recentProgress)
        if read < orders:
            raise RuntimeError(f"{work} read {read} of {orders} orders")
        measured.append({"rate": orders / batches, "start": took - batches, "cpu": cpu / orders * 1e6})
        shutil.rmtree(checkpoint)
    return measured
