"""`headwater run --once`, whole: on a broker, over several runs, with an application that changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headwater.testing.process import BrokerProcess
from headwater.views import open_store

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

APP = """
from pyspark.sql import functions as F
from headwater import App

app = App("shop")
app.topic("orders", "order_id string, country string, amount double", key="order_id", partitions=2)


@app.stream(key="order_id", partitions=1)
def large(orders):
    return orders.where("amount >= 10").select("order_id", "country", "amount")


@app.view(key="country")
def revenue(large):
    return large.groupBy("country").agg(F.sum("amount").alias("revenue"))


@app.view(key="order_id")
def broken(orders):
    return orders.where(F.expr("IF(amount = 13, raise_error('no thirteen'), amount) > 0")).select("order_id")
"""


class Shop:
    """An application, its broker and its data."""

    def __init__(self, directory: Path, broker: BrokerProcess) -> None:
        self.file = directory / "shop.py"
        self.file.write_text(APP)
        self.data = directory / "data"
        self._broker = broker

    def order(self, *orders: tuple[str, str, float]) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for order_id, country, amount in orders:
            value = {"order_id": order_id, "country": country, "amount": amount}
            producer.produce("orders", json.dumps(value), key=order_id)
        assert producer.flush(10) == 0

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("headwater")), "run", str(self.file), "--once"]
        command += [f"--data={self.data}", f"--broker=kafka://{self._broker.bootstrap}", "--master=local[2]"]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore::FutureWarning"}
        return subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=self.file.parent,
            env=environment,
        )

    def rows(self, view: str) -> list[dict[str, Any]]:
        with open_store(f"sqlite:///{self.data / 'views.db'}") as store:
            return [json.loads(row.row) for row in store.rows(view)]

    def statuses(self) -> dict[str, dict[str, Any]]:
        with open_store(f"sqlite:///{self.data / 'views.db'}") as store:
            return {name: json.loads(status) for name, status in store.statuses().items()}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    directory = tmp_path_factory.mktemp("my shop")
    with BrokerProcess(directory / "broker") as broker:
        yield Shop(directory, broker)


# The tests below are one story, in their order.


def test_all_there_is_goes_through_streams_into_views(shop: Shop) -> None:
    shop.order(("1", "NL", 10), ("2", "NL", 20), ("3", "DE", 5), ("4", "DE", 40))
    done = shop.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert shop.rows("revenue") == [{"country": "DE", "revenue": 40.0}, {"country": "NL", "revenue": 30.0}]
    assert len(shop.rows("broken")) == 4
    status = shop.statuses()["shop.large"]
    assert (status["state"], status["input_rows"], status["error"]) == ("stopped", 4, None)
    assert sum(status["lag"]["orders"].values()) == 0
    left = {path.name for path in shop.file.parent.iterdir()}
    assert left & {"spark-warehouse", "metastore_db", "derby.log", "artifacts"} == set()
    assert not (shop.data / "scratch").exists()


def test_a_second_run_goes_on_and_a_failing_query_fails_alone(shop: Shop) -> None:
    shop.order(("5", "NL", 100), ("6", "NL", 13))
    done = shop.run("--from=earliest")
    assert done.returncode == 1
    assert "shop.large goes on from its checkpoint: --from is for a first start" in done.stderr
    assert "shop.broken failed: " in done.stderr
    assert "no thirteen" in done.stderr
    assert "Traceback" not in done.stderr
    assert shop.rows("revenue")[1] == {"country": "NL", "revenue": 143.0}


def test_a_change_that_cannot_go_on_is_refused_before_anything_is_touched(shop: Shop) -> None:
    changed = APP.replace('F.sum("amount")', 'F.avg("amount")').replace("amount = 13", "amount = 14")
    shop.file.write_text(changed)
    before = shop.rows("revenue"), len(shop.rows("broken"))
    done = shop.run()
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Error: shop.revenue cannot go on from its checkpoint: its state changed from aggregation by (string),"
        " holding sum as double to aggregation by (string), holding avg as double."
    )
    assert "--reset shop.revenue` starts over" in done.stderr
    assert (shop.rows("revenue"), len(shop.rows("broken"))) == before


def test_reset_starts_one_query_over_and_a_corrected_one_goes_on(shop: Shop) -> None:
    done = shop.run("--reset=revenue")
    assert (done.returncode, done.stderr) == (0, "")
    assert shop.rows("revenue") == [
        {"country": "DE", "revenue": 40.0},
        {"country": "NL", "revenue": pytest.approx(143 / 4)},
    ]
    assert len(shop.rows("broken")) == 6


def test_doctor_has_a_sentence_for_each(shop: Shop) -> None:
    command = [
        str(Path(sys.executable).with_name("headwater")),
        "doctor",
        str(shop.file),
        f"--data={shop.data}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["shop.large", "shop.revenue", "shop.broken"]
    assert all(" was stopped " in line for line in lines)


def test_what_cannot_run_is_one_line(shop: Shop, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        textwrap.dedent('from headwater import App\napp = App("x")\n@app.view(key="a")\ndef v(none): ...\n')
    )
    command = [
        str(Path(sys.executable).with_name("headwater")),
        "run",
        str(bad),
        f"--data={tmp_path / 'data'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {bad}:3: v reads none, which is not declared")
