"""The commands of an application with stores, and a SQLite file that is written to."""

from __future__ import annotations

import json
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

from click.testing import CliRunner, Result

from headwater.cli import main
from headwater.testing.process import terminate

USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT, age INT)"


def command(*words: str | Path) -> list[str]:
    return [str(Path(sys.executable).with_name("headwater")), *map(str, words)]


def run(*words: str | Path, status: int = 0) -> Result:
    """Run a command in this process, which is much faster than to start one."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        done = CliRunner().invoke(main, [*map(str, words)])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert done.exit_code == status, f"{done.output} {done.exception}"
    return done


@contextmanager
def started(*words: str | Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command(*words), env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            terminate(process, 15)
        assert process.stdout is not None
        process.stdout.close()


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ready")


def made(path: Path, rows: int = 0) -> sqlite3.Connection:
    """Return a connection to a new file with a table of users."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(USERS)
    connection.executemany(
        "INSERT INTO users VALUES (?, ?, ?)", [(n, f"user {n} example", n % 90) for n in range(rows)]
    )
    return connection


@contextmanager
def written_to(path: Path) -> Iterator[list[int]]:
    """Have rows made, changed and deleted inside the block; gives how many statements were run."""
    until, count = threading.Event(), [0]

    def write() -> None:
        draw = Random(8)
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        while not until.is_set():
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(draw.randint(1, 20)):
                key = draw.randint(0, 400)
                if draw.random() < 0.3:
                    connection.execute("DELETE FROM users WHERE id = ?", (key,))
                else:
                    values = (key, f"mail {draw.randint(0, 999)}", draw.randint(0, 99))
                    connection.execute("INSERT OR REPLACE INTO users VALUES (?, ?, ?)", values)
                count[0] += 1
            connection.execute("COMMIT")
            time.sleep(draw.random() / 50)
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield count
    finally:
        until.set()
        thread.join(30)


def verified(*words: str | Path, status: int = 0) -> list[dict[str, Any]]:
    """Return what `headwater capture verify` says."""
    lines = run("capture", "verify", "--wait", "0.2", *words, "--json", status=status).stdout.splitlines()
    return [json.loads(line) for line in lines]


def listed(*words: str | Path) -> list[dict[str, Any]]:
    """Return what `headwater derived list` says."""
    return [json.loads(line) for line in run("derived", "list", *words).stdout.splitlines()]
