"""Kafka's own performance tools, run as its scripts run them, and what they print."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headwater.core.errors import HeadwaterError
from headwater.testing.jars import KAFKA_4_3, KAFKA_SCRIPTS, java_command

# kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh give this heap.
TOOL_HEAP = "512m"
TOOL_SECONDS = 1800.0

_PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


class ToolError(HeadwaterError):
    """A tool that failed, or printed what we do not understand."""


@dataclass(frozen=True)
class Produced:
    """The last line of ProducerPerformance."""

    records: int
    records_per_second: float


@dataclass(frozen=True)
class Consumed:
    """The line of ConsumerPerformance; the rate is over its whole time, joining the group included."""

    records: int
    records_per_second: float


def parse_produced(output: str) -> Produced:
    """Read the summary of ProducerPerformance, which follows its progress lines in the same form."""
    found = _PRODUCED.findall(output)
    if not found:
        raise ToolError(f"ProducerPerformance printed no summary:\n{output}")
    records, rate = found[-1]
    return Produced(int(records), float(rate))


def parse_consumed(output: str) -> Consumed:
    """Read the table of ConsumerPerformance: a line of headings, a line of values."""
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if "," in line]
    for headings, values in pairwise(rows):
        if "nMsg.sec" in headings and len(headings) == len(values):
            row = dict(zip(headings, values, strict=True))
            return Consumed(int(row["data.consumed.in.nMsg"]), float(row["nMsg.sec"]))
    raise ToolError(f"ConsumerPerformance printed no table:\n{output}")


def run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools and return its standard output."""
    command = java_command(
        KAFKA_4_3, f"org.apache.kafka.tools.{main_class}", *arguments, heap=TOOL_HEAP, options=KAFKA_SCRIPTS
    )
    # The consumer writes nothing to the working directory, the JVM may: keep it out of the checkout.
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, timeout=TOOL_SECONDS)
    if done.returncode:
        raise ToolError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def produce(
    bootstrap: str, topic: str, records: int, *, size: int = 100, payloads: Path | None = None
) -> Produced:
    """Produce records as fast as ProducerPerformance can with the producer's defaults (acks=all)."""
    values = [f"--payload-file={payloads}"] if payloads else [f"--record-size={size}"]
    output = run_tool(
        "ProducerPerformance",
        f"--bootstrap-server={bootstrap}",
        f"--topic={topic}",
        f"--num-records={records}",
        "--throughput=-1",
        *values,
    )
    produced = parse_produced(output)
    if produced.records != records:
        raise ToolError(f"{produced.records} of {records} records were produced:\n{output}")
    return produced


def consume(bootstrap: str, topic: str, records: int) -> Consumed:
    """Consume a topic from its start with ConsumerPerformance."""
    output = run_tool(
        "ConsumerPerformance",
        f"--bootstrap-server={bootstrap}",
        f"--topic={topic}",
        f"--num-records={records}",
    )
    consumed = parse_consumed(output)
    if consumed.records < records:
        raise ToolError(f"{consumed.records} of {records} records were consumed:\n{output}")
    return consumed
