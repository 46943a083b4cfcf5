"""Capture, server and broker killed in turns: nothing is lost, and nothing is published twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pymysql
import pytest

from capture.comparing import assert_same, envelopes, eventually
from headwater.client import UnknownTopic
from headwater.testing.mariadb import RealMariaDB
from headwater.testing.process import BrokerProcess, terminate

from .conftest import SETTINGS, Session, numbers

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]

ACCOUNTS = 60


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
                session = Session(self._url)
                while not self.ending.is_set():
                    self._work(session)
            except pymysql.err.MySQLError:
                time.sleep(0.1)  # the server was killed

    def _work(self, session: Session) -> None:
        session("BEGIN")
        if self._chance.random() < 0.005:
            for _ in range(120):
                session("UPDATE accounts SET version = version + 1")
        else:
            account = self._chance.randrange(ACCOUNTS)
            session("UPDATE accounts SET version = version + 1 WHERE id = %s", account)
        session("COMMIT")
        time.sleep(0.003)  # it should not write more than a busy machine captures


def start_capture(
    url: str, bootstrap: str, log: Path, *more: str, name: str = "bank"
) -> subprocess.Popen[bytes]:
    program = str(Path(sys.executable).with_name("headwater"))
    command = [
        program,
        "capture",
        "run",
        f"{url}#accounts",
        f"--name={name}",
        f"--broker=kafka://{bootstrap}",
        *more,
    ]
    with log.open("ab") as errors:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)


def await_ready(log: Path, begun: int) -> None:
    """Return once a capture has said so, behind what was in the log when it was started."""
    deadline = time.monotonic() + 30
    while b"ready" not in log.read_bytes()[begun:]:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def assert_published(rows: list[dict[str, Any]], bootstrap: str) -> None:
    try:
        assert_same(rows, ["id"], bootstrap, "bank.bank.accounts")
    except UnknownTopic as error:  # every capture until then was killed before it had made it
        raise AssertionError from error


def test_versions_are_in_the_topic_without_gap_and_without_repetition(
    tmp_path: Path, kind: type[RealMariaDB]
) -> None:
    seed = random.SystemRandom().randint(0, 10**9)
    chance = random.Random(seed)
    log = tmp_path / "capture.log"
    with (
        kind(settings=SETTINGS | {"sync_binlog": "1"}) as server,
        BrokerProcess(tmp_path / "broker", settings={"num.partitions": "2"}) as broker,
    ):
        url = server.database("bank")
        sql = Session(url)
        sql("CREATE TABLE accounts (id int PRIMARY KEY, version int NOT NULL)")
        sql(f"INSERT INTO accounts SELECT seq, 0 FROM {numbers(0, ACCOUNTS - 1)}")
        application = Application(url, seed)
        begun = 0
        capture = start_capture(url, broker.bootstrap, log)
        try:
            application.start()
            for turn, crash in enumerate(("capture", "server", "capture", "broker", "capture")):
                if turn % 2:  # the others are killed while they start
                    await_ready(log, begun)
                time.sleep(chance.uniform(0.3, 1.5))
                if crash == "capture":
                    capture.kill()
                    capture.wait()
                    begun = log.stat().st_size
                    capture = start_capture(url, broker.bootstrap, log)
                elif crash == "server":
                    server.kill()
                    server.start()
                else:
                    broker.kill()
                    broker.start()
            time.sleep(1)
            application.ending.set()
            application.join(20)
            rows: list[dict[str, Any]] = [
                {"id": id_, "version": version} for id_, version in Session(url)("SELECT * FROM accounts")
            ]
            eventually(lambda: assert_published(rows, broker.bootstrap), 60)
        finally:
            application.ending.set()
            terminate(capture, 20)
        versions: dict[int, list[int]] = defaultdict(list)
        for said in envelopes(broker.bootstrap, "bank.bank.accounts"):
            versions[said["after"]["id"]].append(said["after"]["version"])
    assert len(versions) == ACCOUNTS
    for account, found in versions.items():
        assert found == [*range(found[0], found[0] + len(found))], (seed, account, log.read_text())


def test_once_ends_when_all_is_published(
    tmp_path: Path, headwater_broker: BrokerProcess, url: str, sql: Session, name: str
) -> None:
    sql("CREATE TABLE accounts (id int PRIMARY KEY, version int NOT NULL)")
    sql("CREATE TABLE others (id int PRIMARY KEY AUTO_INCREMENT, note text)")
    sql("INSERT INTO accounts VALUES (1, 1)")
    log = tmp_path / "capture.log"
    for turn in range(2):
        capture = start_capture(url, headwater_broker.bootstrap, log, "--once", name=name)
        assert capture.wait(60) == 0, log.read_text()
        # More than is read in the time after which a batch comes whatever there is.
        sql(f"INSERT INTO others (note) SELECT repeat('x', 5000) FROM {numbers(1, 3000)}")
        sql("UPDATE accounts SET version = %s", turn + 2)
    capture = start_capture(url, headwater_broker.bootstrap, log, "--once", name=name)
    assert capture.wait(60) == 0, log.read_text()
    topic = f"{name}.{sql.database}.accounts"
    assert [said["after"]["version"] for said in envelopes(headwater_broker.bootstrap, topic)] == [1, 2, 3]
