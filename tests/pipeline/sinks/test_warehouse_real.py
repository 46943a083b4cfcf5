"""A warehouse that Spark writes holds what its topic says, and what the other engine makes of the same topic."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.app import App, Warehouse
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.derived.errors import DerivedError
from headwater.derived.follower import Follower
from headwater.derived.stores import columns_of, stream_of
from headwater.derived.warehouse import Warehouse as Store
from headwater.pipeline.sinks import start_warehouse, warehouse
from headwater.pipeline.sinks.warehouse_rows import rows_of
from headwater.pipeline.warehouse_rebuild import build_anew
from headwater.record.records import Record
from headwater.testing.process import BrokerProcess

from .reading import cluster_at, committed

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

_serial = itertools.count(1)
Rows = dict[int, tuple[str, str]]


class Shop:
    """A topic of rows, the model of what they are, and the two engines that follow it."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, directory: Path, envelope: str) -> None:
        self.spark, self.directory = spark, directory
        self.url = f"kafka://{broker.bootstrap}"
        self.bootstrap = broker.bootstrap
        self.topic = f"people_{next(_serial)}"
        self.debezium = envelope == "debezium"
        self.app = App(f"shop{next(_serial)}")
        self.app.table(self.topic, "id bigint, name string, paid decimal(8,2)", key="id", envelope=envelope)  # type: ignore[arg-type]
        self.definition = self.app.warehouse("files", of=self.topic, every="0 seconds")
        self.model: Rows = {}
        with closing(cluster_at(self.bootstrap)) as cluster:
            cluster.ensure_topic(self.topic, 3)
            cluster.ensure_topic(self.app.dead_letters, 1)

    def store(self, name: str = "spark", bucket_rows: int = 20) -> Store:
        columns = columns_of(self.app, self.definition)
        return Store("files", self.directory / name, columns, gather_seconds=0, bucket_rows=bucket_rows)

    def change(self, draw: Random, count: int) -> None:
        """Put, change and delete rows at random."""
        records: list[Record] = []
        for _ in range(count):
            key = draw.randrange(150)
            name, paid = f"name {draw.randrange(999)}", f"{draw.randrange(9999)}.5"
            before = self._json(key)
            if draw.random() < 0.3:
                self.model.pop(key, None)
                records += self._deleted(key, before)
            else:
                self.model[key] = (name, paid)
                op = "u" if before else "c"
                row = {"before": before, "after": self._json(key), "source": {}, "op": op, "ts_ms": 1}
                records.append(_record(key, row if self.debezium else self._json(key)))
        self.send(records)

    def send(self, records: Iterable[Record]) -> None:
        with closing(cluster_at(self.bootstrap)) as cluster:
            produce(cluster, self.topic, list(records))

    def drain(self, store: Store) -> None:
        """Let Spark read all there is."""
        self.start(store, until_now=True).stop()

    def start(self, store: Store, *, until_now: bool) -> StreamingQuery:
        """Return a query that has read all there is."""
        read = rows_of(self.app, self.definition, broker=self.url, query="files", until_now=until_now)
        checkpoint = str(self.directory / "checkpoint")
        for _ in range(4):
            query = start_warehouse(self.spark, read, store, query="files", checkpoint=checkpoint, every_ms=0)
            try:
                query.processAllAvailable()
                return query
            except StreamingQueryException as error:
                query.stop()
                # Spark gives the process of a source ten seconds, which a busy machine may not.
                if "failed to connect back" not in str(error):
                    raise
        raise AssertionError("the source's process does not come up")

    def follow(self, store: Store) -> None:
        """Let the other engine read all there is."""
        stream, broker = stream_of(self.app, self.definition), KafkaUrl.parse(self.url)
        Follower("files", stream, store, broker, dead_letters=self.app.dead_letters).run(until_end=True)

    def expected(self) -> dict[str, tuple[int, str, str]]:
        return {str(key): (key, name, f"{paid}0") for key, (name, paid) in self.model.items()}

    def _json(self, key: int) -> dict[str, Any] | None:
        if key not in self.model:
            return None
        name, paid = self.model[key]
        return {"id": key, "name": name, "paid": float(paid)}

    def _deleted(self, key: int, before: dict[str, Any] | None) -> list[Record]:
        if not self.debezium:
            return [_record(key, None)]
        row = {"before": before, "after": None, "source": {}, "op": "d", "ts_ms": 1}
        return [_record(key, row), _record(key, None)]


