"""RabbitMQ's own performance tool, PerfTest, and what it prints each second."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.tools import ToolError
from headwater.testing.jars import perf_test_classpath, require

# PerfTest's script leaves the heap to the JVM, which would take a quarter of the machine. It needs far less.
HEAP = "1g"
BODY_BYTES = 100
# What PerfTest may take to start and to close its connections.
SPARE_SECONDS = 60.0
# It prints nothing where nothing was sent or received; its last line may fall behind the end.
QUIET_SECONDS = 2.5

_SECOND = re.compile(
    r"time (?P<time>[\d.]+) s, .*?sent: (?P<sent>[\d.]+) msg/s, .*?received: (?P<received>[\d.]+) msg/s, "
    r"min/median/75th/95th/99th consumer latency: \d+/(?P<median>\d+)/\d+/\d+/(?P<p99>\d+) "
)
_STOPPED = re.compile(r"^test stopped \((.*)\)$", re.MULTILINE)
_TIME_IS_UP = "Reached time limit"


@dataclass(frozen=True)
class Second:
    """One line of PerfTest: what happened since the line before."""

    time: float
    """Seconds since the start when it was printed."""
    length: float
    """Seconds since the line before: about one, and more where nothing at all happened for a while."""
    sent_per_second: float
    received_per_second: float
    median_micros: int
    p99_micros: int


@dataclass(frozen=True)
class Run:
    """All lines of a run."""

    seconds: tuple[Second, ...]

    def after(self, warm: float) -> Run:
        """Return the run without the lines of its first seconds, in which a JVM compiles."""
        kept = tuple(each for each in self.seconds if each.time > warm + 0.5)
        if not kept:
            raise ToolError(f"PerfTest printed nothing after the first {warm:g} s")
        return Run(kept)

    @property
    def received_per_second(self) -> float:
        """Return the mean rate of receiving."""
        return self.received / sum(each.length for each in self.seconds)

    @property
    def received(self) -> float:
        """Return about how many messages were received: the rates are rounded."""
        return sum(each.received_per_second * each.length for each in self.seconds)

    @property
    def median_micros(self) -> float:
        """Return the consumer's latency in the middle one of the seconds, the median of each taken."""
        return median(each.median_micros for each in self.seconds)

    @property
    def p99_micros(self) -> float:
        """Return the consumer's latency in the middle one of the seconds, the 99th percentile of each taken."""
        return median(each.p99_micros for each in self.seconds)


def parse(output: str, seconds: int) -> Run:
    """Read the lines of a run that was to take that long, and did.

    Lines that PerfTest still prints while it closes its connections do not count.
    """
    stopped = _STOPPED.search(output)
    if stopped is None or stopped[1] != _TIME_IS_UP:
        raise ToolError(f"PerfTest did not run until its time was up:\n{output}")
    found: list[Second] = []
    before = 0.0
    for match in _SECOND.finditer(output):
        if (now := float(match["time"])) > seconds + 0.5:
            break
        found.append(_second(match, now - before))
        before = now
    if seconds - before > QUIET_SECONDS:
        raise ToolError(f"PerfTest's messages ended {seconds - before:g} s before its time was up:\n{output}")
    return Run(tuple(found))


def _second(match: re.Match[str], length: float) -> Second:
    return Second(
        float(match["time"]),
        length,
        float(match["sent"]),
        float(match["received"]),
        int(match["median"]),
        int(match["p99"]),
    )


def perf_test(port: int, seconds: int, options: Sequence[str] = ()) -> Run:
    """Run PerfTest with bodies of 100 bytes for that long, without recovery of what a broker closes."""
    require("java")
    command = [
        "java", f"-Xmx{HEAP}", "-cp", perf_test_classpath(), "com.rabbitmq.perf.PerfTest",
        f"--uri=amqp://127.0.0.1:{port}", f"--size={BODY_BYTES}", f"--time={seconds}",
        "--disable-connection-recovery", *options,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            # The unit of latencies is printed in whatever encoding the JVM was given.
            errors="replace",
            cwd=scratch,
            timeout=seconds + SPARE_SECONDS,
        )
    if done.returncode:
        raise ToolError(f"PerfTest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return parse(done.stdout, seconds)
