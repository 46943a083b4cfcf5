"""Segments that have moved to the archive: read as before, and nothing is lost on the way."""

from __future__ import annotations

import errno
from pathlib import Path
from queue import SimpleQueue

import pytest
from log_helpers import NOW, TOPIC, append, contents, release, rows

from headwater.log.archive import NAME, copy, load, sweep
from headwater.log.cold import Call, ColdReader, NotCached
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.errors import StorageFailed
from headwater.log.open_files import OpenFiles
from headwater.log.partition import PartitionLog
from headwater.log.recovery import open_partition
from headwater.log.segment import Segment
from headwater.record.records import Record
from headwater.testing.disk import FaultyDisk

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=200)


class Place:
    """A partition and its part of an archive."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.directory = root / "topics" / "t" / "0"
        self.archive = root / "archive" / "t" / "0"
        self.disk = disk or Disk()
        self.log = self.open()

    def open(self, archive: Path | None = None) -> PartitionLog:
        files = OpenFiles(self.disk, 3)
        self.log = open_partition(
            files, self.directory, TOPIC, 0, CONFIG, synced=True, now_ms=NOW, archive=archive or self.archive
        )
        return self.log

    def fill(self, batches: int = 30) -> dict[int, Record | None]:
        for i in range(batches):
            append(self.log, rows(2, size=60, seed=i, timestamp=NOW + 10 * i))
        self.log.sync()
        return contents(self.log)

    def move(self, count: int) -> list[Segment]:
        due = [segment for segment in self.log.segments if segment.archive is None][:count]
        for segment in due:
            assert self.log.may_move(segment)
            copy(self.disk, segment.path, self.archive / segment.path.name, lambda _: None)
            self.log.moved(segment)
        return due


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "topics").mkdir()
    return Place(tmp_path)


def test_what_has_moved_reads_as_before(place: Place) -> None:
    before = place.fill()
    was = {segment.path.name: segment.path.read_bytes() for segment in place.log.segments}
    moved = place.move(3)
    assert contents(place.log) == before
    assert [segment.base_offset for segment in place.log.archived] == [s.base_offset for s in moved]
    assert place.log.local_start_offset == moved[-1].next_offset
    assert place.log.size_bytes() - place.log.local_bytes() == sum(segment.size for segment in moved)
    for segment in moved:
        assert not segment.path.exists()
        assert segment.index_path.exists(), "it is small, and spares looking into the archive"
        assert (place.archive / segment.path.name).read_bytes() == was[segment.path.name]
    assert place.log.offset_for_time(NOW + 15) == (4, NOW + 20)


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_takes_what_has_moved_without_a_look_at_the_archive(place: Place, *, clean: bool) -> None:
    before = place.fill()
    place.move(3)
    place.log.close() if clean else release(place.log)
    away = place.archive.parent.rename(place.archive.parents[1] / "elsewhere")
    log = place.open()
    assert (log.start_offset, log.end_offset, len(log.archived)) == (0, 60, 3)
    for offset in range(log.local_start_offset):
        with pytest.raises(StorageFailed, match="No such file"):
            log.read(offset, 100)
    for offset in range(log.local_start_offset, 60):
        assert log.read(offset, 100)
    assert append(log, rows(1)) == 60
    assert log.error is None
    away.rename(place.archive.parent)
    assert {offset: record for offset, record in contents(log).items() if offset < 60} == before


def test_a_move_that_a_crash_stopped_is_completed_or_forgotten(place: Place) -> None:
    before = place.fill()
    first, second, *_ = place.log.segments
    copy(place.disk, first.path, place.archive / first.path.name, lambda _: None)
    kept = first.path.read_bytes()
    place.log.moved(first)
    first.path.write_bytes(kept)  # its removal was not durable
    copy(place.disk, second.path, place.archive / second.path.name, lambda _: None)  # nobody has named it
    (place.archive / f"{second.next_offset:020d}.log.new").write_bytes(b"half")
    release(place.log)
    log = place.open()
    assert contents(log) == before
    assert not first.path.exists()
    assert [segment.base_offset for segment in log.archived] == [0]
    sweep(place.disk, place.archive, {segment.path.name for segment in log.archived})
    assert [path.name for path in place.archive.iterdir()] == [first.path.name]
    assert contents(log) == before


def test_deleted_records_leave_the_archive(place: Place) -> None:
    place.fill()
    moved = place.move(4)
    inside = moved[2].base_offset + 1
    assert place.log.delete_before(inside) == inside
    assert sorted(path.name for path in place.archive.iterdir()) == [s.path.name for s in moved[2:]]
    assert not moved[0].index_path.exists()
    left = contents(place.log)
    assert min(left) == inside
    place.log.close()
    log = place.open()
    assert contents(log) == left
    assert [segment.base_offset for segment in log.archived] == [s.base_offset for s in moved[2:]]


def test_damage_in_the_archive_is_reported_and_the_rest_serves(place: Place) -> None:
    before = place.fill()
    second = place.move(3)[1]
    path = place.archive / second.path.name
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    found = contents(place.log)
    damaged = [offset for offset, record in found.items() if record is None]
    assert damaged
    assert all(second.base_offset <= offset < second.next_offset for offset in damaged)
    assert {o: r for o, r in found.items() if r is not None} == {
        offset: record for offset, record in before.items() if offset not in damaged
    }


def test_a_list_that_does_not_read_is_neither_believed_nor_replaced(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    before = place.fill()
    moved = place.move(2)
    place.log.close()
    path = place.directory / NAME
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b",", b";", 1))
    log = place.open()
    assert "does not read" in caplog.text
    assert log.archive is None, "so nothing there is swept away"
    assert log.start_offset == moved[-1].next_offset
    assert contents(log) == {o: r for o, r in before.items() if o >= log.start_offset}
    log.close()
    path.write_bytes(sound)
    assert contents(place.open()) == before


def test_an_archive_that_nobody_names_is_asked_for(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.fill()
    place.move(2)
    place.log.close()
    files = OpenFiles(place.disk)
    log = open_partition(files, place.directory, TOPIC, 0, CONFIG, synced=True, now_ms=NOW)
    assert "headwater.archive.dir" in caplog.text
    with pytest.raises(StorageFailed):
        log.read(0, 100)
    assert log.read(log.local_start_offset, 100)
    assert log.start_offset == 0


def test_a_log_whose_other_segments_are_gone_never_grows_in_the_archive(place: Place) -> None:
    place.fill()
    *moved, last = place.log.segments
    place.move(len(moved))
    place.log.close()
    last.path.unlink()
    log = place.open()
    sizes = {path.name: path.stat().st_size for path in place.archive.iterdir()}
    assert append(log, rows(1)) == 60, "offsets that were given are not given again"
    log.sync()
    assert {path.name: path.stat().st_size for path in place.archive.iterdir()} == sizes
    assert log.segments[-1].archive is None


@pytest.mark.parametrize("fault", ["write", "sync"])
def test_a_copy_that_fails_leaves_everything_as_it_was(tmp_path: Path, fault: str) -> None:
    (tmp_path / "topics").mkdir()
    disk = FaultyDisk(tmp_path)
    place = Place(tmp_path, disk)
    before = place.fill()
    segment = place.log.segments[0]
    disk.fail_write(error=errno.EIO) if fault == "write" else disk.fail_sync()
    with pytest.raises(OSError, match="Input/output"):
        copy(disk, segment.path, place.archive / segment.path.name, lambda _: None)
    assert list(place.archive.iterdir()) == []
    assert contents(place.log) == before
    place.move(1)
    assert contents(place.log) == before
    assert [entry.base_offset for entry in load(place.directory) or ()] == [0]


class TestColdReads:
    """Whoever probes never waits for the archive: other threads open its files and read them."""

    @pytest.fixture
    def calls(self) -> SimpleQueue[Call]:
        return SimpleQueue()

    def _warm(self, log: PartitionLog, calls: SimpleQueue[Call], missing: NotCached) -> None:
        reader = ColdReader(log.files, calls.put)
        done: list[bool] = []
        reader.read([missing], lambda: done.append(True))
        calls.get(timeout=10)()
        assert done
        calls.get(timeout=10)()
        reader.close()

    def _patiently(self, log: PartitionLog, calls: SimpleQueue[Call], offset: int) -> bytes:
        for _ in range(3):
            try:
                return bytes(log.read(offset, 300, probe=True))
            except NotCached as missing:
                self._warm(log, calls, missing)
        return bytes(log.read(offset, 300, probe=True))

    @pytest.mark.parametrize("index", ["there", "gone"])
    def test_after_a_start(self, place: Place, calls: SimpleQueue[Call], index: str) -> None:
        place.fill()
        segment = place.move(2)[1]
        plain = bytes(place.log.read(segment.base_offset + 2, 300))
        place.log.close()
        if index == "gone":
            segment.index_path.unlink()
        log = place.open()
        with pytest.raises(NotCached):
            log.read(segment.base_offset + 2, 300, probe=True)
        assert self._patiently(log, calls, segment.base_offset + 2) == plain
        assert segment.index_path.exists()
        assert all(each.pins == 0 for each in log.archived)

    def test_times(self, place: Place, calls: SimpleQueue[Call]) -> None:
        place.fill()
        place.move(3)
        place.log.close()
        log = place.open()
        for _ in range(2):
            with pytest.raises(NotCached) as caught:
                log.offset_for_time(NOW + 15, probe=True)
            self._warm(log, calls, caught.value)
        assert log.offset_for_time(NOW + 15, probe=True) == (4, NOW + 20)

    def test_an_archive_that_is_away(self, place: Place, calls: SimpleQueue[Call]) -> None:
        place.fill()
        place.move(2)
        place.log.close()
        place.archive.rename(place.archive.with_name("away"))
        log = place.open()
        with pytest.raises(NotCached) as caught:
            log.read(0, 300, probe=True)
        self._warm(log, calls, caught.value)
        with pytest.raises(StorageFailed):
            log.read(0, 300)
        assert log.error is None

    def test_two_readers_of_one_segment(self, place: Place, calls: SimpleQueue[Call]) -> None:
        place.fill()
        place.move(1)
        place.log.close()
        log = place.open()
        reader = ColdReader(log.files, calls.put)
        for offset in (0, 2):
            with pytest.raises(NotCached) as caught:
                log.read(offset, 300, probe=True)
            reader.read([caught.value], lambda: None)
        for _ in range(4):
            calls.get(timeout=10)()
        reader.close()
        assert len(log.files) == 1, "one file is open, and the second descriptor is closed"
        assert log.read(0, 100)
