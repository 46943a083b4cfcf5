"""The source inside Spark: a stream over restarts, a batch, and Spark's own connector with the same declaration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.client import Cluster
from headwater.client.produce import produce
from headwater.client.transactions import TransactionalWriter
from headwater.core.urls import KafkaUrl
from headwater.pipeline.source import TopicSource, read_batch, read_stream
from headwater.pipeline.source.errors import SourceError
from headwater.record.records import Record, encode_batch
from headwater.testing.process import BrokerProcess
from pipeline.sinks.reading import committed

from . import with_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

SCHEMA = "id int, tags array<string>, at timestamp"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("spark") / "data") as broker:
        made = Cluster(KafkaUrl.parse(f"kafka://{broker.bootstrap}"))
        yield made
        made.close()


def put(cluster: Cluster, topic: str, *values: Any) -> None:
    cluster.ensure_topic(topic, 2)
    made = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    records = [
        Record(0, 1_700_000_000_000 + i, str(i).encode(), value, (("h", b"x"),))
        for i, value in enumerate(made)
    ]
    produce(cluster, topic, records)


def drain(frame: DataFrame, checkpoint: Path) -> list[tuple[Any, ...]]:
    """Run a query until it has read all, and return its rows."""
    rows: list[tuple[Any, ...]] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(tuple(row) for row in batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert query.exception() is None
    return sorted(rows)


def test_a_stream_goes_on_where_it_was(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topic = f"stream-{os.getpid()}"
    source = TopicSource(
        cluster.url.text(), topic, SCHEMA, metadata=("_key", "_timestamp", "_headers"),
        event_time="at", dead_letters=f"{topic}.dead", group=f"headwater.{topic}", max_rows=2,
    )  # fmt: skip
    put(
        cluster,
        topic,
        *({"id": i, "tags": ["a"], "at": f"2024-01-01T00:00:{i:02}Z"} for i in range(5)),
        b"bad",
    )
    frame = read_stream(spark, source).selectExpr("id", "cast(_key as string)", "_headers[0].name")
    assert drain(frame, tmp_path) == [(i, str(i), "h") for i in range(5)]
    put(cluster, topic, {"id": 7, "at": "2024-01-01T00:00:07Z"})
    assert drain(frame, tmp_path) == [(7, "0", "h")]
    assert sum(cluster.group_offsets(f"headwater.{topic}", topic, [0, 1]).values()) == 7
    assert cluster.partitions(f"{topic}.dead") == [0]


def test_a_batch_reads_what_is_there(spark: SparkSession, cluster: Cluster) -> None:
    topic = f"batch-{os.getpid()}"
    source = TopicSource(cluster.url.text(), topic, SCHEMA, metadata=("_partition", "_offset"))
    put(cluster, topic, *({"id": i, "tags": ["a", None]} for i in range(10)))
    rows = read_batch(spark, source).where("id >= 3").collect()
    assert sorted((row.id, row.tags, row.at) for row in rows) == [
        (i, ["a", None], None) for i in range(3, 10)
    ]
    assert len({(row._partition, row._offset) for row in rows}) == 7


def test_an_empty_topic_is_an_empty_batch(spark: SparkSession, cluster: Cluster) -> None:
    cluster.ensure_topic("empty", 2)
    assert read_batch(spark, TopicSource(cluster.url.text(), "empty", SCHEMA)).collect() == []


def test_a_password_is_not_in_the_plan(spark: SparkSession, cluster: Cluster) -> None:
    url = cluster.url.text().replace("kafka://", "kafka://ann:sesame@")
    frame = read_stream(spark, TopicSource(url, "any", SCHEMA))
    plan = frame._jdf.queryExecution().toString()
    assert "sesame" not in plan


def test_sparks_connector_without_its_jars_says_which(spark: SparkSession, cluster: Cluster) -> None:
    source = TopicSource(cluster.url.text(), "any", SCHEMA, source="jvm")
    with pytest.raises(SourceError, match=r"spark-sql-kafka-0-10_2\.13:4\.2\.0, .*commons-pool2:2\.12\.1"):
        read_stream(spark, source)


@pytest.mark.timeout(300)
def test_sparks_connector_gives_what_our_source_gives(cluster: Cluster, tmp_path: Path) -> None:
    moment = "2026-01-01T00:00:{:02}.123456Z"
    people: list[dict[str, Any]] = [
        {"id": 2**60 + n, "name": f"p{n}", "at": moment.format(n), "tags": ["a"]} for n in range(60)
    ]
    put(cluster, "people", *people[:30], b"no JSON", {"id": "text"}, {"id": 7, "at": moment.format(30)})
    with closing(Cluster(cluster.url)) as other:
        writer = TransactionalWriter(other, "people")
        for place, ends in ((30, writer.abort), (31, writer.commit)):
            writer.begin("people", [0])
            row = json.dumps(people[place]).encode()
            writer.produce("people", {0: encode_batch([Record(0, 1_700_000_000_000, b"t", row)])})
            ends()
    put(cluster, "people", *people[32:])
    command = [sys.executable, with_connector.__file__, cluster.url.text(), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    names = [json.loads(row).get("name") for row in found["jvm"]["rows"]]
    assert sorted(filter(None, names)) == sorted(each["name"] for each in people if each["name"] != "p30")
    assert names.count(None) == 1
    assert found["jvm"]["rows"] == found["arrow"]["rows"]
    assert len(found["jvm"]["windows"]) > 3
    assert found["jvm"]["windows"] == found["arrow"]["windows"]
    dead = {kind: _origins(cluster, f"dead.{kind}") for kind in ("arrow", "jvm")}
    assert len(dead["jvm"]) == 2
    assert dead["jvm"] == dead["arrow"]


def _origins(cluster: Cluster, topic: str) -> set[tuple[int, int]]:
    letters = [json.loads(record.value or b"") for record in committed(cluster, topic)[0]]
    return {(each["partition"], each["offset"]) for each in letters}
