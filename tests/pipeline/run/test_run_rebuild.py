"""An application on Postgres, whole: run writes its view, serve answers from it, a rebuild takes its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from headwater.client import LATEST, Cluster
from headwater.core.urls import KafkaUrl
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import BrokerProcess, free_port, terminate
from needs import need

pytestmark = [pytest.mark.real, pytest.mark.timeout(500)]

APP = """
from pyspark.sql import functions as F
from headwater import App

app = App("shop")
app.topic("orders", "order_id string, country string, amount double", key="order_id", partitions=2)


@app.view(key="country", indexes="revenue", history="1 day")
def revenue(orders):
    return orders.groupBy("country").agg(F.sum(F.col("amount") * FACTOR).alias("revenue"))
"""
SECONDS = 200.0


class Shop:
    """An application, its broker, its database and its processes."""

    def __init__(self, directory: Path, broker: BrokerProcess, views: str) -> None:
        self.file = directory / "shop.py"
        self.data = directory / "data"
        self.http = f"127.0.0.1:{free_port()}"
        self.bootstrap = broker.bootstrap
        self.processes: list[subprocess.Popen[str]] = []
        self.client = httpx.Client(base_url=f"http://{self.http}", timeout=30, trust_env=False)
        self.environment = {
            **os.environ,
            "HEADWATER_VIEWS": views,
            "HEADWATER_BROKER": f"kafka://{broker.bootstrap}",
            "PYTHONWARNINGS": "ignore::FutureWarning",
        }
        self.write(1)

    def write(self, factor: int) -> None:
        self.file.write_text(APP.replace("FACTOR", str(factor)))

    def order(self, *orders: tuple[str, str, float]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for order_id, country, amount in orders:
            value = {"order_id": order_id, "country": country, "amount": amount}
            producer.produce("orders", json.dumps(value), key=order_id)
        assert producer.flush(10) == 0

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("headwater")), *words]

    def spark(self) -> list[str]:
        return [f"--data={self.data}", "--master=local[2]"]

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*words), stdout=subprocess.PIPE, text=True, env=self.environment
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        return process

    def rebuild(self, *options: str) -> subprocess.Popen[str]:
        command = self.command("views", "rebuild", str(self.file), "revenue", *self.spark(), *options)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )
        self.processes.append(process)
        return process

    def rows(self) -> dict[str, float]:
        answer = self.client.get("/views/revenue")
        if answer.status_code == 404:
            return {}
        return {each["key"]: each["row"]["revenue"] for each in answer.json()["rows"]}

    def changes(self, since: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"/views/revenue/changes?since={since}").json()[
            "changes"
        ]
        return found

    def close(self) -> None:
        self.client.close()
        for process in self.processes:
            terminate(process, 20)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    if not RealPostgres.installed():
        need("initdb", "postgresql")
    directory = tmp_path_factory.mktemp("shop")
    with (
        BrokerProcess(directory / "broker") as broker,
        RealPostgres(settings={"fsync": "off"}) as postgres,
    ):
        shop = Shop(directory, broker, postgres.url())
        try:
            yield shop
        finally:
            shop.close()


def test_a_view_in_postgres_is_served_rebuilt_while_it_runs_and_goes_on(shop: Shop) -> None:
    run = shop.start("run", str(shop.file), *shop.spark())
    shop.start("serve", f"--http={shop.http}")
    shop.order(("1", "NL", 10), ("2", "NL", 20), ("3", "DE", 5))
    _await(lambda: shop.rows() == {"NL": 30.0, "DE": 5.0})
    token = shop.client.get("/views/revenue").json()["token"]

    # The same code: the rebuild ends with what is there, and the query that ran goes on from it.
    done = shop.rebuild()
    out, errors = done.communicate(timeout=SECONDS)
    assert (done.returncode, out) == (0, "revenue is rebuilt: 0 of its rows differ from before\n"), errors
    assert "3 of 3 records" in errors
    assert shop.changes(token) == []
    shop.order(("4", "DE", 1))
    _await(lambda: shop.rows() == {"NL": 30.0, "DE": 6.0})
    token = shop.client.get("/views/revenue").json()["token"]

    # Other code: it waits until the run with the old one ends, and readers see the differences.
    shop.write(2)
    done = shop.rebuild()
    assert done.stderr is not None
    while "has changed since `headwater run` was started" not in (line := done.stderr.readline()):
        assert line, done.stdout and done.stdout.read()
    assert shop.rows() == {"NL": 30.0, "DE": 6.0}
    terminate(run, 30)
    out, errors = done.communicate(timeout=SECONDS)
    assert (done.returncode, out) == (0, "revenue is rebuilt: 2 of its rows differ from before\n"), errors
    assert [(each["key"], each["row"]["revenue"]) for each in shop.changes(token)] == [
        ("DE", 12.0),
        ("NL", 60.0),
    ]
    versions = shop.client.get("/views/revenue/NL?history").json()["versions"]
    assert [each["row"]["revenue"] for each in versions] == [60.0, 30.0]


def test_a_rebuild_begins_at_the_offsets_that_it_is_told(shop: Shop) -> None:
    with closing(Cluster(KafkaUrl.parse(f"kafka://{shop.bootstrap}"))) as cluster:
        ends = cluster.offsets("orders", {0: LATEST, 1: LATEST})
    done = shop.rebuild(f"--offset=orders:0={ends[0]}", f"--offset=orders:1={ends[1] - 1}")
    _, errors = done.communicate(timeout=SECONDS)
    assert done.returncode == 0, errors
    assert "1 of 1 records" in errors
    assert sum(shop.rows().values()) in (2.0, 10.0, 20.0, 40.0)  # one order, doubled


def test_what_cannot_be_rebuilt_is_told_before_anything_is_touched(shop: Shop) -> None:
    for view, option, says in (
        ("revenu", "--from=earliest", "shop has no view revenu"),
        ("orders", "--from=earliest", "there are revenue"),
        ("revenue", "--offset=order:0=1", "revenue reads no topic order (did you mean orders?)"),
        ("revenue", "--offset=orders:7=1", "orders has the partitions 0 to 1, and no 7"),
        ("revenue", "--offset=orders:0=99", "orders-0 holds the offsets 0 to "),
    ):
        done = subprocess.run(
            shop.command("views", "rebuild", str(shop.file), view, *shop.spark(), option),
            env=shop.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert (done.returncode, says in done.stderr) == (1, True), done.stderr


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
