"""Esper and Flink as processes: what they need, how they are run, what they measure."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.cep.payments import write_files
from bench.process import PeakMemory
from headwater.core.cache import cache_directory
from headwater.core.errors import HeadwaterError
from headwater.testing.jars import ESPER, require

PASSES = 2
HEAP = "2g"
FLINK_PARALLELISM = 2
FLINK_VERSION = "2.3.0"
MEASURE_SECONDS = 1800.0
LOG_TAIL = 4_000

Measured = dict[str, float]


class PeerError(HeadwaterError):
    """A peer that could not be set up or failed."""


def esper(scratch: Path, count: int) -> Measured:
    """Let Esper look through a file, on one thread, as its listeners are called."""
    require("java", "javac")
    [file] = write_files(scratch, count, 1)
    jars = ESPER.classpath()
    source = Path(__file__).with_name("CardTesting.java")
    _run(["javac", "-cp", jars, "-d", str(scratch), str(source)])
    command = ["java", f"-Xmx{HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return _measured([*command, "-cp", f"{jars}:{scratch}", "CardTesting", str(file), str(PASSES)], count)


def flink(scratch: Path, count: int) -> Measured:
    """Let Flink look through two files, each with a reader of its own."""
    files = scratch / "files"
    files.mkdir()
    write_files(files, count, FLINK_PARALLELISM)
    program = Path(__file__).with_name("flink_match.py")
    arguments = [str(PASSES), str(FLINK_PARALLELISM), str(files)]
    return _measured([str(_flink_python()), str(program), *arguments], count)


def _flink_python() -> Path:
    """Return a Python that has PyFlink; it wants other versions of much that the project uses."""
    home = cache_directory() / f"flink-{FLINK_VERSION}"
    python = home / "bin" / "python"
    done = home / ".installed"
    if not done.exists():
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={FLINK_VERSION}"])
        done.touch()
    return python


def _measured(command: Sequence[str], count: int) -> Measured:
    """Run a peer that prints a line of JSON for each pass; return the fastest of its passes, and what all took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with PeakMemory(os.getpid()) as memory:
        alone = memory.megabytes
        output = _run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    passes = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if len(passes) != PASSES:
        raise PeerError(f"{command[0]} told of {len(passes)} passes, not {PASSES}:\n{output[-LOG_TAIL:]}")
    rates = [count / each["seconds"] if "seconds" in each else each["rate"] for each in passes]
    return {
        "rate": max(rates),
        "cpu": cpu / PASSES / count * 1e6,
        "memory": memory.megabytes - alone,
        "found": passes[-1]["found"],
        "sum": passes[-1]["sum"],
    }


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=MEASURE_SECONDS
    )
    if done.returncode:
        raise PeerError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-LOG_TAIL:]}")
    return done.stdout
