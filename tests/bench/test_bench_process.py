"""What Linux says about a process."""

from __future__ import annotations

import doctest
import os
import time

import pytest

import bench.process
from bench.process import CpuMeter, cpu_seconds, parse_resident_kibibytes, resident_megabytes


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


def test_a_process_that_has_ended_is_refused() -> None:
    with pytest.raises(ValueError, match="has ended"):
        parse_resident_kibibytes("Name:\tx\nState:\tZ (zombie)\n")
