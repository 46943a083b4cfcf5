"""The processes that pipelines are measured in."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.core.errors import HeadwaterError
from headwater.testing.process import terminate

MEASURE_SECONDS = 1800.0
READY_SECONDS = 120.0
STOP_SECONDS = 30.0
LOG_TAIL = 4_000
MASTER = "local[2]"


Measured = dict[str, float]


class PipelineError(HeadwaterError):
    """A process with pipelines in it that failed."""


@dataclass(frozen=True)
class Pass:
    """What one pass over the orders measured."""

    rate: float
    """Orders a second, over the time of the query's batches."""
    start: float
    """Seconds that the query took beside its batches: to be planned, to start and to end."""
    cpu: float
    """Seconds of CPU time of all processes for a million orders."""


def best_pass(side: str, work: str, bootstrap: str, scratch: Path, orders: int, passes: int) -> Pass:
    """Do the work in a process of its own, over and over, and return the fastest pass but the first."""
    command = [
        sys.executable, "-m", "bench.spark", side, work,
        f"--broker={bootstrap}", f"--orders={orders}", f"--passes={passes}", f"--scratch={scratch}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=MEASURE_SECONDS)
    if done.returncode:
        raise PipelineError(f"{side} could not do {work}:\n{done.stderr[-LOG_TAIL:]}")
    return fastest(done.stdout)


def fastest(output: str) -> Pass:
    """Return the fastest of the passes that the last line tells of, the first one left out.

    >>> fastest('[{"rate": 9, "start": 1, "cpu": 1}, {"rate": 4, "start": 1, "cpu": 2}]')
    Pass(rate=4, start=1, cpu=2)
    """
    try:
        _, *warm = [Pass(**each) for each in json.loads(output.splitlines()[-1])]
        return max(warm, key=lambda each: each.rate)
    except (IndexError, ValueError, TypeError) as error:
        raise PipelineError(f"there is no line of measurements in {output!r}") from error


def state(work: str, bootstrap: str, scratch: Path, rows: int, skip: int = 0, passes: int = 1) -> Measured:
    """Do work of `bench.spark.state` in a process of its own."""
    command = [
        sys.executable, "-m", "bench.spark.state", work,
        f"--broker={bootstrap}", f"--rows={rows}", f"--skip={skip}", f"--passes={passes}", f"--scratch={scratch}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=MEASURE_SECONDS)
    if done.returncode:
        raise PipelineError(f"{work} could not be done:\n{done.stderr[-LOG_TAIL:]}")
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


@contextmanager
def ready(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command for a block, which begins when the command has printed a line that starts with `ready`."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        # A process that never gets ready is ended, which ends the reading of its lines.
        patience = threading.Timer(READY_SECONDS, process.kill)
        patience.start()
        assert process.stdout is not None
        if not any(line.startswith("ready") for line in process.stdout):
            raise PipelineError(f"{command[0]} did not get ready:\n{log.read_text()[-LOG_TAIL:]}")
        patience.cancel()
        yield process
    finally:
        patience.cancel()
        terminate(process, STOP_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


def headwater_run(app: str, bootstrap: str, data: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run one of the applications beside this file for a block; its views are in `views.db`."""
    command = [
        str(Path(sys.executable).with_name("headwater")), "run", str(Path(__file__).with_name(app)),
        f"--data={data}", f"--broker=kafka://{bootstrap}", f"--views=sqlite:///{data}/views.db",
        f"--master={MASTER}",
    ]  # fmt: skip
    return ready(command, data / "log")
