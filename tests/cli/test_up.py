"""`headwater up`, whole: records in by HTTP, rows out by HTTP, Ctrl-C, and on from there."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.testing.process import free_port, terminate

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
APP = """
from pyspark.sql import functions as F
from headwater import App

app = App("shop")
app.topic("orders", "order_id string, country string, amount double", key="order_id", partitions=2)


@app.view(key="country")
def revenue(orders):
    return orders.groupBy("country").agg(F.sum("amount").alias("revenue"))


app.table("customers", key="id", source="sqlite:///shop.db#people", partitions=1)


@app.view(key="id", mode="changes")
def names(customers):
    return customers.changes.select("id", "name", "_deleted")
"""


class Up:
    """`headwater up` on an application, with the processes below it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.app = directory / "shop.py"
        self.app.write_text(APP)
        self.sql(
            "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO people VALUES (1, 'Ann')"
        )
        self.http, self.kafka, self.amqp = free_port(), free_port(), free_port()
        self.process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        options = [f"--data={self.directory / 'data'}", f"--http=127.0.0.1:{self.http}", "--master=local[2]"]
        options += [f"--kafka=127.0.0.1:{self.kafka}", f"--amqp=127.0.0.1:{self.amqp}"]
        return [HEADWATER, "up", str(self.app), *options]

    def start(self) -> None:
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.directory
            )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        places = f"(Kafka at 127.0.0.1:{self.kafka}, AMQP at 127.0.0.1:{self.amqp})"
        assert ready == f"ready http://127.0.0.1:{self.http}/ {places}\n", self.log()

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit status."""
        assert self.process is not None
        with self.process as process:  # which closes the pipe
            process.send_signal(number)
            return process.wait(30)

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def family(self) -> list[int]:
        """Return the process and all below it."""
        assert self.process is not None
        return _family(self.process.pid)

    def post(self, *orders: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(f"http://127.0.0.1:{self.http}/topics/orders", json=list(orders), timeout=30)
        assert answer.is_success, answer.text
        said: dict[str, Any] = answer.json()
        return said

    def get(self, view: str, key: str, **options: str) -> dict[str, Any]:
        """Ask for a row; waiting is for the server."""
        options = {"timeout": "30", **options}
        answer = httpx.get(f"http://127.0.0.1:{self.http}/views/{view}/{key}", params=options, timeout=60)
        found: dict[str, Any] = answer.json()
        return found

    def sql(self, *statements: str) -> Any:
        """Use the database whose table is captured; return the last statement's value."""
        with closing(sqlite3.connect(self.directory / "shop.db", isolation_level=None)) as database:
            for statement in statements:
                row = database.execute(statement).fetchone()
        return None if row is None else row[0]

    def await_row(self, view: str, key: str, value: object, seconds: float = 90) -> None:
        """Return once a row of a view has a value in the column that the view is about."""
        column = {"revenue": "revenue", "names": "name"}[view]
        deadline = time.monotonic() + seconds
        while True:
            answer = httpx.get(f"http://127.0.0.1:{self.http}/views/{view}/{key}", timeout=30)
            if answer.status_code == 200 and value == _find(answer.json(), column):
                return
            assert time.monotonic() < deadline, f"{answer.text}\n{self.log()}"
            time.sleep(0.1)


def _find(document: Any, name: str) -> Any:
    if isinstance(document, dict):
        return document.get(name, _find(document.get("row"), name))
    return None


def _family(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(below for child in listed for below in _family(int(child)))]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _await_gone(pids: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if _is_running(pid)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path)
    yield up
    if up.process is not None:
        family = up.family()
        with up.process:
            terminate(up.process, 20)
        for pid in family:
            if _is_running(pid):
                os.kill(pid, signal.SIGKILL)


def test_records_in_rows_out_and_on_from_there(up: Up) -> None:
    up.start()
    up.post(
        {"order_id": "1", "country": "NL", "amount": 10.0}, {"order_id": "2", "country": "NL", "amount": 5.0}
    )
    up.await_row("revenue", "NL", 15.0)
    up.await_row("names", "1", "Ann")

    # Whoever writes can wait for it, also in the database.
    written = up.post({"order_id": "0", "country": "DE", "amount": 2.0})
    assert _find(up.get("revenue", "DE", wait=written["token"]), "revenue") == 2.0
    up.sql("UPDATE people SET name = 'Anne'")
    number = up.sql("SELECT max(seq) FROM _headwater_changes")
    assert _find(up.get("names", "1", wait=f"shop.shop@{number}"), "name") == "Anne"
    assert (
        "has not passed 1000000 yet" in up.get("names", "1", wait="shop.shop@1000000", timeout="0")["error"]
    )
    assert "no capture named other" in up.get("names", "1", wait="other@1")["error"]
    assert "does not read" in up.get("revenue", "DE", wait=f"shop.shop@{number}", timeout="0")["error"]

    family = up.family()
    assert len(family) > 4
    began = time.monotonic()
    assert up.end(signal.SIGINT) == 0
    assert time.monotonic() - began < 10
    _await_gone(family, 5)
    assert "Traceback" not in up.log()

    up.sql("UPDATE people SET name = 'Amy'")
    up.start()
    up.post({"order_id": "3", "country": "NL", "amount": 1.0})
    up.await_row("revenue", "NL", 16.0)
    up.await_row("names", "1", "Amy")
    family = up.family()
    up.end(signal.SIGKILL)
    _await_gone(family, 15)


def test_a_port_that_is_taken_is_one_line(up: Up) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        up.http = taken.getsockname()[1]
        done = subprocess.run(up.command(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: 127.0.0.1:{up.http} cannot be listened on (Address already in use): stop what does,"
        " or give another address with --http\n"
    )


def test_an_application_that_is_wrong_is_one_line(up: Up) -> None:
    up.app.write_text(APP.replace("def revenue(orders)", "def revenue(order)"))
    done = subprocess.run(up.command(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "revenue reads order, which is not declared (did you mean orders?)" in done.stderr
    assert not (up.directory / "data").exists()
