"""The orders through Headwater's source and sinks, in the session that `headwater run` opens."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark.child import MASTER
from bench.spark.orders import EVENT_TIME, LATENESS, SCHEMA, TOPIC
from bench.spark.side import Side
from headwater.app.durations import milliseconds
from headwater.pipeline.session import SessionOptions, open_session
from headwater.pipeline.sinks import start_topic
from headwater.pipeline.source import TopicSource, read_stream, register


class Headwater(Side):
    """Headwater's side."""

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self.bootstrap = bootstrap
        self._broker = f"kafka://{bootstrap}"
        self.spark: SparkSession = open_session(SessionOptions("bench", scratch / "spark", MASTER))
        register(self.spark)

    def raw(self) -> DataFrame:
        source = TopicSource(self._broker, TOPIC, "value binary", format="raw", metadata=("_key",))
        return read_stream(self.spark, source)

    def typed(self) -> DataFrame:
        return read_stream(self.spark, TopicSource(self._broker, TOPIC, SCHEMA, until_now=True))

    def timed(self) -> DataFrame:
        source = TopicSource(
            self._broker, TOPIC, SCHEMA, event_time=EVENT_TIME, lateness_ms=milliseconds(LATENESS)
        )
        return read_stream(self.spark, source)

    def start_topic(self, rows: DataFrame, topic: str, checkpoint: str) -> StreamingQuery:
        return start_topic(
            rows,
            broker=self._broker,
            topic=topic,
            key=["order_id"],
            mode="append",
            format="json",
            query=f"bench.{topic}",
            checkpoint=checkpoint,
        )
