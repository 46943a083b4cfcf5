from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.client.cluster import Cluster
from headwater.client.transactions import TransactionalWriter
from headwater.pipeline.sinks import SinkError, start_topic
from headwater.pipeline.sinks.spill import Handed, Spill, directory_of
from headwater.pipeline.sinks.topic import epochs_group
from headwater.record.partitioner import partition_of
from headwater.record.records import Record
from headwater.testing.process import BrokerProcess

from .conftest import Epochs
from .reading import cluster_at, committed

pytestmark = pytest.mark.real


@pytest.fixture
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with closing(cluster_at(broker.bootstrap)) as found:
        yield found


class Query:
    """A query into a topic of its own, which can be started as often as one likes."""

    def __init__(self, broker: BrokerProcess, directory: Path, **options: Any) -> None:
        self.topic = f"out-{directory.name}"
        self.name = f"shop.{self.topic}"
        self.checkpoint = directory / "checkpoint"
        self._options = {
            "broker": f"kafka://{broker.bootstrap}",
            "topic": self.topic,
            "key": ["id"],
            "mode": "append",
            "format": "json",
            "query": self.name,
            "checkpoint": str(self.checkpoint),
            "partitions": 2,
            **options,
        }

    def run(self, frame: DataFrame) -> None:
        query = start_topic(frame, **self._options)
        try:
            query.processAllAvailable()
        finally:
            query.stop()


def records(cluster: Cluster, query: Query) -> list[Record]:
    return [record for some in committed(cluster, query.topic).values() for record in some]


def test_rows_become_json_at_the_partitions_of_their_keys(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "n": 1, "at": "2026-01-01T00:00:00.5Z"}, {"id": "b"})
    epochs.add({"id": "c", "n": 3})
    query = Query(broker, tmp_path)
    query.run(epochs.read().drop("gone"))
    found = committed(cluster, query.topic)
    assert {record.key: record.value for some in found.values() for record in some} == {
        b"a": b'{"id":"a","n":1,"at":"2026-01-01T00:00:00.500Z"}',
        b"b": b'{"id":"b"}',
        b"c": b'{"id":"c","n":3}',
    }
    for partition, some in found.items():
        assert all(partition_of(record.key or b"", 2) == partition for record in some)
    assert cluster.group_offsets(epochs_group(query.name), query.topic, [0]) == {0: 2}


def test_an_epoch_that_spark_replays_is_not_sent_again(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path)
    epochs.add({"id": "a"})
    query.run(epochs.read())
    for file in (query.checkpoint / "commits").glob("*0*"):
        file.unlink()  # what a driver that died in time leaves
    epochs.add({"id": "b"})
    query.run(epochs.read())
    assert sorted(record.key or b"" for record in records(cluster, query)) == [b"a", b"b"]


def test_a_new_checkpoint_starts_over_instead_of_skipping(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path)
    epochs.add({"id": "a"})
    epochs.add({"id": "b"})
    query.run(epochs.read())
    shutil.rmtree(query.checkpoint)
    query.run(epochs.read())
    assert sorted(record.key or b"" for record in records(cluster, query)) == [b"a", b"a", b"b", b"b"]


def test_a_driver_whose_query_was_started_elsewhere_fails(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path)
    running = start_topic(epochs.read(), **query._options)
    try:
        TransactionalWriter(cluster, query.name)
        epochs.add({"id": "a"})
        with pytest.raises(Exception, match="another producer has opened"):
            running.processAllAvailable()
    finally:
        running.stop()
    assert records(cluster, query) == []


def test_changes_carry_deletes_and_compact_the_topic(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path, mode="changes", partitions=1)
    epochs.add({"id": "a", "n": 1, "gone": False}, {"id": "b", "n": 2}, {"id": "a", "gone": True})
    query.run(epochs.read().withColumnRenamed("gone", "_deleted").drop("at"))
    assert [(record.key, record.value) for record in records(cluster, query)] == [
        (b"a", b'{"id":"a","n":1}'),
        (b"b", b'{"id":"b","n":2}'),
        (b"a", None),
    ]
    epochs.add({"n": 4})
    with pytest.raises(Exception, match=f"{query.name}: a row has no key, because id is null"):
        query.run(epochs.read().withColumnRenamed("gone", "_deleted").drop("at"))


def test_a_row_may_set_the_time_and_the_headers_of_its_record(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "at": "2026-01-01T00:00:00Z"})
    frame = epochs.read().select(
        "id", F.col("at").alias("_timestamp"), F.expr("map('trace', X'01')").alias("_headers")
    )
    query = Query(broker, tmp_path)
    query.run(frame)
    [record] = records(cluster, query)
    assert record[1:] == (1_767_225_600_000, b"a", b'{"id":"a"}', (("trace", b"\x01"),))


def test_raw_values_go_as_they_are_with_or_without_a_key(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    epochs.add({"id": "a"}, {"id": "b"})
    query = Query(broker, tmp_path, format="raw", key=[])
    query.run(epochs.read().select(F.col("id").alias("value")))
    assert sorted((record.key, record.value) for record in records(cluster, query)) == [
        (None, b"a"),
        (None, b"b"),
    ]


@pytest.mark.parametrize(
    ("format_", "problem"), [("raw", "column `value`"), ("avro", "json or raw, not as avro")]
)
def test_what_cannot_be_written_is_refused_before_anything_starts(
    epochs: Epochs, broker: BrokerProcess, tmp_path: Path, format_: str, problem: str
) -> None:
    with pytest.raises(SinkError, match=problem):
        Query(broker, tmp_path, format=format_).run(epochs.read())


def test_many_batches_go_through_files_that_are_gone_afterwards(
    epochs: Epochs, broker: BrokerProcess, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker, tmp_path)
    cluster.ensure_topic(query.topic, 2, {"max.message.bytes": "70000"})
    epochs.add({"id": "a"})
    # Random texts do not compress: 8 MB of them are more than a task hands over in its result.
    frame = (
        epochs.read()
        .select(F.explode(F.sequence(F.lit(1), F.lit(8000))).alias("i"))
        .select(F.col("i").cast("string").alias("id"), F.expr("randstr(1000)").alias("text"))
    )
    query.run(frame)
    found = records(cluster, query)
    assert sorted(int(record.key or b"") for record in found) == list(range(1, 8001))
    assert query.checkpoint.joinpath("batches").exists()
    assert list(query.checkpoint.joinpath("batches").iterdir()) == []


def test_a_checkpoint_far_away_has_no_directory_for_batches() -> None:
    assert directory_of("s3a://bucket/checkpoints/q") is None
    assert directory_of("file:///data/check%20points") == "/data/check points/batches"
    assert Spill(None, inline=0) is not None


def test_a_file_that_is_too_short_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "x.batches"
    file.write_bytes(b"12345")
    assert Handed(0, 3, None, str(file), 2).read() == b"345"
    with pytest.raises(OSError, match="ends before byte 7"):
        Handed(0, 5, None, str(file), 2).read()
