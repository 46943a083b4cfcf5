"""Tables read from a broker: Debezium's envelope and plain rows, deletes and dead letters, over a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater import App, lookup
from headwater.client import Cluster
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.pipeline.compile import Reading, compile_app
from headwater.pipeline.run import _make_topics
from headwater.pipeline.source import TopicSource, read_batch
from headwater.pipeline.tables import Table
from headwater.record.records import Record
from headwater.testing.process import BrokerProcess

from . import streams

pytestmark = pytest.mark.real

TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)

app = App("shop")
app.topic(
    "orders",
    "order_id string, user_id bigint, sku string, placed_at timestamp",
    key="order_id",
    event_time="placed_at",
    partitions=2,
)
app.table("users", "user_id bigint, country string", key="user_id", envelope="debezium", partitions=2)
app.table("products", "sku string, price double", key="sku", partitions=2)


@app.stream(key="order_id")
def enriched(orders: DataFrame, users: Table, products: Table) -> DataFrame:
    known = lookup(orders, users, on="user_id", as_of="placed_at", wait="1 hour")
    return lookup(known, products, on="sku").select("order_id", "country", "price")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("tables") / "data") as running:
        yield f"kafka://{running.bootstrap}"


def minutes(count: float) -> datetime:
    return TEN + timedelta(minutes=count)


def put(broker: str, topic: str, *records: tuple[Any, Any]) -> None:
    now = time.time_ns() // 1_000_000  # of old records a segment is closed, and compacted, at once
    with closing(Cluster(KafkaUrl.parse(broker))) as cluster:
        produce(cluster, topic, [Record(0, now, _bytes(key), _bytes(value)) for key, value in records])


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) or value is None else json.dumps(value).encode()


def order(number: int, user: int, at: datetime) -> tuple[Any, Any]:
    row = {
        "order_id": str(number),
        "user_id": user,
        "sku": "a" if number % 2 else "b",
        "placed_at": at.isoformat(),
    }
    return str(number).encode(), row


def user(op: str, user_id: int, country: str | None, at: datetime) -> tuple[Any, Any]:
    row = {"user_id": user_id, "country": country}
    source = {"ts_ms": int(at.timestamp() * 1000), "table": "users"}
    deleted = op == "d"
    value = {
        "before": row if deleted else None,
        "after": None if deleted else row,
        "source": source,
        "op": op,
    }
    return {"user_id": user_id}, value


def run(spark: SparkSession, broker: str, directory: Path) -> list[tuple[Any, ...]]:
    reading = Reading(broker, until_now=True, meetings=directory / "meetings")
    [query] = compile_app(spark, app, reading)
    assert set(query.topics) == {"orders", "users", "products"}
    rows = [row for _, row in streams.run(query.frame, directory / "checkpoint")]
    return sorted((int(row["order_id"]), row["country"], row["price"]) for row in rows)


def test_orders_meet_the_rows_of_two_tables(spark: SparkSession, broker: str, tmp_path: Path) -> None:
    _make_topics(app, KafkaUrl.parse(broker))
    put(
        broker,
        "users",
        user("r", 1, "DE", minutes(50)),  # read by a snapshot, and there before
        user("r", 2, "IT", minutes(50)),
        ({"user_id": 9}, b"{"),
        user("u", 1, "FR", minutes(5)),
        user("d", 2, None, minutes(6)),
        ({"user_id": 2}, None),
    )
    put(
        broker, "products", (b"a", {"sku": "a", "price": 1.5}), (b"b", {"sku": "b", "price": 2}), (b"b", None)
    )
    put(
        broker,
        "orders",
        order(1, 1, minutes(5.5)),
        order(2, 1, minutes(0)),
        order(3, 2, minutes(3)),
        order(4, 2, minutes(7)),
        order(5, 3, minutes(1)),
        *[order(number, 1, minutes(60)) for number in range(10, 18)],  # in both partitions
    )
    assert run(spark, broker, tmp_path) == [
        (1, "FR", 1.5),
        (2, "DE", None),
        (3, "IT", 1.5),
        (4, None, None),
        (5, None, 1.5),
    ]
    dead = TopicSource(broker, "shop.dead", "reason string, topic string")
    [(reason, topic)] = read_batch(spark, dead).collect()
    assert (reason.split(":")[0], topic) == ("not JSON", "users")

    put(broker, "users", user("u", 1, "ES", minutes(90)), user("c", 2, "PT", minutes(91)))
    put(broker, "products", (b"a", None), (b"b", {"sku": "b", "price": 3}))
    put(broker, "orders", order(6, 1, minutes(91)), order(7, 2, minutes(90.5)), order(8, 2, minutes(92)))
    put(broker, "orders", *[order(number, 4, minutes(120)) for number in range(20, 28)])
    waited = [(number, "FR", None if number % 2 else 3.0) for number in range(10, 18)]
    assert run(spark, broker, tmp_path) == [(6, "ES", 3.0), (7, None, None), (8, "PT", 3.0), *waited]
