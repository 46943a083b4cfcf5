"""What a crash leaves behind, and how much of it a start reads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import NOW, append, contents, open_log, release, restore, rows, snapshot

from effort import examples
from headwater.log import checkpoint
from headwater.log import growing as growing_module
from headwater.log.config import LogConfig
from headwater.record.batch import read_header
from headwater.record.records import Record, encode_batch
from headwater.testing.disk import PAGE, FaultyDisk


def written(directory: Path, batches: int = 3, *, size: int = 50) -> dict[int, Record | None]:
    """Write a few batches, sync them, and be killed."""
    log = open_log(directory)
    for i in range(batches):
        append(log, rows(2, size=size, seed=i))
    log.sync()
    out = contents(log)
    release(log)
    return out


def next_batch(offset: int, *, size: int = 50) -> bytes:
    return bytes(encode_batch(rows(2, size=size, seed=99), base_offset=offset))


@pytest.mark.parametrize(
    "kind", ["random", "zeros", "half", "zeros-then-batch", "hole", "hole-then-batch", "header-only"]
)
def test_a_tail_that_was_never_written_whole_is_cut(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "t" / "0"
    before = written(directory)
    path = directory / f"{0:020d}.log"
    sound = path.read_bytes()
    hole_at = -len(sound) % PAGE
    torn = bytearray(next_batch(6, size=3 * PAGE))
    torn[hole_at : hole_at + PAGE] = bytes(PAGE)
    tails = {
        "random": random.Random(3).randbytes(5000),
        "zeros": bytes(10_000),
        "half": next_batch(6)[:-1],
        "zeros-then-batch": bytes(500) + next_batch(6),
        "hole": bytes(torn),
        "hole-then-batch": bytes(torn) + next_batch(8),
        "header-only": next_batch(6)[:61],
    }
    path.write_bytes(sound + tails[kind])
    log = open_log(directory)
    assert contents(log) == before
    assert log.end_offset == 6
    assert "cut" in caplog.text
    assert "orders-0" in caplog.text
    assert append(log, rows(1)) == 6
    log.close()
    assert path.read_bytes()[: len(sound)] == sound
    assert len(contents(open_log(directory))) == 7


@settings(max_examples=examples(80), deadline=None)
@given(garbage=st.binary(min_size=1, max_size=300))
def test_any_bytes_at_the_end_leave_what_was_there(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    directory = tmp_path_factory.mktemp("log") / "t" / "0"
    before = written(directory, 2)
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + garbage)
    log = open_log(directory)
    assert contents(log) == before
    assert append(log, rows(1)) == 4
    release(log)


def test_a_batch_embedded_in_a_value_is_not_taken_for_a_batch(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    log = open_log(directory)
    append(log, rows(1))
    append(log, [Record(0, NOW, None, next_batch(2))])
    append(log, rows(1, seed=2))
    log.sync()
    before = contents(log)
    release(log)
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    second = read_header(data).size
    data[second + 30] ^= 4
    path.write_bytes(data)
    assert contents(open_log(directory)) == {0: before[0], 1: None, 2: before[2]}


def test_half_made_files_are_understood(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    before = written(directory)
    (directory / "checkpoint.new").write_bytes(b"half")
    (directory / f"{0:020d}.index.new").write_bytes(b"half")
    (directory / f"{6:020d}.log").touch()
    (directory / "12.log").write_bytes(b"not ours")
    log = open_log(directory)
    assert contents(log) == before
    assert not list(directory.glob("*.new"))
    assert append(log, rows(1)) == 6
    log.close()
    assert len(contents(open_log(directory))) == 7


def test_a_segment_begun_before_the_end_of_the_one_before_was_durable_is_set_aside(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    log = open_log(directory)
    append(log, rows(2))
    log.sync()
    append(log, rows(2, seed=1))
    log.roll()
    append(log, rows(2, seed=2))
    release(log)
    first, second = sorted(directory.glob("*.log"))
    first.write_bytes(first.read_bytes()[:-20])
    log = open_log(directory)
    assert log.end_offset == 2
    assert second.with_name(second.name + ".torn").exists()
    assert append(log, rows(3, seed=3)) == 2
    log.roll()
    append(log, rows(1))
    log.sync()
    after = contents(log)
    release(log)
    assert contents(open_log(directory)) == after


def test_a_clean_start_reads_no_batches_and_an_unclean_one_only_what_came_after_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_module, "CHECKPOINT_BYTES", 50_000)
    config = LogConfig(segment_bytes=120_000)
    root = tmp_path / "t"
    root.mkdir()
    directory = root / "0"
    disk = FaultyDisk(root.parent)
    log = open_log(directory, config=config, disk=disk)
    flight = None
    for i in range(40):  # syncs overlap with appends all the time, as under load
        append(log, rows(10, size=1000, seed=i))
        if flight is not None:
            flight.run()
            log.end_sync(flight)
        flight = log.begin_sync()
    release(log)
    total = sum(path.stat().st_size for path in directory.glob("*.log"))
    files = snapshot(directory)
    for spoilt in ({}, {"checkpoint": b""}):
        restore(directory, {**files, **spoilt})
        disk = FaultyDisk(root.parent)
        log = open_log(directory, config=config, disk=disk)
        assert log.end_offset == 400
        if spoilt:
            assert disk.bytes_read == total
        else:
            assert 0 < disk.bytes_read < 80_000
        log.close()
        disk.bytes_read = 0
        log = open_log(directory, config=config, disk=disk)
        assert log.end_offset == 400
        assert disk.bytes_read == 0
        log.close()


def test_a_checkpoint_never_vouches_for_what_is_still_being_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_module, "CHECKPOINT_BYTES", 100)
    disk = FaultyDisk(tmp_path)
    (tmp_path / "t").mkdir()
    log = open_log(tmp_path / "t" / "0", disk=disk)
    append(log, rows(5))
    first = log.begin_sync()
    append(log, rows(5, seed=1))
    second = log.begin_sync()
    first.run()
    log.end_sync(first)
    assert log.high_watermark == 5
    saved = checkpoint.load(log.directory)
    assert saved is not None
    assert saved.next_offset == 5
    second.run()
    log.end_sync(second)
    assert log.high_watermark == 10
    saved = checkpoint.load(log.directory)
    assert saved is not None
    assert saved.next_offset == 10


@pytest.mark.parametrize("synced", [True, False])
def test_closing_makes_durable_what_recovery_found(tmp_path: Path, *, synced: bool) -> None:
    root = tmp_path / "disk"
    (root / "topics").mkdir(parents=True)
    directory = root / "topics" / "t" / "0"
    disk = FaultyDisk(root)
    log = open_log(directory, disk=disk, synced=synced)
    append(log, rows(3))
    disk.kill()
    log = open_log(directory, disk=disk, synced=synced)
    log.close()
    after = disk.crash(tmp_path / "after")
    log = open_log(after.root / "topics" / "t" / "0", disk=after, synced=synced)
    assert log.end_offset == 3


def test_the_start_of_the_log_outlives_a_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    (root / "topics").mkdir(parents=True)
    directory = root / "topics" / "t" / "0"
    disk = FaultyDisk(root)
    log = open_log(directory, disk=disk)
    append(log, rows(3))
    log.sync()
    log.delete_before(2)
    append(log, rows(3))
    log.close()
    for seed in range(20):
        after = disk.crash(tmp_path / str(seed), random.Random(seed))
        log = open_log(after.root / "topics" / "t" / "0", disk=after)
        assert log.start_offset == 2


def test_producers_are_remembered_when_their_batches_are_deleted(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    log = open_log(directory)
    assert append(log, rows(3), producer_id=1, producer_epoch=0, base_sequence=0) == 0
    log.roll()
    append(log, rows(1))
    log.sync()
    log.delete_before(3)
    assert len(log.segments) == 1
    release(log)
    log = open_log(directory)
    assert append(log, rows(3), producer_id=1, producer_epoch=0, base_sequence=0) == 0
    assert log.end_offset == 4
