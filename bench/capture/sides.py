"""The two captures as processes: what each needs, and how it is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.figures import HEADWATER
from headwater.core.errors import HeadwaterError
from headwater.testing.jars import DEBEZIUM, require
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import terminate

TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers")
DATABASE = "bench"
HEAP = "512m"
"""Debezium's JVM would otherwise take a quarter of the machine before it cleans up."""
STOP_SECONDS = 30.0
LOG_TAIL = 4_000


class CaptureFailed(HeadwaterError):
    """A capture that ended, or did not get done."""


def topic(table: str) -> str:
    """Return the topic that a table is captured into, the same on both sides."""
    return f"bench.public.{table}"


@contextmanager
def capturing(
    side: str, server: RealPostgres, bootstrap: str, scratch: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a side's capture of pgbench's tables for a block."""
    make = headwater_command if side == HEADWATER else debezium_command
    log = scratch / "capture.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            make(server, bootstrap, scratch), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process
    except Exception as error:
        error.add_note(f"The capture's log ended with:\n{log.read_text()[-LOG_TAIL:]}")
        raise
    finally:
        terminate(process, STOP_SECONDS)


def headwater_command(
    server: RealPostgres, bootstrap: str, scratch: Path, tables: Sequence[str] = TABLES
) -> list[str]:
    """Return `headwater capture` with its defaults, and one partition a table."""
    address = f"{server.url(DATABASE)}#{','.join(tables)}"
    command = [str(Path(sys.executable).with_name("headwater")), "capture", "run", address]
    return [*command, "--name=bench", f"--broker=kafka://{bootstrap}", "--partitions=1"]


def debezium_command(server: RealPostgres, bootstrap: str, scratch: Path) -> list[str]:
    """Return a JVM with Debezium's embedded engine and a producer behind it."""
    require("java", "javac")
    jars = DEBEZIUM.classpath()
    source = Path(__file__).with_name("DebeziumCapture.java")
    done = subprocess.run(
        ["javac", "-cp", jars, "-d", str(scratch), str(source)], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise CaptureFailed(f"javac failed:\n{done.stderr[-LOG_TAIL:]}")
    tables = ",".join(f"public.{table}" for table in TABLES)
    place = [server.host, str(server.port), DATABASE, server.user, server.password, tables]
    options = [f"-Xmx{HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}:{scratch}"]
    return ["java", *options, "DebeziumCapture", bootstrap, str(scratch / "offsets.dat"), *place]
