"""Orders into a topic and into a view, run to the end in a process that may be killed.

It is started with a directory, in which the checkpoints and the view are, and the address of a broker. A query
that fails is started again, as `headwater run` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.pipeline import sinks
from headwater.pipeline.source import TopicSource, read_stream
from headwater.testing.app import session

ORDERS = "order_id string, customer string, amount long, at timestamp"
ROWS_PER_EPOCH = 40
TRIES = 4


def orders(spark: SparkSession, broker: str, query: str) -> DataFrame:
    source = TopicSource(
        broker=broker, topic="orders", schema=ORDERS, max_rows=ROWS_PER_EPOCH, group=f"headwater.{query}"
    )
    return read_stream(spark, source)


def start(spark: SparkSession, broker: str, directory: Path) -> list[StreamingQuery]:
    totals = orders(spark, broker, "shop.totals").groupBy("customer").agg(F.sum("amount").alias("total"))
    return [
        sinks.start_topic(
            orders(spark, broker, "shop.copies"),
            broker=broker,
            topic="copies",
            key=["order_id"],
            mode="append",
            format="json",
            query="shop.copies",
            checkpoint=str(directory / "copies"),
            partitions=2,
        ),
        sinks.start_view(
            totals,
            store_url=f"sqlite:///{directory}/views.db",
            view="totals",
            key=["customer"],
            mode="rows",
            query="shop.totals",
            checkpoint=str(directory / "totals"),
        ),
    ]


def drain(spark: SparkSession, broker: str, directory: Path) -> None:
    for attempt in range(TRIES):
        queries = start(spark, broker, directory)
        try:
            for query in queries:
                query.processAllAvailable()
            return
        except Exception:
            if attempt == TRIES - 1:
                raise
        finally:
            for query in queries:
                query.stop()


if __name__ == "__main__":
    drain(session(), sys.argv[1], Path(sys.argv[2]))
