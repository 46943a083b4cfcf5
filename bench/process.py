"""What a process has used so far, as Linux accounts it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, those that ended included."""
    return parse_cpu_ticks(Path(f"/proc/{pid}/stat").read_text()) / TICKS_PER_SECOND


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of all below it, those that ended and were waited for included."""
    total = 0
    for each in tree(pid):
        # A process may end between being listed and being read.
        with suppress(FileNotFoundError, ProcessLookupError):
            total += parse_cpu_ticks(Path(f"/proc/{each}/stat").read_text(), of_children=True)
    return total / TICKS_PER_SECOND


def tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            for children in Path(f"/proc/{each}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process, in millions of bytes."""
    return parse_resident_kibibytes(Path(f"/proc/{pid}/status").read_text()) * 1024 / 1e6


def peak_megabytes(pid: int) -> float:
    """Return the most resident memory that a process has had at once, in millions of bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return parse_resident_kibibytes(status, "VmHWM") * 1024 / 1e6


def tree_resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process and of all below it, in millions of bytes."""
    total = 0.0
    for each in tree(pid):
        # A process may end between being listed and being read; one that has ended holds no memory.
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            total += resident_megabytes(each)
    return total


def parse_cpu_ticks(stat: str, *, of_children: bool = False) -> int:
    """Return utime + stime of a line of `/proc/PID/stat`, and of the children it waited for (proc(5), 14 to 17).

    >>> parse_cpu_ticks("7 (a ) name) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 20 5")
    300
    >>> parse_cpu_ticks("7 (a ) name) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 20 5", of_children=True)
    325
    """
    # The second field is the command's name, which may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if of_children else 13]))


def parse_resident_kibibytes(status: str, field: str = "VmRSS") -> int:
    """Return VmRSS of `/proc/PID/status`, or VmHWM, its peak.

    >>> parse_resident_kibibytes("Name:\\tx\\nVmRSS:\\t    2048 kB\\n")
    2048
    """
    for line in status.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"no {field}: the process has ended")


class CpuMeter:
    """The CPU time that a process uses inside a block, or with `tree_cpu_seconds` it and all below it.

    >>> with CpuMeter(os.getpid()) as meter:
    ...     _ = sum(range(1000))
    >>> meter.seconds >= 0
    True
    """

    def __init__(self, pid: int, read: Callable[[int], float] = cpu_seconds) -> None:
        self.pid = pid
        self.seconds = 0.0
        self._read = read
        self._began = 0.0

    def __enter__(self) -> CpuMeter:
        self._began = self._read(self.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._read(self.pid) - self._began


class PeakMemory:
    """The most resident memory that a process and all below it hold at any look inside a block.

    >>> with PeakMemory(os.getpid()) as memory:
    ...     pass
    >>> memory.megabytes > 1
    True
    """

    EVERY_SECONDS = 0.1

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.megabytes = 0.0
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch)

    def __enter__(self) -> PeakMemory:
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watching.join()

    def _watch(self) -> None:
        ended = False
        while not ended:
            # The last look comes after the end of the block: a short block is looked at too.
            ended = self._ended.wait(self.EVERY_SECONDS)
            self.megabytes = max(self.megabytes, tree_resident_megabytes(self.pid))
