"""Capture, database and broker killed in turns: nothing is lost, and nothing is published twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from capture.comparing import assert_same, envelopes
from headwater.client import UnknownTopic
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

ACCOUNTS = 40


class Application(threading.Thread):
    """Counts up the versions of accounts, some in small transactions, some in one that needs several batches."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self._url = url
        self._chance = random.Random(seed)

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True) as session:
                    while not self.ending.is_set():
                        self._work(session)
                        time.sleep(0.002)
            except psycopg.OperationalError:
                time.sleep(0.1)  # the server was killed

    def _work(self, session: psycopg.Connection[Any]) -> None:
        with session.transaction():
            if self._chance.random() < 0.01:
                for _ in range(100):
                    session.execute("UPDATE accounts SET version = version + 1")
            else:
                session.execute(
                    "UPDATE accounts SET version = version + 1 WHERE id = %s",
                    (self._chance.randrange(ACCOUNTS),),
                )


def start_capture(url: str, broker: BrokerProcess, log: Path) -> subprocess.Popen[bytes]:
    command = [
        str(Path(sys.executable).with_name("headwater")),
        *("capture", "run", f"{url}#accounts", "--name=bank", f"--broker=kafka://{broker.bootstrap}"),
    ]
    with log.open("ab") as errors:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)


@pytest.mark.parametrize("server", [15], indirect=True, ids=["on-postgres-15"])
def test_versions_are_in_the_topic_without_gap_and_without_repetition(
    server: RealPostgres, url: str, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randint(0, 10**9)
    chance = random.Random(seed)
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute("CREATE TABLE accounts (id int PRIMARY KEY, version int NOT NULL)")
        sql.execute(f"INSERT INTO accounts SELECT n, 0 FROM generate_series(0, {ACCOUNTS - 1}) n".encode())
    log = tmp_path / "capture.log"
    application = Application(url, seed)
    with BrokerProcess(tmp_path / "broker", settings={"num.partitions": "2"}) as broker:
        capture = start_capture(url, broker, log)

        def kill_capture() -> None:
            nonlocal capture
            capture.kill()
            capture.wait()
            capture = start_capture(url, broker, log)

        def kill_server() -> None:
            server.kill()
            time.sleep(0.3)
            server.start()

        def kill_broker() -> None:
            broker.kill()
            broker.start()

        crashes: list[Callable[[], None]] = [
            kill_capture,
            kill_server,
            kill_capture,
            kill_broker,
            kill_capture,
        ]
        try:
            application.start()
            _await_topic(broker, capture)
            for crash in crashes:
                time.sleep(chance.uniform(0.2, 1.2))
                crash()
            time.sleep(1)
            application.ending.set()
            application.join(20)
            rows = _rows(url)
            deadline = time.monotonic() + 60
            while not _is_there(rows, broker):
                assert capture.poll() is None, log.read_text()
                assert time.monotonic() < deadline, (seed, log.read_text())
                time.sleep(0.5)
        finally:
            application.ending.set()
            capture.terminate()
            capture.wait(20)
        assert_same(rows, ["id"], broker.bootstrap, "bank.public.accounts")
        versions: dict[int, list[int]] = defaultdict(list)
        for said in envelopes(broker.bootstrap, "bank.public.accounts"):
            versions[said["after"]["id"]].append(said["after"]["version"])
    # Rows that a cut-off snapshot read come again; every change comes once.
    for account, found in versions.items():
        changes = found[found.count(found[0]) :]
        first = changes[0] if changes else 0
        assert changes == [*range(first, first + len(changes))], (seed, account)
        assert first in (found[0] + 1, 0), (seed, account)


def _await_topic(broker: BrokerProcess, capture: subprocess.Popen[bytes]) -> None:
    """Return once the capture has begun: what is killed before that proves nothing."""
    deadline = time.monotonic() + 60
    while capture.poll() is None and time.monotonic() < deadline:
        try:
            envelopes(broker.bootstrap, "bank.public.accounts")
            return
        except UnknownTopic:
            time.sleep(0.1)


def _rows(url: str) -> list[dict[str, Any]]:
    with psycopg.connect(url) as sql:
        return [
            {"id": id_, "version": version}
            for id_, version in sql.execute("SELECT * FROM accounts").fetchall()
        ]


def _is_there(rows: list[dict[str, Any]], broker: BrokerProcess) -> bool:
    try:
        assert_same(rows, ["id"], broker.bootstrap, "bank.public.accounts")
    except (AssertionError, UnknownTopic):
        return False
    return True
