"""`headwater.log.verify`: whatever changes on disk is found, and nothing else."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import NOW, TOPIC, TOPIC_ID, append, rows

from effort import examples
from headwater.log import checkpoint as checkpoint_file
from headwater.log import index as index_file
from headwater.log import swap as swap_file
from headwater.log.archive import copy
from headwater.log.config import LogConfig
from headwater.log.directory import LogDirectory
from headwater.log.errors import UnknownFormat
from headwater.log.verify import Finding, Kind, Progress, hold, in_archive, segments, verify

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=500)


def make(path: Path, *, batches: int = 40) -> Path:
    """Write a topic of one partition and several segments, closed cleanly; return its directory."""
    logs = LogDirectory(path, synced=True)
    logs.open_topic(TOPIC, TOPIC_ID, range(1), CONFIG, NOW)
    log = logs.get(TOPIC, 0)
    assert log is not None
    for i in range(batches):
        append(log, rows(3, size=60, seed=i))
    logs.close()
    return log.directory


def check(path: Path, *, live: bool = False) -> tuple[list[Finding], Progress]:
    """Return what is found, and the sum of what was checked."""
    findings: list[Finding] = []
    total = Progress(0, 0, 0)
    for segment in segments(path, TOPIC, live=live):
        for item in verify(segment):
            if isinstance(item, Finding):
                findings.append(item)
            else:
                total = Progress(
                    total.bytes + item.bytes, total.batches + item.batches, total.records + item.records
                )
    return findings, total


def test_all_is_well(tmp_path: Path) -> None:
    directory = make(tmp_path)
    files = sorted(directory.glob("*.log"))
    assert len(files) > 2
    findings, total = check(tmp_path)
    assert findings == []
    assert total == Progress(sum(file.stat().st_size for file in files), 40, 120)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        file = data.draw(st.sampled_from(sorted(make(path).glob("*.log"))))
        content = bytearray(file.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        # The leader epoch is the one part of a batch that neither a checksum nor its neighbours cover.
        before = bytes(content)
        content[at] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
        findings, total = check(path)
        if not findings:
            start = _batch_start(before, at)
            assert 12 <= at - start < 16
            return
        [finding] = findings
        assert finding.kind is Kind.DAMAGE
        assert (finding.topic, finding.partition, finding.file) == (TOPIC, 0, file.name)
        assert finding.position <= at < finding.end
        assert finding.next_offset - finding.first_offset == 3
        assert total.batches == 39


def _batch_start(content: bytes, at: int) -> int:
    start = 0
    while True:
        size = 12 + struct.unpack_from(">i", content, start + 8)[0]
        if at < start + size:
            return start
        start += size


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    directory = make(tmp_path)
    last = max(directory.glob("*.log"))
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(last.read_bytes()[:50])
    [finding] = check(tmp_path)[0]
    assert (finding.kind, finding.position, finding.end) == (Kind.TORN, size, size + 50)
    assert finding.first_offset == finding.next_offset == 120


def test_a_file_that_lost_its_end_is_damaged(tmp_path: Path) -> None:
    directory = make(tmp_path)
    for file in (min(directory.glob("*.log")), max(directory.glob("*.log"))):
        os.truncate(file, file.stat().st_size - 1)
    first, last = check(tmp_path)[0]
    assert first.kind is last.kind is Kind.DAMAGE
    assert last.next_offset == 120


def test_without_a_checkpoint_the_end_is_what_is_there(tmp_path: Path) -> None:
    directory = make(tmp_path)
    (directory / checkpoint_file.NAME).unlink()
    findings, total = check(tmp_path)
    assert (findings, total.batches) == ([], 40)


def test_an_index_that_does_not_read(tmp_path: Path) -> None:
    file = min(make(tmp_path).glob("*.index"))
    file.write_bytes(file.read_bytes()[:-1])
    [finding] = check(tmp_path)[0]
    assert (finding.kind, finding.file) == (Kind.INDEX, file.name)


@pytest.mark.parametrize("column", [0, 1], ids=["offset", "position"])
def test_an_index_that_leads_elsewhere(tmp_path: Path, column: int) -> None:
    file = min(make(tmp_path).glob("*.index"))
    content = bytearray(file.read_bytes())
    count = (len(content) - index_file.HEADER_SIZE) // index_file.ENTRY_SIZE
    assert count > 1
    content[index_file.HEADER_SIZE + 4 * count * column] += 1
    # The checksums are right: only the segment can tell that the entry is not.
    struct.pack_into("<I", content, 12, crc32c(memoryview(content)[index_file.HEADER_SIZE :]))
    struct.pack_into("<I", content, 8, crc32c(memoryview(content)[12 : index_file.HEADER_SIZE]))
    assert index_file.decode(bytes(content)) is not None
    file.write_bytes(content)
    [finding] = check(tmp_path)[0]
    assert (finding.kind, finding.file) == (Kind.INDEX, file.name)


def test_beside_a_broker_that_writes(tmp_path: Path) -> None:
    logs = LogDirectory(tmp_path, synced=True)
    logs.open_topic(TOPIC, TOPIC_ID, range(1), CONFIG, NOW)
    log = logs.get(TOPIC, 0)
    assert log is not None
    for i in range(50):
        append(log, rows(3, size=60, seed=i))
        if i % 10 == 0:
            log.sync()
        with hold(tmp_path) as is_ours:
            assert not is_ours
            findings, total = check(tmp_path, live=True)
        assert (findings, total.batches) == ([], i + 1)
    logs.close()
    with hold(tmp_path) as is_ours:
        assert is_ours


def test_a_segment_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    directory = make(tmp_path)
    listed = segments(tmp_path, TOPIC, live=True)
    min(directory.glob("*.log")).unlink()
    assert [item for segment in listed for item in verify(segment) if isinstance(item, Finding)] == []


def test_not_a_data_directory(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="is not a data directory"), hold(tmp_path):
        pass


def test_the_directory_of_an_application_has_a_brokers_inside(tmp_path: Path) -> None:
    make(tmp_path / "broker")
    with (
        pytest.raises(
            UnknownFormat, match=f"no file named format; there is a broker's in {tmp_path}/broker$"
        ),
        hold(tmp_path),
    ):
        pass


def test_an_exchange_that_a_crash_stopped(tmp_path: Path) -> None:
    directory = make(tmp_path)
    min(directory.glob("*.log")).unlink()
    (directory / swap_file.NAME).write_bytes(b"")
    [finding] = check(tmp_path)[0]
    assert (finding.kind, finding.file) == (Kind.TORN, "swap")


def test_a_segment_that_is_replaced_meanwhile(tmp_path: Path) -> None:
    directory = make(tmp_path)
    listed = segments(tmp_path, TOPIC, live=True)
    first = min(directory.glob("*.log"))
    whole = first.read_bytes()
    first.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    items = verify(listed[0])
    assert isinstance(next(items), Progress)  # the damaged file has been read to its end
    first.unlink()
    first.write_bytes(whole)
    assert list(items) == []


class TestArchive:
    """Segments that have moved are checked where they are."""

    @pytest.fixture
    def moved(self, tmp_path: Path) -> list[Path]:
        """Return the files in the archive of a topic of which two segments have moved."""
        logs = LogDirectory(tmp_path / "data", synced=True, archive=tmp_path / "cold")
        logs.open_topic(TOPIC, TOPIC_ID, range(1), CONFIG, NOW)
        log = logs.get(TOPIC, 0)
        assert log is not None
        assert log.archive is not None
        for i in range(40):
            append(log, rows(3, size=60, seed=i))
        log.sync()
        for segment in log.segments[:2]:
            copy(logs.disk, segment.path, log.archive / segment.path.name, lambda _: None)
            log.moved(segment)
        logs.close()
        return sorted((tmp_path / "cold").rglob("*.log"))

    def _check(self, tmp_path: Path, *, archive: bool = True) -> tuple[list[Finding], int]:
        findings: list[Finding] = []
        records = 0
        where = tmp_path / "cold" if archive else None
        for segment in segments(tmp_path / "data", TOPIC, live=False, archive=where):
            for item in verify(segment):
                if isinstance(item, Finding):
                    findings.append(item)
                else:
                    records += item.records
        return findings, records

    def test_all_is_well(self, tmp_path: Path, moved: list[Path]) -> None:
        assert self._check(tmp_path) == ([], 120)
        assert in_archive(tmp_path / "data") == 2
        findings, records = self._check(tmp_path, archive=False)
        assert findings == []
        assert 0 < records < 120

    @pytest.mark.parametrize("how", ["flipped", "short", "gone"])
    def test_damage(self, tmp_path: Path, moved: list[Path], how: str) -> None:
        data = bytearray(moved[1].read_bytes())
        if how == "gone":
            moved[1].unlink()
        else:
            data[100] ^= 1
            moved[1].write_bytes(data if how == "flipped" else moved[1].read_bytes()[:1000])
        findings, _ = self._check(tmp_path)
        assert {(finding.kind, finding.file) for finding in findings} == {(Kind.DAMAGE, moved[1].name)}