def _record(key: object, value: Mapping[str, Any] | None) -> Record:
    text = None if value is None else json.dumps(value, separators=(",", ":")).encode()
    return Record(0, 1_700_000_000_000, json.dumps({"id": key}).encode(), text)


def in_duckdb(directory: Path) -> dict[str, tuple[int, str, str]]:
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT _key, id, name, paid::varchar FROM read_parquet('{directory}/current/*.parquet')"
        ).fetchall()
    assert len({row[0] for row in found}) == len(found), "a key is there twice"
    return {key: (number, name, paid) for key, number, name, paid in found}


Opening = Callable[[str], Shop]


@pytest.fixture
def opening(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Opening:
    return lambda envelope: Shop(spark, broker, tmp_path, envelope)


@pytest.mark.parametrize("envelope", ["flat", "debezium"])
def test_changes_at_random_over_restarts(opening: Opening, envelope: str) -> None:
    shop = opening(envelope)
    draw = Random(envelope)
    store = shop.store()
    shop.drain(store)
    assert in_duckdb(store.directory) == {}, "an empty topic makes files that can be read"
    buckets = set()
    for count in (80, 300):
        shop.change(draw, count)
        shop.drain(store)
        assert in_duckdb(store.directory) == shop.expected()
        version = store.versions.live()
        assert version is not None
        buckets.add(len(version.rows))
    assert len(buckets) > 1, "parts were split"
    # The other engine makes the same of it, and goes on where this one is.
    other = shop.store("process")
    shop.follow(other)
    assert dict(other.rows()) == dict(store.rows())
    assert other.position() == store.position()
    shop.change(draw, 30)
    shop.follow(store)
    shop.change(draw, 30)
    shop.drain(store)
    assert in_duckdb(store.directory) == shop.expected()


def test_what_the_files_have_is_known_by_its_position(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = opening("flat")
    store = shop.store(bucket_rows=1000)
    shop.change(Random(1), 50)
    shop.drain(store)
    first = store.versions.live()
    # The query dies before the link is there, and after it: Spark does not know that the batch is done.
    for place in ("warehouse.before_commit", "warehouse.after_commit"):
        shop.change(Random(place), 20)

        def die(name: str, place: str = place) -> None:
            if name == place:
                raise RuntimeError("killed")

        with monkeypatch.context() as patch:
            patch.setattr(warehouse, "boundary", die)
            with pytest.raises(StreamingQueryException, match="killed"):
                shop.drain(store)
        done = store.versions.live()
        assert (done == first) == (place == "warehouse.before_commit")
        shop.drain(store)
        again = store.versions.live()
        assert (done == again) == (place == "warehouse.after_commit"), "nothing is written twice"
        assert in_duckdb(store.directory) == shop.expected()
        first = again
    # Another process is ahead: what it has is left out, and files that went back are seen.
    query = shop.start(store, until_now=False)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(warehouse.WarehouseWriter, "write", _after(shop, store))
            shop.change(Random(5), 20)
            query.processAllAvailable()
        assert in_duckdb(store.directory) == shop.expected()
        shop.change(Random(6), 20)
        query.processAllAvailable()
        assert in_duckdb(store.directory) == shop.expected()
        shutil.rmtree(store.directory)
        shop.change(Random(7), 20)
        with pytest.raises(StreamingQueryException, match="not where it was left"):
            query.processAllAvailable()
    finally:
        query.stop()
    shop.drain(store)
    assert in_duckdb(store.directory) == shop.expected()


def _after(shop: Shop, store: Store) -> Callable[..., None]:
    """Return a `write` that comes after another process has read the topic to its end."""
    write = warehouse.WarehouseWriter.write

    def late(self: warehouse.WarehouseWriter, *words: Any, **options: Any) -> None:
        shop.follow(shop.store(bucket_rows=1000))
        before = store.versions.live()
        write(self, *words, **options)
        assert store.versions.live() == before

    return late


def test_built_anew_beside_the_live_one(opening: Opening) -> None:
    shop = opening("debezium")
    store = shop.store()
    shop.change(Random(2), 200)
    shop.drain(store)
    # What is in the files and not in the log is gone afterwards.
    base = store.position()
    assert base is not None
    ghost = {"ghost": [1, "ghost", None]}
    store.apply(ghost, base, base.moved({}))
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        if not seen:
            shop.change(Random(3), 100)
            shop.drain(store)  # and the live one goes on
        seen.append((done, total))
        assert "ghost" in in_duckdb(store.directory), "the old one is read until the new one is there"

    read = rows_of(shop.app, shop.definition, broker=shop.url, query="files")
    rows = build_anew(shop.spark, store, read, report)
    assert in_duckdb(store.directory) == shop.expected()
    assert rows == len(shop.model)
    assert seen[-1][0] == seen[-1][1] > 0
    shop.change(Random(4), 50)
    shop.drain(store)
    assert in_duckdb(store.directory) == shop.expected()
    # Whoever declares other columns is told what to do.
    other = Store("files", store.directory, store.columns[:2])
    with pytest.raises(DerivedError, match=r"made with other columns.*derived rebuild APP files"):
        warehouse.begin(other, read.source)


def test_keys_whose_text_depends_on_how_they_were_written(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = f"readings_{next(_serial)}"
    app = App(f"shop{next(_serial)}")
    app.table(topic, "at timestamp, price decimal(10,3), place string, n int", key=["at", "price", "place"])
    definition: Warehouse = app.warehouse("files", of=topic)
    rows = [
        {"at": "2026-01-01T00:00:00Z", "price": 1.50, "place": "a,b", "n": 1},
        {"at": "2026-01-01T00:00:00Z", "price": "1.5", "place": "a,b", "n": 2},
        {"at": "2026-01-01T01:00:00+01:00", "price": 2, "place": "%", "n": 3},
        {"at": "2026-01-01T00:00:00Z", "price": 3, "place": "gone", "n": 4},
        {"at": "never", "price": 3, "place": "x", "n": 5},
        {"at": None, "price": 3, "place": "x", "n": 6},
    ]
    records = [Record(0, n, b"k", json.dumps(row).encode()) for n, row in enumerate(rows)]
    gone = {"at": "2026-01-01T00:00:00Z", "price": "3.000", "place": "gone"}
    records.append(Record(0, 9, json.dumps(gone).encode(), None))
    records.append(Record(0, 9, b"k", b"no row"))
    with closing(cluster_at(broker.bootstrap)) as cluster:
        for name in (topic, app.dead_letters):
            cluster.ensure_topic(name, 1)
        produce(cluster, topic, records)
    url = f"kafka://{broker.bootstrap}"
    columns = columns_of(app, definition)
    store = Store("files", tmp_path / "spark", columns)
    read = rows_of(app, definition, broker=url, query="files", until_now=True)
    query = start_warehouse(spark, read, store, query="files", checkpoint=str(tmp_path / "c"), every_ms=0)
    query.processAllAvailable()
    query.stop()
    assert sorted(row[3] for row in dict(store.rows()).values()) == [2, 3]
    with closing(cluster_at(broker.bootstrap)) as cluster:
        letters = [each for some in committed(cluster, app.dead_letters).values() for each in some]
    reasons = [json.loads(each.value or b"")["reason"] for each in letters]
    assert len(reasons) == 3
    for reason, said in zip(reasons, ("at: ", "the row has no at", "not JSON"), strict=True):
        assert said in reason
    other = Store("files", tmp_path / "process", columns)
    stream = stream_of(app, definition)
    Follower("files", stream, other, KafkaUrl.parse(url), dead_letters=app.dead_letters).run(until_end=True)
    assert dict(store.rows()) == dict(other.rows())
