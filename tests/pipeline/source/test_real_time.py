"""Time in queries over several topics: after a restart, and while one of them is silent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.client import Cluster
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.pipeline.joins import join_within
from headwater.pipeline.source import TopicSource, read_stream
from headwater.record.records import Record
from headwater.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.real

SECONDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("time") / "data") as broker:
        made = Cluster(KafkaUrl.parse(f"kafka://{broker.bootstrap}"))
        yield made
        made.close()


def declare(cluster: Cluster, topic: str, time: str) -> TopicSource:
    cluster.ensure_topic(topic, 1)
    return TopicSource(cluster.url.text(), topic, f"id int, {time} timestamp", event_time=time)


def put(cluster: Cluster, source: TopicSource, *events: tuple[int, str]) -> None:
    values = [json.dumps({"id": number, source.event_time: f"2024-01-01T{at}Z"}) for number, at in events]
    produce(cluster, source.topic, [Record(0, 1000, b"k", value.encode()) for value in values])


def started(frame: DataFrame, checkpoint: Path, rows: list[Any], **trigger: Any) -> StreamingQuery:
    return (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(tuple(row) for row in batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )


def test_time_goes_on_after_a_restart_though_a_topic_is_silent(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    from pyspark.sql.functions import window

    ours, theirs = declare(cluster, "ours", "at"), declare(cluster, "theirs", "at")
    both = read_stream(spark, ours).union(read_stream(spark, theirs))
    hours = both.groupBy(window("at", "1 hour")).count().select("window.start", "count")

    def drained() -> list[tuple[str, int]]:
        rows: list[Any] = []
        query = started(hours, tmp_path, rows, availableNow=True)
        assert query.awaitTermination(SECONDS)
        return [(start.isoformat()[11:16], count) for start, count in rows]

    put(cluster, ours, (1, "00:10:00"))
    put(cluster, theirs, (2, "05:00:00"))
    assert drained() == []
    put(cluster, ours, (3, "02:00:00"))
    assert drained() == [("00:00", 1)]


def test_what_has_no_partner_comes_out_while_the_other_topic_is_silent(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    meeting = str(tmp_path / "meeting")
    orders, payments = declare(cluster, "orders", "placed_at"), declare(cluster, "payments", "paid_at")
    together: dict[str, Any] = {"watch": ("orders", "payments"), "meeting": meeting}
    left = read_stream(spark, replace(orders, **together))
    right = read_stream(spark, replace(payments, idle_ms=1_000, **together))
    joined = join_within(left, right, on="id", within="15 minutes", how="left").select("id", "paid_at")
    rows: list[Any] = []
    put(cluster, orders, (1, "00:00:00"), (2, "01:00:00"))
    query = started(joined, tmp_path / "checkpoint", rows, processingTime="0 seconds")
    try:
        deadline = time.monotonic() + SECONDS
        while not rows and time.monotonic() < deadline and query.isActive:
            time.sleep(0.1)
    finally:
        query.stop()
    assert rows == [(1, None)]
