"""One transaction of 2 GB through capture, which is killed in the middle: its memory, and what comes out."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.brokers import Broker
from bench.capture.sides import DATABASE, STOP_SECONDS, CaptureFailed, headwater_command, topic
from bench.figures import HEADWATER, Better, Figure, Floor, Limit
from bench.process import peak_megabytes
from bench.scenarios.base import Scale, Scenario
from headwater.capture.reading import records_of
from headwater.client import Cluster
from headwater.core.urls import KafkaUrl
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import terminate

TABLE = "large"
ROWS = 2_000
ROW_BYTES = 1_000_000
SECONDS = 900.0
LOOK_SECONDS = 0.1
SETTINGS = {
    "wal_level": "logical",
    "synchronous_commit": "off",  # it is not the database that is measured
    "max_wal_size": "8GB",
}
# Rows that do not compress, each of its own: the same random text, begun at another letter.
FILL = """
    WITH drawn AS MATERIALIZED
    (SELECT string_agg(md5(random()::text), '') AS text FROM generate_series(0, {bytes} / 32))
    INSERT INTO large
    SELECT id, id || ':' || substr(text, id + 1) || left(text, id) FROM drawn, generate_series(0, {rows} - 1) AS id
"""


class CaptureLarge(Scenario):
    """2,000 rows of 1 MB, written by one statement, published by a capture that is killed halfway."""

    name = "capture-large-transaction"
    sides = (HEADWATER,)
    figures = (
        Figure(
            "capture-large-memory",
            "capture's peak memory, 2 GB in one transaction",
            "MB",
            Better.LOWER,
            (Limit(200, "MB"),),
        ),
        Figure("capture-large-broker", "the broker's", "MB", Better.LOWER, (Limit(200, "MB"),)),
        Figure(
            "capture-large-rows",
            "rows of it in the topic, once",
            "rows",
            Better.HIGHER,
            (Floor(ROWS, "rows"),),
        ),
        Figure("capture-large-rate", "published, a restart included", "MB/s", Better.HIGHER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Capture, kill, capture on, and look whether every row came once."""
        rows = scale.of(ROWS)
        with ExitStack() as stack:
            server = stack.enter_context(RealPostgres(settings=SETTINGS))
            server.database(DATABASE)
            table = f"CREATE TABLE {TABLE} (id int PRIMARY KEY, body text)"
            server.psql(f"{table}; ALTER TABLE {TABLE} ALTER body SET STORAGE EXTERNAL", database=DATABASE)
            cluster = Cluster(KafkaUrl.parse(f"kafka://{broker.bootstrap}"), "bench")
            stack.callback(cluster.close)
            command = headwater_command(server, broker.bootstrap, scratch, [TABLE])
            first = _start(stack, command, scratch / "first.log")
            server.psql(FILL.format(rows=rows, bytes=ROW_BYTES), database=DATABASE, seconds=SECONDS)
            began = time.monotonic()
            memory = _until(cluster, rows // 2, first)
            first.kill()
            first.wait()
            second = _start(stack, command, scratch / "second.log")
            memory = max(memory, _until(cluster, rows, second))
            found = _found(cluster, rows)
            seconds = time.monotonic() - began
            memory = max(memory, peak_megabytes(second.pid))
            return {
                "capture-large-memory": memory,
                "capture-large-broker": peak_megabytes(broker.pid),
                "capture-large-rows": found * ROWS / rows,
                "capture-large-rate": rows * ROW_BYTES / 1e6 / seconds,
            }


def _start(stack: ExitStack, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a capture, and return it once it follows the database."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    stack.callback(lambda: terminate(process, STOP_SECONDS))
    deadline = time.monotonic() + SECONDS
    while b"ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise CaptureFailed(f"the capture does not get ready:\n{log.read_text()}")
        time.sleep(LOOK_SECONDS)
    return process


def _until(cluster: Cluster, records: int, process: subprocess.Popen[bytes]) -> float:
    """Wait until the topic has so many records, aborted ones and markers included, and return the peak memory."""
    deadline = time.monotonic() + SECONDS
    while cluster.offsets(topic(TABLE), {0: -1})[0] < records:
        if process.poll() is not None:
            raise CaptureFailed(f"the capture ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise CaptureFailed(f"{records:,} records did not come within {SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)
    return peak_megabytes(process.pid)


def _found(cluster: Cluster, rows: int) -> int:
    """Return how many rows are in the topic; raise where one is there twice, or is not what was written."""
    deadline = time.monotonic() + SECONDS
    while True:
        seen: set[int] = set()
        for record in records_of(cluster, topic(TABLE), 0):
            row = json.loads(record.value or b"{}")["after"]
            if row["id"] in seen:
                raise CaptureFailed(f"row {row['id']} is in the topic twice")
            if not row["body"].startswith(f"{row['id']}:") or len(row["body"]) < ROW_BYTES:
                raise CaptureFailed(f"row {row['id']} is not as it was written")
            seen.add(row["id"])
        if len(seen) >= rows or time.monotonic() > deadline:
            return len(seen)
        time.sleep(LOOK_SECONDS)
