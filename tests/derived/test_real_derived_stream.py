"""Stores of a stream of changes that Spark writes: topic, stream, index and cache, end to end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headwater.derived.cache_file import FileCache
from headwater.derived.search import Search
from headwater.testing.process import BrokerProcess

from .running import listed, ready, started

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

APP = """
from pyspark.sql import functions as F
from headwater import App

app = App("shop{table}")
app.topic("{table}", "price double, at timestamp, amount int, note string",
          event_time="at", lateness="1 hour", partitions=1)


@app.stream(key=["price", "at"], mode="changes", partitions=2)
def prices_{table}({table}):
    return {table}.select("*", (F.col("amount") == 0).alias("_deleted"))


app.index("search", of="prices_{table}", text="note",
          schema="price double, at timestamp, amount int, note string")
app.cache("prices", of="prices_{table}")
"""
TIMES = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:01Z"]


def order(price: float, at: str, amount: int, note: str = "") -> bytes:
    return json.dumps({"price": price, "at": at, "amount": amount, "note": note}).encode()


def until(found: Callable[[], Any], wanted: Any, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while (last := found()) != wanted:
        assert time.monotonic() < deadline, last
        time.sleep(0.2)


def test_an_index_and_a_cache_follow_a_stream_that_spark_writes(
    broker: BrokerProcess, table: str, tmp_path: Path
) -> None:
    app_file = tmp_path / "shop.py"
    app_file.write_text(APP.format(table=table))
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(*orders: bytes) -> None:
        for each in orders:
            producer.produce(table, each, partition=0)
        assert producer.flush(20) == 0

    def amounts() -> list[int]:
        path = tmp_path / "derived" / "prices.db"
        if not path.exists():
            return []
        store = FileCache(path)
        try:
            return sorted(json.loads(row)["amount"] for _, row in store.rows())
        finally:
            store.close()

    def found(query: str) -> list[int]:
        hits = Search(tmp_path / "derived" / "search").find(query, limit=9).hits
        return sorted(hit.row["amount"] for hit in hits)

    with (
        started("run", app_file, address, data, "--master=local[2]"),
        started("derived", "run", app_file, address, data) as derived,
    ):
        ready(derived)
        until(lambda: is_there(broker, table), True)
        send(
            order(1e10, TIMES[0], 3, "quick fox"),
            order(0.1, TIMES[1], 4, "slow bear"),
            order(12.5, TIMES[2], 5, "quick bear"),
        )
        until(amounts, [3, 4, 5])
        until(lambda: found("quick"), [3, 5])
        assert found("price:>1") == [3, 5]
        # An update, and deletes: keys of every form name the row that was made before.
        send(order(1e10, TIMES[0], 0), order(0.1, TIMES[1], 7, "quick again"), order(12.5, TIMES[2], 0))
        until(amounts, [7])
        until(lambda: found("*"), [7])
        assert found("quick") == [7]
    stores = listed(app_file, address, data)
    assert [(row["rows"], row["unreadable"]) for row in stores] == [(1, 0), (1, 0)]


def is_there(broker: BrokerProcess, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
