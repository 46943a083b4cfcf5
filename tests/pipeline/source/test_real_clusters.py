"""The source inside Spark against other clusters: one that asks for TLS and a password, and Kafka itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clients.access.certificates import Authority
from clients.access.secured import PASSWORD, USER, add_user
from headwater.client import Cluster
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.pipeline.source import TopicSource, read_stream
from headwater.record.records import Record
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


def check(spark: SparkSession, url: KafkaUrl, checkpoint: Path) -> None:
    """Read a topic to its end, with a dead letter, a group and a time; then what has come since."""
    source = TopicSource(
        url.text(), "events", "id int, at timestamp", event_time="at", dead_letters="app.dead",
        group="headwater.app.query",
    )  # fmt: skip
    cluster = Cluster(url)

    def drained(*values: Any) -> list[int]:
        made = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        produce(cluster, "events", [Record(0, 1000, str(i).encode(), v) for i, v in enumerate(made)])
        ids: list[int] = []
        frame = read_stream(spark, source)
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: ids.extend(row.id for row in batch.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return sorted(ids)

    try:
        cluster.ensure_topic("events", 2)
        first = [{"id": i, "at": f"2024-01-01T00:00:{i:02}Z"} for i in range(10)]
        assert drained(*first, b"nonsense") == list(range(10))
        assert drained({"id": 10, "at": "2024-01-01T00:01:00Z"}) == [10]
        assert sum(cluster.group_offsets("headwater.app.query", "events", [0, 1]).values()) == 12
        assert cluster.partitions("app.dead") == [0]
    finally:
        cluster.close()


def test_tls_and_a_password(
    spark: SparkSession, openssl: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = Authority(openssl, tmp_path_factory.mktemp("authority"), "authority")
    certificate = authority.issue("broker")
    data = tmp_path / "data"
    add_user(data)
    options = (f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}", "--auth=sasl")
    with BrokerProcess(data, options=options) as broker:
        where = (broker.host, broker.port)
        url = KafkaUrl((where,), USER, PASSWORD, "SCRAM-SHA-512", tls=True, ca=str(authority.cert))
        check(spark, url, tmp_path / "checkpoint")


def test_kafka_itself(spark: SparkSession, java: str, tmp_path: Path) -> None:
    with RealKafka() as kafka:
        check(spark, KafkaUrl.parse(f"kafka://{kafka.bootstrap}"), tmp_path / "checkpoint")
