"""A full disk passes, a failed sync does not."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from log_helpers import NOW, append, batch_at, contents, open_log, release, rows

from headwater.core.errors import ApiError, ErrorCode
from headwater.log import growing as growing_module
from headwater.log.config import LogConfig
from headwater.log.errors import StorageFailed, StorageFull
from headwater.log.index import ENTRY_SIZE
from headwater.log.open_files import OpenFiles
from headwater.log.partition import PartitionLog
from headwater.record.records import Record
from headwater.testing.disk import FaultyDisk


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    (tmp_path / "topics").mkdir()
    return FaultyDisk(tmp_path)


def opened(
    disk: FaultyDisk, name: str = "a", config: LogConfig | None = None, *, synced: bool = True
) -> PartitionLog:
    return open_log(disk.root / "topics" / name / "0", disk=disk, config=config, synced=synced)


@pytest.mark.parametrize("after", [0, 1, 30, 100])
def test_a_full_disk_refuses_one_append_and_the_next_works_when_there_is_room(
    disk: FaultyDisk, after: int
) -> None:
    log = opened(disk)
    append(log, rows(2))
    log.sync()
    size = log.size_bytes()
    disk.fail_write(after=after)
    with pytest.raises(StorageFull) as caught:
        append(log, rows(2, seed=1))
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert log.error is None
    assert log.segments[-1].path.stat().st_size == size
    assert len(contents(log)) == 2
    assert append(log, rows(3, seed=2)) == 2
    log.sync()
    assert log.high_watermark == 5
    assert all(contents(log).values())


def test_a_write_that_comes_back_short_is_completed(disk: FaultyDisk) -> None:
    log = opened(disk)
    disk.cut_write(1, 30)
    disk.cut_write(2, 25)
    assert append(log, rows(2)) == 0
    log.sync()
    assert all(contents(log).values())


def test_a_full_disk_when_a_segment_begins(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(disk, config=LogConfig(segment_bytes=300))
    append(log, rows(2))
    log.sync()

    def no_room(path: Path) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", no_room)
        for _ in range(2):
            with pytest.raises(StorageFull):
                append(log, rows(5, seed=1))
    assert len(log.segments) == 1
    assert append(log, rows(5, seed=1)) == 2
    log.close()
    log = opened(disk)
    assert all(contents(log).values())
    assert log.end_offset == 7


def test_too_many_open_files_pass(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(disk)

    def refuse(path: Path) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", refuse)
        with pytest.raises(StorageFull, match="too many files are open"):
            append(log, rows(1))
    assert log.error is None
    assert append(log, rows(1)) == 0


def test_a_full_disk_costs_a_checkpoint_and_nothing_else(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_module, "CHECKPOINT_BYTES", 1)
    log = opened(disk)
    append(log, rows(2))
    disk.full = True
    log.sync()
    assert (log.high_watermark, log.error) == (2, None)
    log.close()
    disk.full = False
    log = opened(disk)
    assert len(contents(log)) == 2


def test_a_failed_write_stops_the_partition(disk: FaultyDisk) -> None:
    log = opened(disk)
    append(log, rows(1))
    log.sync()
    disk.fail_write(error=errno.EIO)
    with pytest.raises(StorageFailed):
        append(log, rows(1))
    with pytest.raises(StorageFailed):
        append(log, rows(1))
    assert log.error is not None
    assert len(contents(log)) == 1


@pytest.mark.parametrize("synced", [True, False])
def test_after_a_failed_sync_the_partition_acknowledges_nothing_and_never_tries_again(
    disk: FaultyDisk, caplog: pytest.LogCaptureFixture, *, synced: bool
) -> None:
    log, other = opened(disk, synced=synced), opened(disk, "b", synced=synced)
    append(log, rows(2))
    log.sync()
    append(log, rows(2, seed=1))
    append(other, rows(2))
    disk.fail_sync()
    work = log.begin_sync()
    append(log, rows(1, seed=2))
    work.run()
    log.end_sync(work)
    assert log.error is not None
    assert "orders-0" in log.error
    assert "acknowledges nothing" in caplog.text
    assert log.high_watermark == (2 if synced else 5)
    syncs = len(disk.syncs)
    with pytest.raises(StorageFailed) as caught:
        append(log, rows(1))
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert not log.needs_sync
    log.sync()
    log.close()
    assert len(disk.syncs) == syncs
    assert not (log.directory / "checkpoint").exists(), "nothing vouches for what may not be on disk"
    other.sync()
    assert other.high_watermark == 2
    with pytest.raises(StorageFailed):
        log.delete_before(1)


def test_a_later_sync_that_succeeds_does_not_make_up_for_an_earlier_one_that_failed(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_module, "CHECKPOINT_BYTES", 1)
    log = opened(disk)
    append(log, rows(2))
    first = log.begin_sync()
    append(log, rows(2, seed=1))
    second = log.begin_sync()
    disk.fail_sync()
    first.run()
    second.run()
    log.end_sync(first)
    log.end_sync(second)
    assert log.error is not None
    assert log.high_watermark == 0
    log.close()
    assert not (log.directory / "checkpoint").exists()


def test_a_sync_here_and_now_takes_in_the_ones_under_way(disk: FaultyDisk) -> None:
    log = opened(disk)
    append(log, rows(2))
    work = log.begin_sync()
    append(log, rows(2, seed=1))
    log.sync()
    assert log.high_watermark == 4
    work.run()
    log.end_sync(work)
    assert log.high_watermark == 4
    assert log.segments[0].pins == 0
    assert len(disk.syncs) == 2


def test_a_sync_of_the_directory_that_fails_fails_the_partition(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(disk)
    append(log, rows(2))

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(disk, "sync_directory", fail)
    log.sync()
    assert log.error is not None
    assert log.high_watermark == 0


def test_names_are_durable_even_if_another_partition_made_the_topics_directory(disk: FaultyDisk) -> None:
    first, second = opened(disk), open_log(disk.root / "topics" / "a" / "1", disk=disk)
    append(first, rows(1))
    append(second, rows(1))
    second.sync()
    after = disk.crash(disk.root.with_name("after"))
    log = open_log(after.root / "topics" / "a" / "1", disk=after)
    assert log.end_offset == 1


def test_unreadable_bytes_are_an_error_of_the_partition(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(disk)
    append(log, rows(1))
    log.sync()

    def fail(fd: int, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(disk, "pread", fail)
    with pytest.raises(StorageFailed, match="bad sector"):
        log.read(0, 100)
    with pytest.raises(StorageFailed, match="bad sector"):
        log.offset_for_time(NOW)
    assert log.error is None


def test_open_files_stay_within_their_limit(disk: FaultyDisk) -> None:
    files = OpenFiles(disk, 3)
    logs = [open_log(disk.root / "topics" / "a" / str(i), files=files, synced=i % 2 == 0) for i in range(20)]
    for log in logs:
        append(log, rows(1))
        log.sync()
        append(log, rows(1))
        log.sync()
    assert len(files) <= 3
    assert disk.open_files <= 3
    for log in logs:
        assert len(contents(log)) == 2
        log.close()
    assert disk.open_files == 0


def test_indexes_of_old_segments_stay_within_their_limit(disk: FaultyDisk) -> None:
    directory, config = disk.root / "topics" / "a" / "0", LogConfig(index_interval_bytes=1)
    log = open_log(directory, disk=disk, config=config)
    for _ in range(10):
        for _ in range(30):
            append(log, rows(1))
        log.roll()
    log.close()
    files = OpenFiles(disk, index_bytes=100 * ENTRY_SIZE)
    log = open_log(directory, files=files, config=config)
    for offset in [*range(0, 300, 7), *range(299, 0, -11), *range(300)]:
        assert batch_at(log, offset)[0].offset == offset
        loaded = [len(segment._index) for segment in log.segments if segment._index is not None]
        assert 0 < sum(loaded) <= 100


def test_a_segment_deleted_while_it_is_synced_keeps_its_file_until_then(disk: FaultyDisk) -> None:
    log = opened(disk, synced=False)
    append(log, rows(2))
    log.roll()
    append(log, rows(2))
    work = log.begin_sync()
    assert log.delete_before(2) == 2
    assert len(log.segments) == 1
    assert disk.open_files == 2
    work.run()
    assert work.error is None
    log.end_sync(work)
    assert disk.open_files == 1


def test_unsynced_segments_that_are_deleted_are_not_made_again(disk: FaultyDisk) -> None:
    log = opened(disk, synced=False)
    append(log, rows(2))
    log.roll()
    append(log, rows(2))
    log.delete_before(2)
    log.close()
    assert sorted(path.name for path in log.directory.glob("*.log")) == [f"{2:020d}.log"]


def test_what_is_not_visible_is_not_found_by_time(disk: FaultyDisk) -> None:
    log = opened(disk)
    append(log, rows(2, timestamp=NOW))
    assert log.offset_for_time(NOW) is None
    assert log.max_timestamp() is None
    log.sync()
    append(log, rows(2, timestamp=NOW + 1000))
    assert log.max_timestamp() == (1, NOW + 1)
    assert log.offset_for_time(NOW + 500) is None
    log.sync()
    assert log.delete_before(-1) == 4
    log.roll()
    append(log, rows(1, timestamp=NOW + 2000))
    assert log.offset_for_time(0) is None
    assert log.max_timestamp() is None


def test_the_largest_timestamp_among_deleted_records_does_not_count(disk: FaultyDisk) -> None:
    log = opened(disk)
    append(log, [Record(0, NOW + 100, None, b"a"), Record(1, NOW + 50, None, b"b")])
    append(log, [Record(0, NOW + 80, None, b"c")])
    append(log, [Record(0, NOW + 20, None, b"d")])
    log.sync()
    log.delete_before(1)
    assert log.max_timestamp() == (2, NOW + 80)
    log.delete_before(3)
    assert log.max_timestamp() == (3, NOW + 20)


def test_a_batch_that_lies_about_its_timestamps_misleads_nobody(disk: FaultyDisk) -> None:
    from headwater.record.batch import checksum, read_header, write_header
    from headwater.record.records import encode_batch

    log = opened(disk)
    liar = encode_batch(rows(1))
    write_header(liar, 0, read_header(liar)._replace(max_timestamp=NOW + 1000))
    write_header(liar, 0, read_header(liar)._replace(crc=checksum(liar, 0, len(liar))))
    log.append(memoryview(liar), read_header(liar), NOW)
    append(log, rows(1, timestamp=NOW + 500))
    append(log, rows(1, timestamp=NOW + 600))
    log.sync()
    assert log.offset_for_time(NOW + 500) == (1, NOW + 500)
    assert log.offset_for_time(NOW + 1000) is None


def test_what_a_topics_settings_refuse(disk: FaultyDisk) -> None:
    log = opened(disk, config=LogConfig(max_message_bytes=200, segment_bytes=150))
    for records, code in (
        (rows(1, size=300), ErrorCode.message_too_large),
        (rows(1, size=100), ErrorCode.record_list_too_large),
        (rows(1, timestamp=NOW + 10**8), ErrorCode.invalid_timestamp),
    ):
        with pytest.raises(ApiError) as caught:
            append(log, records)
        assert caught.value.code is code
    assert log.end_offset == 0
    log.config = LogConfig(log_append_time=True)
    append(log, rows(2, timestamp=1), now_ms=NOW + 5)
    log.sync()
    assert log.max_timestamp() == (0, NOW + 5)
    release(log)
