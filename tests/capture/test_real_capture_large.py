"""One transaction far larger than what capture may take: its memory stays as it is, and a kill repeats nothing."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pymysql
import pytest

from headwater.capture.reading import await_decided, records_of
from headwater.client import Cluster, UnknownTopic
from headwater.core.urls import KafkaUrl
from headwater.testing.mysql import RealMySQL
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import BrokerProcess, terminate
from needs import need, need_mysql

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

ROWS, BYTES = 200, 1_000_000
GROWTH = 110_000_000
"""What the transaction may add to the memory of capture: buffers that are the same however large it is."""


class Database(ABC):
    """An empty database with a table `large`, in a directory."""

    topic: str
    url: str

    @abstractmethod
    def fill(self) -> None:
        """Write all rows in one transaction."""


def rows() -> Iterator[tuple[int, str]]:
    """Yield rows that do not compress."""
    text = random.Random(8).randbytes(BYTES // 2).hex()
    for number in range(ROWS):
        yield number, f"{number}:{text[number:]}{text[:number]}"


def brief(number: int, body: str) -> tuple[int, int, str]:
    """Return what tells a row from the others."""
    return number, len(body), body[:20]


class Postgres(Database):
    topic = "large.public.large"

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        need("psql", "postgresql")
        server = stack.enter_context(
            RealPostgres(settings={"wal_level": "logical", "fsync": "off", "max_wal_size": "2GB"})
        )
        self.url = server.database("shop")
        server.psql("CREATE TABLE large (id int PRIMARY KEY, body text)", database="shop")

    def fill(self) -> None:
        with psycopg.connect(self.url) as session, session.cursor() as cursor:
            cursor.executemany("INSERT INTO large VALUES (%s, %s)", rows())


class MySQL(Database):
    topic = "large.shop.large"

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        need_mysql()
        settings = {"sync_binlog": "0", "innodb_buffer_pool_size": "256M"}
        self.server = stack.enter_context(RealMySQL(settings=settings))
        self.url = self.server.database("shop")
        self.server.run("CREATE TABLE large (id int PRIMARY KEY, body longtext)", database="shop")

    def fill(self) -> None:
        session = pymysql.connect(
            host=self.server.host,
            port=self.server.port,
            user=self.server.user,
            password=self.server.password,
            database="shop",
        )
        with session.cursor() as cursor:
            for row in rows():
                cursor.execute("INSERT INTO large VALUES (%s, %s)", row)
        session.commit()
        session.close()


class SQLite(Database):
    topic = "large.main.large"

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.path = directory / "shop.db"
        self.url = f"sqlite:///{self.path}"
        session = sqlite3.connect(self.path)
        session.execute("PRAGMA journal_mode = WAL")
        session.execute("CREATE TABLE large (id INTEGER PRIMARY KEY, body TEXT)")
        session.close()

    def fill(self) -> None:
        session = sqlite3.connect(self.path, timeout=30)
        with session:
            session.executemany("INSERT INTO large VALUES (?, ?)", rows())
        session.close()


class Capture:
    """`headwater capture run` as a process, killed and started again."""

    def __init__(self, url: str, bootstrap: str, log: Path) -> None:
        program = str(Path(sys.executable).with_name("headwater"))
        address = f"{url}#large"
        self._command = [program, "capture", "run", address, "--name=large", "--partitions=1"]
        self._command.append(f"--broker=kafka://{bootstrap}")
        self._log = log
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            begun = log.tell()
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while b"ready" not in self._log.read_bytes()[begun:]:
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def peak(pid: int) -> int:
    """Return the most memory that a process has had at once, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} has ended")


def await_end(cluster: Cluster, topic: str, offset: int) -> None:
    """Return once a topic has so many records."""
    deadline = time.monotonic() + 120
    while True:
        try:
            if cluster.offsets(topic, {0: -1})[0] >= offset:
                return
        except UnknownTopic:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kind", [Postgres, MySQL, SQLite])
def test_a_large_transaction(tmp_path: Path, kind: type[Database]) -> None:
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, tmp_path)  # hundreds of megabytes, of which nobody learns anything
        database = kind(stack, tmp_path)  # type: ignore[call-arg]
        broker = stack.enter_context(BrokerProcess(tmp_path / "broker"))
        cluster = Cluster(KafkaUrl.parse(f"kafka://{broker.bootstrap}"), "large")
        stack.callback(cluster.close)
        capture = Capture(database.url, broker.bootstrap, tmp_path / "capture.log")
        stack.callback(lambda: terminate(capture.process, 20))
        before = peak(capture.process.pid), peak(broker.pid)
        database.fill()
        await_end(cluster, database.topic, ROWS // 2)
        first = peak(capture.process.pid)
        capture.kill()
        capture.start()
        await_end(cluster, database.topic, ROWS)
        await_decided(cluster, database.topic)
        found: list[tuple[int, int, str]] = []
        deadline = time.monotonic() + 60
        while len(found) < ROWS and time.monotonic() < deadline:  # until the last transaction is over
            found = [
                brief(row["id"], row["body"])
                for record in records_of(cluster, database.topic, 0)
                if record.value is not None and (row := json.loads(record.value)["after"])
            ]
        assert found == [brief(*row) for row in rows()]
        assert first - before[0] < GROWTH
        assert peak(capture.process.pid) - before[0] < GROWTH
        assert peak(broker.pid) - before[1] < GROWTH
