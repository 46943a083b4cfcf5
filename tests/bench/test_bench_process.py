"""What Linux says about a process."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import time

import pytest

import bench.process
from bench.process import (
    CpuMeter,
    PeakMemory,
    cpu_seconds,
    parse_resident_kibibytes,
    resident_megabytes,
    tree_cpu_seconds,
    tree_resident_megabytes,
)


def test_examples() -> None:
    assert doctest.testmod(bench.process).failed == 0


def test_the_meter_counts_work_and_not_sleep() -> None:
    with CpuMeter(os.getpid()) as asleep:
        time.sleep(0.2)
    with CpuMeter(os.getpid()) as busy:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    assert asleep.seconds < 0.1
    assert busy.seconds >= 0.15
    assert cpu_seconds(os.getpid()) >= busy.seconds


def test_resident_memory_grows_with_what_is_touched() -> None:
    before = resident_megabytes(os.getpid())
    held = bytearray(os.urandom(1)) * 50_000_000
    assert resident_megabytes(os.getpid()) - before >= 40
    assert len(held) == 50_000_000


def test_a_peak_is_remembered_after_the_memory_is_free_again() -> None:
    before = tree_resident_megabytes(os.getpid())
    with PeakMemory(os.getpid()) as memory:
        held = bytearray(os.urandom(1)) * 50_000_000
        time.sleep(3 * PeakMemory.EVERY_SECONDS)
        del held
    assert memory.megabytes - before >= 40
    assert memory.megabytes - tree_resident_megabytes(os.getpid()) >= 40


def test_children_count_where_they_are_asked_for() -> None:
    busy = "import time\nheld = bytearray(b'1') * 50_000_000\nwhile time.process_time() < 0.3: pass\n"
    command = [sys.executable, "-c", f"{busy}print(flush=True); input()"]
    with (
        CpuMeter(os.getpid(), tree_cpu_seconds) as meter,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_resident_megabytes(os.getpid()) - resident_megabytes(os.getpid()) >= 50
        child.communicate(b"\n")
    assert meter.seconds >= 0.25


def test_a_process_that_has_ended_is_refused() -> None:
    with pytest.raises(ValueError, match="has ended"):
        parse_resident_kibibytes("Name:\tx\nState:\tZ (zombie)\n")
