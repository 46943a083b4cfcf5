from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.client.produce import produce
from headwater.record.records import Record
from headwater.testing.process import BrokerProcess
from headwater.views import open_store

from . import two_queries
from .reading import cluster_at, committed

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

ORDERS = 40 * 6
DRIVER_DIES = (
    "topic.before_begin:2",  # behind an epoch that is done
    "topic.after_produce",
    "topic.before_commit",
    "topic.after_commit",
    "view.before_commit",
    "view.after_commit",
)
# Processes that Spark starts: one that dies fails its query, and the driver goes on with it.
WORKERS_DIE = ("topic.in_task", "source.after_read", "source.after_plan")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


def order(number: int) -> dict[str, object]:
    at = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}.000Z"
    return {"order_id": f"o{number}", "customer": f"c{number % 7}", "amount": number, "at": at}


def produce_orders(bootstrap: str, first: int = 0, count: int = ORDERS) -> None:
    with closing(cluster_at(bootstrap)) as cluster:
        cluster.ensure_topic("orders", 2)
        rows = [order(number) for number in range(first, first + count)]
        produce(
            cluster,
            "orders",
            [
                Record(
                    0, time.time_ns() // 1_000_000, str(row["order_id"]).encode(), json.dumps(row).encode()
                )
                for row in rows
            ],
        )


def assert_each_order_once(bootstrap: str, directory: Path, count: int = ORDERS) -> None:
    with closing(cluster_at(bootstrap)) as cluster:
        records = [record for some in committed(cluster, "copies").values() for record in some]
    numbers = [int((record.key or b"o-1")[1:]) for record in records]
    assert sorted(numbers) == list(range(count))
    assert [json.loads(record.value or b"") for record in records] == [order(number) for number in numbers]
    expected = {f"c{customer}": sum(range(customer, count, 7)) for customer in range(7)}
    with open_store(f"sqlite:///{directory}/views.db") as store:
        rows = {row.key: json.loads(row.row)["total"] for row in store.rows("totals")}
        followed: dict[str, str] = {}
        for change in store.changes("totals", 0):
            assert change.row is not None
            assert change.row != followed.get(change.key), "the feed tells a change twice"
            followed[change.key] = change.row
        assert {key: json.loads(row)["total"] for key, row in followed.items()} == rows
    assert rows == expected


def run(bootstrap: str, directory: Path, *kill_at: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HEADWATER_KILL_AT": ",".join(kill_at),
        "HEADWATER_KILLED": str(directory),
        "TMPDIR": str(directory.parent),  # a driver that is killed clears nothing up
    }
    command = [sys.executable, two_queries.__file__, f"kafka://{bootstrap}", str(directory)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def test_a_driver_and_workers_killed_at_each_boundary_change_nothing(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    produced = 0

    def more(epochs: int) -> None:
        nonlocal produced
        count = epochs * two_queries.ROWS_PER_EPOCH
        produce_orders(broker.bootstrap, produced, count)
        produced += count

    more(1)
    for place in DRIVER_DIES:
        # Or one query may be through when the other dies, and never come to where it is to die itself.
        more(1)
        ended = run(broker.bootstrap, directory, place)
        assert ended.returncode == -signal.SIGKILL, f"{place} was not reached:\n{ended.stderr[-3000:]}"
    more(3)
    ended = run(broker.bootstrap, directory, *WORKERS_DIE)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert all((directory / place).exists() for place in WORKERS_DIE), list(directory.iterdir())
    assert_each_order_once(broker.bootstrap, directory, produced)


def test_a_broker_killed_again_and_again_changes_nothing(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    produce_orders(broker.bootstrap)
    directory = tmp_path / "run"
    done = threading.Event()
    moments = random.Random(7)

    def crash() -> None:
        for _ in range(4):
            if done.wait(moments.uniform(0.3, 1.5)):
                return
            broker.kill()
            time.sleep(moments.uniform(0, 0.3))
            broker.start()

    crashing = threading.Thread(target=crash)
    crashing.start()
    try:
        two_queries.drain(spark, f"kafka://{broker.bootstrap}", directory)
    finally:
        done.set()
        crashing.join()
    assert_each_order_once(broker.bootstrap, directory)
