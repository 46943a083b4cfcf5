"""A flipped bit anywhere is an error for the range it hits, and never a wrong or missing record."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from log_helpers import NOW, append, contents, open_log, release, restore, rows, snapshot

from headwater.log import checkpoint
from headwater.log.config import LogConfig
from headwater.log.errors import DamagedRange
from headwater.record.batch import batches
from headwater.record.codecs import Codec
from headwater.record.records import Record

LEADER_EPOCH = range(12, 16)


def build(directory: Path, config: LogConfig, *, clean: bool) -> dict[int, Record]:
    """Write a log of three segments, stop it cleanly or not, and return its records."""
    log = open_log(directory, config=config)
    for i in range(9):
        append(log, rows(1 + i % 4, size=5 + 3 * i, seed=i), codec=Codec.ZSTD if i == 4 else Codec.NONE)
        log.sync()
        if i in (2, 5):
            log.roll()
    written = contents(log)
    if clean:
        log.close()
    else:
        release(log)
    assert all(written.values())
    assert len(log.segments) == 3
    return {offset: record for offset, record in written.items() if record is not None}


def batch_spans(files: dict[str, bytes], name: str) -> list[tuple[int, int, range]]:
    """Return (start, end, offsets) of each batch of a segment file."""
    return [
        (position, position + header.size, range(header.base_offset, header.last_offset + 1))
        for position, header in batches(files[name])
    ]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("interval", [1, 4096], ids=["every-batch-indexed", "sparse-index"])
def test_a_flipped_bit_in_a_segment(
    tmp_path: Path, *, clean: bool, interval: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = LogConfig(index_interval_bytes=interval)
    directory = tmp_path / "t" / "0"
    original = build(directory, config, clean=clean)
    files = snapshot(directory)
    for name in sorted(name for name in files if name.endswith(".log")):
        spans = batch_spans(files, name)
        in_segment = {offset for *_, offsets in spans for offset in offsets}
        for position in range(len(files[name])):
            damaged = bytearray(files[name])
            damaged[position] ^= 1 << (position * 5 % 8)
            restore(directory, {**files, name: bytes(damaged)})
            caplog.clear()
            log = open_log(directory, config=config)
            read = contents(log)
            start, _, hit = next(span for span in spans if span[0] <= position < span[1])
            allowed = set(hit)
            if interval > 1 and position - start < 61:
                allowed = in_segment  # the walk from the last index entry ends at a damaged header
            lost = {offset for offset, record in read.items() if record is None}
            where = f"{name} byte {position} ({position - start} of its batch)"
            assert set(read) == set(original), where
            assert {o: r for o, r in read.items() if r is not None} == {
                o: r for o, r in original.items() if o not in lost
            }, where
            assert lost <= allowed, where
            if position - start in LEADER_EPOCH:
                assert not lost, where
            else:
                assert set(hit) <= lost, where
                assert any(
                    r.levelno == logging.ERROR and "orders-0" in r.getMessage() for r in caplog.records
                )
            assert append(log, rows(1), now_ms=NOW) == len(original), where
            release(log)


def test_a_flipped_bit_in_an_index_or_checkpoint_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    config = LogConfig(index_interval_bytes=64)
    original = build(directory, config, clean=True)
    files = snapshot(directory)
    timestamps = {record.timestamp for record in original.values()}
    first = {t: min(o for o, r in original.items() if r.timestamp >= t) for t in timestamps}
    for name in sorted(name for name in files if not name.endswith(".log")):
        for position in range(len(files[name])):
            damaged = bytearray(files[name])
            damaged[position] ^= 1 << (position * 3 % 8)
            restore(directory, {**files, name: bytes(damaged)})
            log = open_log(directory, config=config)
            assert contents(log) == original, f"{name} byte {position}"
            assert (log.start_offset, log.end_offset) == (0, len(original))
            for timestamp, offset in first.items():
                assert log.offset_for_time(timestamp) == (offset, original[offset].timestamp)
            release(log)


@pytest.mark.parametrize("spoil", ["missing", "empty", "truncated", "zeroed", "stale"])
def test_an_index_that_is_gone_is_made_again(tmp_path: Path, spoil: str) -> None:
    directory = tmp_path / "t" / "0"
    config = LogConfig(index_interval_bytes=64)
    original = build(directory, config, clean=True)
    files = snapshot(directory)
    for name in (name for name in files if name.endswith(".index")):
        path = directory / name
        restore(directory, files)
        if spoil == "missing":
            path.unlink()
        else:
            other = next(n for n in files if n.endswith(".index") and n != name)
            path.write_bytes(
                {
                    "empty": b"",
                    "truncated": files[name][:-9],
                    "zeroed": bytes(len(files[name])),
                    "stale": files[other],
                }[spoil]
            )
        log = open_log(directory, config=config)
        assert contents(log) == original
        log.close()
        log = open_log(directory, config=config)
        assert contents(log) == original
        log.close()
    assert all((directory / name).exists() for name in files)


def test_damage_in_a_closed_index_is_found_when_the_index_is_first_needed(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    original = build(directory, LogConfig(index_interval_bytes=1), clean=True)
    log = open_log(directory)
    index = directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:-1] + b"\xff")
    assert contents(log) == original
    assert index.read_bytes()[-1] != 0xFF


def test_what_a_checkpoint_vouches_for_is_damage_and_never_a_torn_tail(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    original = build(directory, LogConfig(), clean=True)
    last = sorted(directory.glob("*.log"))[-1]
    (directory / last.name.replace(".log", ".index")).unlink()
    data = last.read_bytes()
    last.write_bytes(data[:-10])
    log = open_log(directory)
    read = contents(log)
    assert [o for o, r in read.items() if r is None] == [len(original) - 1]
    assert log.end_offset == len(original)
    assert append(log, rows(2)) == len(original)
    log.sync()
    after = contents(log)
    release(log)
    log = open_log(directory)
    assert contents(log) == after
    log.close()
    assert contents(open_log(directory)) == after


def test_a_lost_file_end_is_reported_and_its_offsets_are_not_given_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "t" / "0"
    original = build(directory, LogConfig(), clean=True)
    last = sorted(directory.glob("*.log"))[-1]
    last.write_bytes(b"")
    log = open_log(directory)
    assert log.end_offset == len(original)
    assert "orders-0" in caplog.text
    with pytest.raises(DamagedRange):
        log.read(len(original) - 1, 1)
    with pytest.raises(DamagedRange):  # and not nothing, which whoever reads on would ask for again and again
        log.read(int(last.stem), 1)
    assert append(log, rows(1)) == len(original)


def test_a_damaged_record_of_a_deletion_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "t" / "0"
    original = build(directory, LogConfig(), clean=True)
    log = open_log(directory)
    log.delete_before(3)
    release(log)
    log = open_log(directory)
    assert log.start_offset == 3
    assert not caplog.records
    release(log)
    path = directory / checkpoint.SYNCED
    path.write_bytes(path.read_bytes()[:-3])
    log = open_log(directory)
    assert log.end_offset == len(original)
    assert f"{path} does not read" in caplog.text


def test_time_look_ups_beside_damage(tmp_path: Path) -> None:
    directory = tmp_path / "t" / "0"
    config = LogConfig(index_interval_bytes=1)
    log = open_log(directory, config=config)
    for i in range(6):
        append(log, rows(2, timestamp=NOW + 100 * i, seed=i))
    log.close()
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    start, end, _ = batch_spans({"x": bytes(data)}, "x")[2]
    data[end - 3] ^= 1
    path.write_bytes(data)
    log = open_log(directory, config=config)
    assert log.offset_for_time(NOW + 100) == (2, NOW + 100)
    assert log.offset_for_time(NOW + 300) == (6, NOW + 300)
    assert log.max_timestamp() == (11, NOW + 501)
    with pytest.raises(DamagedRange):
        log.offset_for_time(NOW + 200)
    assert start > 0
