"""What came out of a capture: how many records, how late, and whether they lead to the tables' rows."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable

import psycopg
from confluent_kafka import Consumer, TopicPartition

from bench.capture.sides import TABLES, CaptureFailed, topic
from bench.clients import QUIET
from headwater.capture.reading import records_of
from headwater.client import Cluster, UnknownTopic
from headwater.core.urls import KafkaUrl

LOOK_SECONDS = 0.02
_COMMITTED_US = re.compile(rb'"source":\{[^}]*?"ts_us":(\d+)')
_KEYS = {
    "pgbench_accounts": "aid",
    "pgbench_branches": "bid",
    "pgbench_history": "id",
    "pgbench_tellers": "tid",
}
_BALANCES = {"pgbench_accounts": "abalance", "pgbench_branches": "bbalance", "pgbench_tellers": "tbalance"}


def consumer(bootstrap: str) -> Consumer:
    """Return a consumer that sees what is committed as soon as it is."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "log_level": QUIET,
        }
    )


class Counter:
    """Counts the records of the tables' topics by the offsets at their ends, which costs the broker nothing."""

    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"), "bench")

    def close(self) -> None:
        """Let go of the broker."""
        self._cluster.close()

    def ends(self) -> int:
        """Return the sum of the offsets; markers of transactions count, too, a few in ten thousand records."""
        total = 0
        for table in TABLES:
            try:
                total += self._cluster.offsets(topic(table), {0: -1})[0]
            except UnknownTopic:
                continue
        return total

    def await_end(
        self, end: int, process: subprocess.Popen[bytes], seconds: float
    ) -> tuple[float, int, float]:
        """Return when the first records were seen, how many there were then, and when the offsets reached an end."""
        deadline = time.monotonic() + seconds
        start = self.ends()
        first: tuple[float, int] | None = None
        while True:
            now, found = time.monotonic(), self.ends()
            if first is None and found > start:
                first = now, found
            if found >= end:
                return (*(first or (now, found)), now)
            if process.poll() is not None:
                raise CaptureFailed(f"the capture ended with {process.returncode}")
            if now > deadline:
                raise CaptureFailed(f"{found:,} of {end:,} records came within {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)


class Lateness(threading.Thread):
    """Follows the topics, and notes how long after its commit each record can be read."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.milliseconds: list[float] = []
        self._stopping = threading.Event()
        self._consumer = consumer(bootstrap)
        places = [TopicPartition(topic(table), 0, self._end(topic(table))) for table in TABLES]
        self._consumer.assign(places)

    def _end(self, name: str) -> int:
        _, high = self._consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)
        return int(high)

    def run(self) -> None:
        """Read until stopped."""
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() or message.value() is None:
                continue
            found = _COMMITTED_US.search(message.value() or b"")
            if found is not None:
                self.milliseconds.append(time.time() * 1000 - int(found[1]) / 1000)
        self._consumer.close()

    def stop(self) -> list[float]:
        """End the reading, and return what was noted, in order of size."""
        self._stopping.set()
        self.join()
        return sorted(self.milliseconds)


def compare(url: str, bootstrap: str) -> None:
    """Raise unless the topics lead to the rows that the tables have."""
    cluster = Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"), "bench")
    try:
        for table in TABLES:
            found = _found(cluster, table)
            wanted = _wanted(url, table)
            if found != wanted:
                different = sum(wanted.get(key) != value for key, value in found.items())
                raise CaptureFailed(
                    f"{topic(table)} leads to {len(found):,} rows, {different:,} of them other than those of {table},"
                    f" which has {len(wanted):,}"
                )
    finally:
        cluster.close()


def _found(cluster: Cluster, table: str) -> dict[int, int | None]:
    key, balance = _KEYS[table], _BALANCES.get(table)
    rows: dict[int, int | None] = {}
    read: Callable[[bytes], dict[str, dict[str, int] | None]] = json.loads
    for record in records_of(cluster, topic(table), 0):
        if record.value is None:
            continue
        said = read(record.value)
        if (after := said["after"]) is not None:
            rows[after[key]] = after[balance] if balance else None
        elif (before := said["before"]) is not None:
            rows.pop(before[key], None)
    return rows


def _wanted(url: str, table: str) -> dict[int, int | None]:
    with psycopg.connect(url) as session:
        columns = f"{_KEYS[table]}, {_BALANCES.get(table, 'NULL')}"
        return dict(session.execute(f"SELECT {columns} FROM {table}".encode()).fetchall())
