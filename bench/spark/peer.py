"""The orders through Spark's own Kafka connector, as its documentation has it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark.child import MASTER
from bench.spark.orders import EVENT_TIME, LATENESS, SCHEMA, TOPIC
from bench.spark.side import Side
from headwater.pipeline.session import SessionOptions, settings
from headwater.testing.jars import SPARK_CONNECTOR

# What a careful user of Spark on one machine sets too, so that it decides nothing; the rest are Spark's defaults,
# the state's store among them.
SAME = (
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.driver.memory",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.extraJavaOptions",
    "spark.local.dir",
    "spark.sql.warehouse.dir",
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
)


class SparkConnector(Side):
    """The side of Spark's connector."""

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self.bootstrap = bootstrap
        self.spark = open_session(scratch / "spark")

    def raw(self) -> DataFrame:
        return self._records().select("key", "value")

    def typed(self) -> DataFrame:
        parsed = F.from_json(F.col("value").cast("string"), SCHEMA)
        return self._records().select(parsed.alias("order")).select("order.*")

    def timed(self) -> DataFrame:
        return self.typed().withWatermark(EVENT_TIME, LATENESS)

    def start_topic(self, rows: DataFrame, topic: str, checkpoint: str) -> StreamingQuery:
        return (
            rows.select(F.col("order_id").alias("key"), F.to_json(F.struct("*")).alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def _records(self) -> DataFrame:
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .load()
        )


def open_session(scratch: Path) -> SparkSession:
    """Start Spark with its defaults but for the settings that both sides share."""
    scratch.mkdir(parents=True)
    shared = settings(SessionOptions("bench", scratch, MASTER))
    jars = ",".join(str(jar) for jar in sorted(SPARK_CONNECTOR.fetch().glob("*.jar")))
    builder = SparkSession.builder.appName("bench").master(MASTER).config("spark.jars", jars)
    for name in SAME:
        builder = builder.config(name, shared[name])
    return builder.getOrCreate()
