"""Group commit with a loop that does nothing by itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from log_helpers import append, open_log, rows

from headwater.log.commit import GroupCommit
from headwater.log.partition import PartitionLog
from headwater.testing.disk import FaultyDisk

Call = Callable[[], object]


class Loop:
    """An event loop's two ways to have something called, and a step."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Call] = SimpleQueue()
        self.thread = threading.get_ident()

    def soon(self, call: Call) -> None:
        assert threading.get_ident() == self.thread
        self.calls.put(call)

    def soon_threadsafe(self, call: Call) -> None:
        self.calls.put(call)

    def step(self) -> None:
        self.calls.get(timeout=10)()

    def run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.step()


class GatedDisk(FaultyDisk):
    """A disk whose syncs wait to be let through."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def sync(self, fd: int) -> None:
        self.entered.release()
        assert self.gate.wait(10)
        os.fstat(fd)  # fails where the descriptor was closed under our feet
        super().sync(fd)


@pytest.fixture
def disk(tmp_path: Path) -> GatedDisk:
    (tmp_path / "topics").mkdir()
    return GatedDisk(tmp_path)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def commit(loop: Loop, disk: GatedDisk) -> Iterator[GroupCommit]:
    group = GroupCommit(loop.soon, loop.soon_threadsafe, threads=2)
    yield group
    disk.gate.set()
    group.close()


def opened(disk: FaultyDisk, name: str) -> PartitionLog:
    return open_log(disk.root / "topics" / name / "0", disk=disk)


def test_every_waiter_is_called_once_when_what_it_waits_for_is_synced(
    disk: GatedDisk, loop: Loop, commit: GroupCommit
) -> None:
    logs = [opened(disk, str(i)) for i in range(5)]
    called: dict[int, int] = {}

    def waiter(number: int, ends: dict[PartitionLog, int]) -> Call:
        def call() -> None:
            called[number] = called.get(number, 0) + 1
            for log, end in ends.items():
                assert log.high_watermark >= end
                assert len(disk._open) > 0

        return call

    for i in range(60):
        touched = [logs[i % 5], logs[i * 3 % 5]]
        for log in touched:
            append(log, rows(1 + i % 3, seed=i))
            commit.add(log)
        commit.wait(waiter(i, {log: log.end_offset for log in touched}))
        if i % 7 == 0:
            loop.step()
    loop.run_until(lambda: len(called) == 60)
    assert set(called.values()) == {1}
    assert all(log.high_watermark == log.end_offset for log in logs)
    assert len(disk.syncs) < 60, "one sync serves many"


def test_a_waiter_is_not_called_before_the_sync_has_returned(
    disk: GatedDisk, loop: Loop, commit: GroupCommit
) -> None:
    log = opened(disk, "a")
    called: list[str] = []
    disk.gate.clear()
    append(log, rows(1))
    commit.add(log)
    commit.wait(lambda: called.append("first"))
    loop.step()
    disk.entered.acquire()
    append(log, rows(1))
    commit.add(log)
    commit.wait(lambda: called.append("second"))
    assert not called
    assert log.high_watermark == 0
    disk.gate.set()
    loop.step()
    assert called == ["first"]
    assert log.high_watermark == 1
    loop.step()
    assert called == ["first", "second"]
    assert log.high_watermark == 2


def test_one_who_waits_for_nothing_new_still_waits_for_the_round_under_way(
    disk: GatedDisk, loop: Loop, commit: GroupCommit
) -> None:
    log = opened(disk, "a")
    seen: list[str | None] = []
    disk.gate.clear()
    append(log, rows(1), producer_id=1, producer_epoch=0, base_sequence=0)
    commit.add(log)
    commit.wait(lambda: seen.append(log.error))
    loop.step()
    disk.entered.acquire()
    # The same batch again: nothing is written, but what it repeats is not yet known to be durable.
    append(log, rows(1), producer_id=1, producer_epoch=0, base_sequence=0)
    commit.add(log)
    commit.wait(lambda: seen.append(log.error))
    disk.fail_sync()
    disk.gate.set()
    loop.run_until(lambda: len(seen) == 2)
    assert all(error is not None for error in seen)


def test_nothing_to_sync_is_answered_at_once(loop: Loop, commit: GroupCommit) -> None:
    called: list[int] = []
    commit.wait(lambda: called.append(1))
    loop.step()
    assert called == [1]


def test_a_failed_sync_fails_its_partition_and_no_other(
    disk: GatedDisk, loop: Loop, commit: GroupCommit
) -> None:
    good, bad = opened(disk, "good"), opened(disk, "bad")
    append(bad, rows(1))
    disk.gate.clear()
    commit.add(bad)
    called: list[str] = []
    commit.wait(lambda: called.append("bad"))
    loop.step()
    disk.entered.acquire()
    append(bad, rows(1))
    append(good, rows(1))
    commit.add(bad)
    commit.add(good)
    commit.wait(lambda: called.append("good"))
    disk.fail_sync()
    disk.gate.set()
    loop.run_until(lambda: len(called) == 2)
    assert (bad.error is not None, bad.high_watermark) == (True, 0)
    assert (good.error, good.high_watermark) == (None, 1)
    assert [path.parts[-3] for path in disk.syncs] == ["bad", "good"], "a failed sync is never tried again"


def test_a_waiter_that_fails_keeps_nobody_waiting(
    disk: GatedDisk, loop: Loop, commit: GroupCommit, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(disk, "a")
    called: list[int] = []

    def fail() -> None:
        raise ValueError("this answer is broken")

    log.on_advance["reader"] = fail
    append(log, rows(1))
    commit.add(log)
    commit.wait(fail)
    commit.wait(lambda: called.append(1))
    loop.run_until(lambda: bool(called))
    assert log.high_watermark == 1
    assert len(caplog.records) == 2


def test_a_log_deleted_while_it_is_synced_closes_its_file_afterwards(
    disk: GatedDisk, loop: Loop, commit: GroupCommit
) -> None:
    log = opened(disk, "a")
    append(log, rows(1))
    disk.gate.clear()
    commit.add(log)
    done: list[int] = []
    commit.wait(lambda: done.append(1))
    loop.step()
    disk.entered.acquire()
    append(log, rows(1))
    commit.add(log)
    log.abandon()
    assert disk.open_files == 1, "the descriptor is in use"
    disk.gate.set()
    loop.run_until(lambda: bool(done))
    assert disk.open_files == 0
    assert log.high_watermark == 0


def test_a_log_deleted_before_its_sync_closes_its_file_at_once(
    disk: GatedDisk, loop: Loop, commit: GroupCommit
) -> None:
    log = opened(disk, "a")
    append(log, rows(1))
    commit.add(log)
    done: list[int] = []
    commit.wait(lambda: done.append(1))
    log.abandon()
    assert disk.open_files == 0
    loop.run_until(lambda: bool(done))
    assert not disk.syncs


def test_closing_ends_the_round_under_way(disk: GatedDisk, loop: Loop) -> None:
    commit = GroupCommit(loop.soon, loop.soon_threadsafe)
    log = opened(disk, "a")
    called: list[int] = []
    append(log, rows(1))
    commit.add(log)
    commit.wait(lambda: called.append(1))
    loop.step()
    append(log, rows(1))
    commit.add(log)
    commit.close()
    assert called == [1]
    assert log.high_watermark == 1
    loop.step()  # the worker's message comes late
    assert called == [1]
    log.close()
    assert log.high_watermark == 2
    assert disk.open_files == 0
    assert len({path.name for path in log.directory.iterdir()}) == 3
