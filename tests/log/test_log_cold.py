"""Reads of what is not in the page cache: told beforehand, done elsewhere, and the same bytes in the end."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from log_helpers import append, open_log, rows

from headwater.log.cold import HOT_BYTES, ColdReader, NotCached
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.partition import PartitionLog

MB = 1024 * 1024


class ColdDisk(Disk):
    """A disk of whose files nothing is in memory but what was brought there."""

    def __init__(self) -> None:
        self.warmed: set[tuple[int, int]] = set()

    def cached(self, fd: int, position: int) -> bool:
        return (fd, position // 4096) in self.warmed

    def warm(self, small: Path | None, fd: int, position: int, size: int) -> None:
        super().warm(small, fd, position, size)
        self.warmed |= {(fd, page) for page in range(position // 4096, (position + size) // 4096 + 1)}


def filled(
    directory: Path, megabytes: int, *, segment_bytes: int = 1024 * MB, disk: Disk | None = None
) -> PartitionLog:
    log = open_log(directory, config=LogConfig(segment_bytes=segment_bytes), disk=disk)
    for number in range(megabytes):
        append(log, rows(1, size=MB - 1000, seed=number))
    log.sync()
    return log


@pytest.fixture
def cold_log(tmp_path: Path) -> PartitionLog:
    """A log of a few segments, none of which is in memory."""
    return filled(tmp_path / "log", 8, segment_bytes=2 * MB, disk=ColdDisk())


class Owner:
    """The thread that owns the log: runs what workers hand to it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def soon(self, call: Callable[[], object]) -> None:
        self._calls.put(call)

    def run(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not until():
            assert time.monotonic() < deadline
            self._calls.get(timeout=10)()


def read_patiently(log: PartitionLog, offset: int) -> tuple[bytes, int]:
    """Read as a fetch does; return the bytes and how many times they had to be waited for."""
    owner = Owner()
    reader = ColdReader(log.files, owner.soon)
    try:
        while True:
            try:
                return bytes(log.read(offset, MB, probe=True)), reader.reads
            except NotCached as found:
                missing, done = found, list[bool]()
            reader.read([missing], lambda: done.append(True))  # noqa: B023
            assert missing.segment.pins == 1, "its file stays open meanwhile"
            owner.run(lambda: bool(done) and not missing.segment.pins)  # noqa: B023
    finally:
        reader.close()


def test_a_cold_range_is_told_read_elsewhere_and_then_there(cold_log: PartitionLog) -> None:
    cold_log.read(2, MB)  # its index is in memory from here on
    data, waits = read_patiently(cold_log, 2)
    assert waits == 1
    assert data == bytes(cold_log.read(2, MB))
    assert read_patiently(cold_log, 3)[1] == 0, "what follows was read ahead"
    cold_log.close()


def test_without_probing_a_read_waits_for_the_disk(cold_log: PartitionLog) -> None:
    assert len(cold_log.read(2, MB)) > 0
    cold_log.close()


def test_a_range_that_is_in_memory_is_read_at_once(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 5, segment_bytes=2 * MB)
    for offset in range(5):
        log.read(offset, MB)
        assert len(log.read(offset, MB, probe=True)) > 0
    log.close()


def test_the_tail_is_not_even_asked_about(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 3, disk=ColdDisk())
    assert log.segments[-1].size < HOT_BYTES
    assert len(log.read(0, MB, probe=True)) > 0
    log.close()


def test_the_index_of_a_closed_segment_is_loaded_on_the_way(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 6, segment_bytes=2 * MB)
    log.close()
    log = open_log(tmp_path / "log", config=LogConfig(segment_bytes=2 * MB))
    assert read_patiently(log, 0) == (bytes(log.read(0, MB)), 1)
    log.close()


def test_a_segment_that_is_deleted_meanwhile_is_let_go_of(cold_log: PartitionLog) -> None:
    with pytest.raises(NotCached) as missing:
        cold_log.read(0, MB, probe=True)
    owner = Owner()
    reader = ColdReader(cold_log.files, owner.soon)
    done: list[bool] = []
    reader.read([missing.value], lambda: done.append(True))
    cold_log.delete_before(4)
    assert missing.value.segment not in cold_log.segments
    owner.run(lambda: bool(done) and not missing.value.segment.pins)
    names = {path.name for path in cold_log.directory.iterdir()}
    assert not any(name.startswith(f"{0:020d}") for name in names), "nothing of it comes back"
    assert missing.value.segment not in cold_log.files._segments
    reader.close()
    cold_log.close()


def test_closing_forgets_what_nobody_waits_for(cold_log: PartitionLog) -> None:
    reader = ColdReader(cold_log.files, lambda call: None)
    with pytest.raises(NotCached) as missing:
        cold_log.read(0, MB, probe=True)
    for _ in range(20):
        reader.read([missing.value], lambda: None)
    reader.close()


def test_a_disk_tells_what_it_has_in_memory(tmp_path: Path) -> None:
    disk = Disk()
    fd = disk.open(tmp_path / "file")
    disk.pwrite(fd, bytes(MB), 0)
    assert disk.cached(fd, 0)
    disk.sync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    disk.warm(None, fd, 0, MB)
    assert disk.cached(fd, 0)
    assert disk.cached(fd, MB - 1)
    disk.close(fd)


def test_warming_past_the_end_or_of_nothing_does_nothing(tmp_path: Path) -> None:
    disk = Disk()
    fd = disk.open(tmp_path / "file")
    disk.warm(tmp_path / "missing", fd, 0, MB)
    disk.warm(None, fd, 5, -5)
    disk.close(fd)
