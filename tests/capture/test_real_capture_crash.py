"""Whatever is killed, whenever: nothing is lost, and nothing is published twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.testing.process import BrokerProcess, terminate

from .comparing import assert_same, parse, read
from .sqlite_model import make, table_rows

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT UNIQUE, age INT)"
BOUNDARIES = ["after_produce", "before_commit", "after_commit", "after_acknowledge"]


def command(path: Path, name: str, bootstrap: str, *more: str) -> list[str]:
    program = str(Path(sys.executable).with_name("headwater"))
    address = f"sqlite:///{path}#users"
    return [program, "capture", "run", address, f"--name={name}", f"--broker=kafka://{bootstrap}", *more]


@contextmanager
def capturing(path: Path, name: str, bootstrap: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command(path, name, bootstrap), env={**os.environ, **environment}, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        terminate(process, 10)
        assert process.stdout is not None
        process.stdout.close()


def drain(path: Path, name: str, bootstrap: str) -> None:
    done = subprocess.run(
        command(path, name, bootstrap, "--once"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def assert_once(path: Path, name: str, bootstrap: str) -> None:
    """Fail unless the topic has every row of the snapshot and every change that was noted, once."""
    topic = f"{name}.main.users"
    with sqlite3.connect(path) as connection:
        assert_same(table_rows(connection, path, "users"), ["id"], bootstrap, topic)
        [noted] = connection.execute("SELECT coalesce(max(seq), 0) FROM _headwater_changes").fetchone()
    connection.close()
    values = [parse(record.value) for record in read(bootstrap, topic) if record.value is not None]
    changes = [(value["source"]["seq"], value["op"]) for value in values if value["op"] != "r"]
    read_rows = [value["after"]["id"] for value in values if value["op"] == "r"]
    assert len(changes) == len(set(changes))
    assert len(read_rows) == len(set(read_rows))
    # Changes of rows that the snapshot had yet to read are in what it read.
    snapshot_at = max((value["source"]["seq"] for value in values if value["op"] == "r"), default=0)
    missing = set(range(snapshot_at + 1, noted + 1)) - {seq for seq, _ in changes}
    assert missing == set()


def write(path: Path, seed: int, until: threading.Event, busy: list[int]) -> None:
    """Write what comes to mind, in transactions of a few statements, until told to end."""
    draw = Random(seed)
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    while not until.is_set():
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(draw.randint(1, 20)):
            statement, values = _statement(draw)
            try:
                connection.execute(statement, values)
            except sqlite3.IntegrityError:
                continue
        connection.execute(draw.choice(["COMMIT"] * 9 + ["ROLLBACK"]))
        busy[0] += 1
        time.sleep(draw.random() / 50)
    connection.close()


def _statement(draw: Random) -> tuple[str, tuple[Any, ...]]:
    key, mail, age = draw.randint(1, 500), f"{draw.randint(1, 300)}@x", draw.randint(0, 99)
    return draw.choice(
        [
            ("INSERT INTO users VALUES (?, ?, ?)", (key, mail, age)),
            ("INSERT OR REPLACE INTO users VALUES (?, ?, ?)", (key, mail, age)),
            ("INSERT INTO users VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET age = 1", (key, mail, age)),
            ("UPDATE users SET age = ? WHERE id = ?", (age, key)),
            ("UPDATE OR REPLACE users SET id = ? WHERE id = ?", (key, age)),
            ("DELETE FROM users WHERE id = ?", (key,)),
        ]
    )


@contextmanager
def writers(path: Path, count: int = 2) -> Iterator[list[int]]:
    """Let so many threads write inside the block; gives how many transactions they made."""
    until, busy = threading.Event(), [0]
    threads = [threading.Thread(target=write, args=(path, seed, until, busy)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield busy
    finally:
        until.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.parametrize(
    ("boundary", "times"), [("before_commit", 1), *((boundary, 2) for boundary in BOUNDARIES)]
)
def test_killed_at_every_boundary(
    headwater_broker: BrokerProcess, name: str, tmp_path: Path, boundary: str, times: int
) -> None:
    path, bootstrap = tmp_path / "shop.db", headwater_broker.bootstrap
    make(path, USERS, "INSERT INTO users VALUES (1, 'a', 1), (2, 'b', 2)", journal="delete").close()
    with (
        writers(path, 1),
        capturing(path, name, bootstrap, HEADWATER_KILL_AT=f"capture.{boundary}:{times}") as process,
    ):
        assert process.wait(30) == -signal.SIGKILL
    drain(path, name, bootstrap)
    assert_once(path, name, bootstrap)


def test_capture_and_broker_killed_at_random(name: str, tmp_path: Path) -> None:
    draw = Random(20_261_116)
    path = tmp_path / "shop.db"
    make(path, USERS).close()
    with BrokerProcess(tmp_path / "data") as broker:
        with writers(path) as busy:
            for turn in range(6):
                with capturing(path, name, broker.bootstrap) as process:
                    time.sleep(draw.uniform(0.8, 2.0))
                    if turn % 2:
                        broker.kill()
                        time.sleep(draw.uniform(0, 0.5))
                        broker.start()
                        time.sleep(draw.uniform(0.5, 2.0))
                        assert process.poll() is None, "a broker that comes back ends no capture"
                    process.kill()
                    process.wait()
        assert busy[0] > 50
        drain(path, name, broker.bootstrap)
        assert_once(path, name, broker.bootstrap)


def test_it_goes_on_by_itself_when_the_broker_is_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    writer = make(path, USERS)
    with BrokerProcess(tmp_path / "data") as broker, capturing(path, name, broker.bootstrap) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        writer.execute("INSERT INTO users VALUES (1, 'a', 1)")
        time.sleep(0.5)
        broker.kill()
        writer.execute("INSERT INTO users VALUES (2, 'b', 2)")
        time.sleep(1)
        broker.start()
        writer.execute("INSERT INTO users VALUES (3, 'c', 3)")
        deadline = time.monotonic() + 60
        topic = f"{name}.main.users"
        while len(read(broker.bootstrap, topic)) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        process.terminate()
        assert process.wait(15) == 0
        assert_once(path, name, broker.bootstrap)
