"""Change data capture from Postgres under pgbench, beside Debezium's embedded engine."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.capture.sides import DATABASE, TABLES, capturing, topic
from bench.capture.watch import Counter, Lateness, compare
from bench.clients import create_topics
from bench.figures import DEBEZIUM, HEADWATER, AtLeast, AtMost, Better, Figure
from bench.process import tree_resident_megabytes
from bench.scenarios.base import Scale, Scenario
from headwater.testing.postgres import RealPostgres

ACCOUNTS = 1_000_000
TRANSACTIONS = 50_000
CHANGES_PER_TRANSACTION = 4
LATENCY_RATE = 200
LATENCY_SECONDS = 15
WARM_SECONDS = 5
SECONDS = 600.0
SETTINGS = {
    "wal_level": "logical",
    "wal_sender_timeout": "0",  # a stopped capture is not to lose its connection
    "synchronous_commit": "off",  # it is not the database that is measured
    "max_wal_size": "8GB",
    "logical_decoding_work_mem": "64MB",
}


class CapturePostgres(Scenario):
    """A snapshot, a backlog that pgbench left while the capture was stopped, and pgbench at a steady pace."""

    name = "capture-postgres"
    sides = (DEBEZIUM, HEADWATER)
    figures = (
        Figure("capture-snapshot", "snapshot", "rows/s", Better.HIGHER, (AtLeast(1.5, DEBEZIUM),)),
        Figure("capture-changes", "streamed changes", "changes/s", Better.HIGHER, (AtLeast(1.0, DEBEZIUM),)),
        Figure("capture-p50", "commit to topic, p50", "ms", Better.LOWER, (AtMost(1.0, DEBEZIUM),)),
        Figure("capture-p99", "commit to topic, p99", "ms", Better.LOWER, (AtMost(1.0, DEBEZIUM),)),
        Figure("capture-memory", "resident memory", "MB", Better.LOWER, (AtMost(0.25, DEBEZIUM),)),
    )

    def __init__(self, side: str = HEADWATER) -> None:
        self.side = side

    def on(self, side: str) -> Scenario:
        """Return the scenario with one side's capture; both write to Headwater's broker."""
        return self if side == self.side else CapturePostgres(side)

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Capture, and look at the end whether the topics lead to the tables' rows."""
        with RealPostgres(settings=SETTINGS) as server:
            url = server.database(DATABASE)
            accounts = max(1, scale.of(ACCOUNTS) // 100_000) * 100_000
            _pgbench(url, "-i", "-q", f"-s{accounts // 100_000}")
            # Rows without a key cannot be told apart.
            server.psql(
                "ALTER TABLE pgbench_history ADD id bigserial PRIMARY KEY; CHECKPOINT", database=DATABASE
            )
            if self.side != HEADWATER:
                create_topics(broker.bootstrap, map(topic, TABLES), 1)
            counter = Counter(broker.bootstrap)
            try:
                with capturing(self.side, server, broker.bootstrap, scratch) as process:
                    measured = self._measure(url, broker, counter, process, accounts, scale.of(TRANSACTIONS))
            finally:
                counter.close()
            compare(url, broker.bootstrap)
            return measured

    def _measure(
        self,
        url: str,
        broker: Broker,
        counter: Counter,
        process: subprocess.Popen[bytes],
        accounts: int,
        transactions: int,
    ) -> Mapping[str, float]:
        first, at_first, last = counter.await_end(accounts, process, SECONDS)
        snapshot = (accounts - at_first) / (last - first)
        _settle(counter)
        process.send_signal(signal.SIGSTOP)
        _pgbench(url, "-n", "-c4", "-j2", f"-t{transactions // 4}")
        changes = transactions // 4 * 4 * CHANGES_PER_TRANSACTION
        goal = counter.ends() + changes
        began = time.monotonic()
        process.send_signal(signal.SIGCONT)
        _, _, last = counter.await_end(goal, process, SECONDS)
        streamed = changes / (last - began)
        _settle(counter)
        _pgbench(url, "-n", "-c4", "-j2", f"-R{LATENCY_RATE}", f"-T{WARM_SECONDS}")
        lateness = Lateness(broker.bootstrap)
        lateness.start()
        _pgbench(url, "-n", "-c4", "-j2", f"-R{LATENCY_RATE}", f"-T{LATENCY_SECONDS}")
        memory = tree_resident_megabytes(process.pid)
        _settle(counter)
        late = lateness.stop()
        return {
            "capture-snapshot": snapshot,
            "capture-changes": streamed,
            "capture-p50": late[len(late) // 2],
            "capture-p99": late[len(late) * 99 // 100],
            "capture-memory": memory,
        }


def _settle(counter: Counter) -> None:
    """Return once nothing has come for a second."""
    found, since = counter.ends(), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(0.1)
        if (now := counter.ends()) != found:
            found, since = now, time.monotonic()


def _pgbench(url: str, *options: str) -> None:
    subprocess.run(["pgbench", *options, url], check=True, capture_output=True, timeout=SECONDS)
