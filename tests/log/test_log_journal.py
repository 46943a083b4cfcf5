"""The journal: what it takes, how it is used again, and what it gives back after a crash."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from compaction_helpers import compact, newest, walk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_helpers import NOW, TOPIC, TOPIC_ID, append, contents, kill, open_log, release, rows
from test_log_commit import GatedDisk, Loop

from effort import examples
from headwater.log import commit as commit_module
from headwater.log import journal as journal_module
from headwater.log.cleanable import Cleaned
from headwater.log.commit import GroupCommit
from headwater.log.config import LogConfig
from headwater.log.directory import LogDirectory
from headwater.log.journal import Journal
from headwater.log.partition import PartitionLog
from headwater.log.verify import Finding, Kind, Progress, segments, verify
from headwater.record.records import Record
from headwater.testing.disk import FaultyDisk

SMALL = 64 * 1024
CONFIG = LogConfig(segment_bytes=100_000)


@pytest.fixture(autouse=True)
def small_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that is soon full, and made after the second round that asks for a thread."""
    monkeypatch.setattr(journal_module, "LEAST_BYTES", SMALL)
    monkeypatch.setattr(journal_module, "MOST", 8 * 1024)
    monkeypatch.setattr(commit_module, "JOURNAL_AFTER", 2)


class Shelf:
    """Data directories with three partitions and a journal, one after the other."""

    def __init__(self, root: Path, *, disk: FaultyDisk | None = None, config: LogConfig = CONFIG) -> None:
        root.mkdir(exist_ok=True)
        self.config = config
        self.disk = disk or FaultyDisk(root)
        self.open()

    def open(self) -> None:
        self.logs = LogDirectory(self.disk.root, synced=True, disk=self.disk, journal_bytes=1)
        self.logs.open_topic(TOPIC, TOPIC_ID, range(3), self.config, NOW)
        self.logs.settle({TOPIC_ID})

    @property
    def journal(self) -> Journal:
        assert self.logs.journal is not None
        return self.logs.journal

    @property
    def path(self) -> Path:
        return self.disk.root / "journal"

    def log(self, partition: int = 0) -> PartitionLog:
        log = self.logs.get(TOPIC, partition)
        assert log is not None
        return log

    def use_journal(self) -> None:
        """Sync a first record of each partition, after which the journal takes what comes."""
        self.journal.prepare()
        self.journal.activate()
        for partition in range(3):
            append(self.log(partition), rows(1, seed=partition))
            self.log(partition).sync()

    def enter(self, *logs: PartitionLog) -> bool:
        """Make logs durable by the journal; false where it cannot take them."""
        work = self.journal.begin(logs or [self.log()])
        if work is None:
            return False
        work.run()
        work.end()
        return True

    def open_anew(self) -> None:
        self.logs.close()
        self.open()

    def die(self) -> None:
        self.disk.kill()
        kill(self.logs)

    def lose_power(self, chance: random.Random | None = None) -> None:
        self.die()
        self.disk = self.disk.crash(self.disk.root.with_name(self.disk.root.name + "+"), chance)
        self.open()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "data")
    yield shelf
    shelf.die()


def test_what_is_in_the_journal_is_durable_with_one_sync_for_all_partitions(shelf: Shelf) -> None:
    shelf.use_journal()
    shelf.disk.syncs.clear()
    held = []
    for i in range(3):
        append(shelf.log(i), rows(4, seed=10 + i))
    assert [shelf.log(i).high_watermark for i in range(3)] == [1, 1, 1]
    assert shelf.enter(*(shelf.log(i) for i in range(3)))
    assert [shelf.log(i).high_watermark for i in range(3)] == [5, 5, 5]
    assert shelf.disk.syncs == [shelf.path.with_name("journal.new")]
    held = [contents(shelf.log(i)) for i in range(3)]
    shelf.lose_power()
    assert [contents(shelf.log(i)) for i in range(3)] == held
    assert not shelf.path.exists()


def test_what_recovery_wrote_again_is_durable_before_the_journal_goes(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(4))
    assert shelf.enter()
    held = contents(shelf.log())
    shelf.die()
    first = shelf.disk.crash(shelf.disk.root.with_name("first"))
    LogDirectory(first.root, synced=True, disk=first)
    shelf.disk = first.crash(shelf.disk.root.with_name("second"))
    shelf.open()
    assert contents(shelf.log()) == held


def test_what_reads_as_it_should_is_written_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a failed sync reads well and is not on the disk; only what is written anew gets there."""
    shelf.use_journal()
    append(shelf.log(), rows(4))
    assert shelf.enter()
    segment = shelf.log().segments[0].path
    shelf.die()
    written: set[int] = set()

    def pwrite(fd: int, data: memoryview, position: int) -> int:
        written.add(os.fstat(fd).st_ino)
        return FaultyDisk.pwrite(shelf.disk, fd, data, position)

    monkeypatch.setattr(shelf.disk, "pwrite", pwrite)
    shelf.open()
    assert segment.stat().st_ino in written


def test_a_clean_stop_leaves_no_journal_and_a_killed_broker_none_after_its_next_start(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(4))
    assert shelf.enter()
    held = contents(shelf.log())
    shelf.die()
    assert shelf.path.exists()
    shelf.open()
    assert not shelf.path.exists()
    shelf.use_journal()
    shelf.logs.close()
    assert not shelf.path.exists()
    assert shelf.disk.open_files == 0
    shelf.open()
    assert held.items() <= contents(shelf.log()).items()


def test_a_new_segment_and_a_first_record_are_synced_themselves(shelf: Shelf) -> None:
    shelf.journal.prepare()
    shelf.journal.activate()
    append(shelf.log(), rows(1))
    assert not shelf.enter(), "its directory is new"
    shelf.log().sync()
    append(shelf.log(), rows(1))
    assert shelf.enter()
    shelf.log().roll()
    assert not shelf.enter(), "the name of the segment is not durable, though no record waits for it"
    append(shelf.log(), rows(1))
    work = shelf.log().begin_sync()
    append(shelf.log(), rows(1))
    assert not shelf.enter(), "the name is not durable before the sync ends"
    work.run()
    shelf.log().end_sync(work)
    assert shelf.enter()
    held = contents(shelf.log())
    assert len(held) == 4
    shelf.lose_power()
    assert contents(shelf.log()) == held


def test_the_first_records_of_a_life_are_synced_with_their_directory(shelf: Shelf) -> None:
    shelf.use_journal()
    shelf.open_anew()
    shelf.journal.prepare()
    shelf.journal.activate()
    append(shelf.log(), rows(1))
    assert not shelf.enter()


def test_a_log_whose_durability_is_left_to_the_system_is_synced_itself(shelf: Shelf) -> None:
    shelf.use_journal()
    other = open_log(shelf.disk.root / "topics" / "other", disk=shelf.disk, synced=False)
    append(other, rows(1))
    assert not shelf.enter(other), "only its own sync leads to a checkpoint"
    release(other)


def test_large_rounds_are_synced_themselves(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(1, size=9_000))
    assert not shelf.enter()


def test_a_half_is_used_again_once_its_partitions_are_synced(shelf: Shelf) -> None:
    shelf.use_journal()
    turns = 0
    for i in range(80):
        append(shelf.log(i % 3), rows(2, size=1_000, seed=i))
        while not shelf.enter(shelf.log(i % 3)):
            full = shelf.journal.take_full()
            assert {log.partition for log in full} == {0, 1, 2}
            for log in full:
                log.sync()
            append(shelf.log(i % 3), rows(1, seed=i))
            turns += 1
        assert shelf.log(i % 3).high_watermark == shelf.log(i % 3).end_offset
    assert turns >= 3
    assert shelf.path.stat().st_size == SMALL
    held = [contents(shelf.log(i)) for i in range(3)]
    shelf.lose_power()
    assert [contents(shelf.log(i)) for i in range(3)] == held


def test_a_half_is_not_used_again_while_a_partition_fails_and_is_kept_by_a_clean_stop(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(1), rows(3, seed=5))
    assert shelf.enter(shelf.log(1))
    held = contents(shelf.log(1))
    append(shelf.log(1), rows(1))
    shelf.disk.fail_sync()
    shelf.log(1).sync()
    assert shelf.log(1).error is not None
    for i in range(40):
        append(shelf.log(), rows(2, size=1_000, seed=i))
        if not shelf.enter():
            shelf.log().sync()
    assert not shelf.enter() or shelf.journal.begin([shelf.log()]) is not None
    shelf.logs.close()
    assert shelf.path.exists(), "it alone has what the failed partition acknowledged"
    shelf.disk.kill()
    shelf.disk = shelf.disk.crash(shelf.disk.root.with_name("after"))
    shelf.open()
    assert held.items() <= contents(shelf.log(1)).items()


def test_a_deleted_partition_gives_its_place_in_the_journal_up(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(3))
    assert shelf.enter()
    shelf.logs.delete_topic(TOPIC, TOPIC_ID, 3)
    shelf.logs.close()
    assert not shelf.path.exists()
    shelf.open()


def test_a_deletion_that_a_crash_undoes_takes_nothing(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(3))
    assert shelf.enter()
    held = contents(shelf.log())
    shelf.logs.delete_topic(TOPIC, TOPIC_ID, 3)
    shelf.disk.sync_directory(shelf.disk.root / "topics")
    shelf.lose_power()
    assert contents(shelf.log()) == held


def test_a_half_with_entries_of_a_deleted_partition_is_used_again_one_round_later(shelf: Shelf) -> None:
    shelf.use_journal()
    other = LogDirectory.open_state(shelf.logs, "other", NOW)
    append(other, rows(1))
    other.sync()
    append(shelf.log(), rows(1))
    assert shelf.enter()
    shelf.logs.delete_topic(TOPIC, TOPIC_ID, 3)
    refused = []
    for i in range(30):
        append(other, rows(1, seed=i))
        if not shelf.enter(other):
            refused.append(i)
            other.sync()
        for log in shelf.journal.take_full():
            log.sync()
    assert len(refused) == 1, "the round after the deletion is not written over what it may undo"
    shelf.open_anew()


def test_entries_of_deleted_files_are_passed_over(shelf: Shelf) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(3))
    assert shelf.enter()
    shutil.rmtree(shelf.log().directory)
    shelf.die()
    shelf.disk = FaultyDisk(shelf.disk.root)
    shelf.open()
    assert shelf.log().end_offset == 0
    assert not shelf.log().directory.exists()


def test_a_cleaned_segment_is_not_overwritten_with_what_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "LEAST_BYTES", 1024 * 1024)  # it still has all entries
    shelf = Shelf(tmp_path / "data", config=LogConfig(compacted=True, segment_bytes=4_000))
    shelf.use_journal()
    log = shelf.log()
    for i in range(60):
        append(log, [Record(0, NOW, b"k%d" % (i % 3), b"%d" % i * 100)])
        if not shelf.enter(log):
            log.sync()
            shelf.journal.take_full()
    log.roll()
    log.sync()
    before = newest(contents(log))  # type: ignore[arg-type]
    compact(log, Cleaned(), NOW + 10**9)
    kept = {record.offset: record for record in walk(log)}
    assert len(kept) < 30
    assert newest(kept) == before
    shelf.lose_power()
    assert {record.offset: record for record in walk(shelf.log())} == kept
    shelf.die()


def test_a_journal_that_fails_is_given_up_and_the_partitions_are_synced(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.use_journal()
    append(shelf.log(), rows(1))
    work = shelf.journal.begin([shelf.log()])
    assert work is not None
    shelf.disk.fail_sync()
    work.run()
    work.end()
    assert shelf.log().high_watermark == 1
    assert not shelf.journal.active
    assert "the journal failed" in caplog.text
    assert [log.partition for log in shelf.journal.take_full()] == [0]


@pytest.mark.parametrize("torn", ["cut", "zeros", "noise", "flipped", "empty", "short"])
def test_a_damaged_journal_ends_where_the_damage_is(shelf: Shelf, torn: str) -> None:
    shelf.use_journal()
    for i in range(3):
        append(shelf.log(), rows(1, seed=i))
        assert shelf.enter()
    held = contents(shelf.log())
    shelf.die()
    data = bytearray(shelf.path.read_bytes())
    third = 2 * 4096
    match torn:
        case "cut":
            data[third + 30 :] = bytes(len(data) - third - 30)
        case "zeros":
            data[third : third + 4096] = bytes(4096)
        case "noise":
            data[third : third + 4096] = random.Random(1).randbytes(4096)
        case "flipped":
            data[third + 40] ^= 1
        case "empty":
            data.clear()
        case "short":
            del data[100:]
    after = shelf.disk.crash(shelf.disk.root.with_name("after"))
    (after.root / "journal").write_bytes(data)
    shelf.disk = FaultyDisk(after.root)
    shelf.open()
    left = contents(shelf.log())
    assert left.items() <= held.items()
    assert len(left) == (1 if torn in ("empty", "short") else 3)


@given(data=st.binary(max_size=300), at=st.integers(0, SMALL))
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_written_over_a_journal_harms_no_partition(tmp_path: Path, data: bytes, at: int) -> None:
    root = tmp_path / "data"
    shutil.rmtree(root, ignore_errors=True)
    shelf = Shelf(root)
    shelf.use_journal()
    append(shelf.log(), rows(2))
    assert shelf.enter()
    held = contents(shelf.log())
    shelf.die()
    with shelf.path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    shelf.disk = FaultyDisk(root)
    shelf.open()
    assert contents(shelf.log()) == held
    shelf.die()


def test_a_disk_without_room_for_a_journal_does_without(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    commit = GroupCommit(loop.soon, loop.soon_threadsafe, threads=1, journal=shelf.journal)
    _commit(loop, commit, shelf.log(), rows(1, seed=0))
    shelf.disk.fail_write(3, error=errno.ENOSPC)  # after the record's, the second part of the journal
    _commit(loop, commit, shelf.log(), rows(1, seed=1))
    commit.close()
    assert "there is no journal" in caplog.text
    assert not shelf.path.exists()
    assert not shelf.path.with_name("journal.new").exists()
    assert shelf.log().high_watermark == 2
    assert not shelf.journal.active


def _commit(loop: Loop, commit: GroupCommit, log: PartitionLog, records: list[Record]) -> None:
    done: list[int] = []
    append(log, records)
    commit.add(log)
    commit.wait(lambda: done.append(1))
    loop.run_until(lambda: bool(done))


# -- with the group commit -------------------------------------------------------------------------


class Committed:
    """A shelf with a group commit whose journal is in use."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.disk = GatedDisk(root)
        self.shelf = Shelf(root, disk=self.disk)
        self.loop = Loop()
        self.commit = GroupCommit(
            self.loop.soon, self.loop.soon_threadsafe, threads=2, journal=self.shelf.journal
        )
        for i in range(3):
            self.write(i)
        self.loop.run_until(lambda: self.shelf.journal.active)

    def write(self, partition: int, *, size: int = 20) -> None:
        _commit(self.loop, self.commit, self.shelf.log(partition), rows(1, size=size))

    def close(self) -> None:
        self.disk.gate.set()
        self.commit.close()
        self.shelf.die()


@pytest.fixture
def committed(tmp_path: Path) -> Iterator[Committed]:
    committed = Committed(tmp_path / "data")
    yield committed
    committed.close()


def test_rounds_go_to_the_journal_once_there_is_one(committed: Committed) -> None:
    committed.disk.syncs.clear()
    threads = threading.active_count()
    for i in range(6):
        committed.write(i % 3)
    assert {path.name for path in committed.disk.syncs} == {"journal.new"}
    assert len(committed.disk.syncs) == 6
    assert threading.active_count() == threads


def test_a_slow_disk_is_waited_for_on_other_threads(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "_SLOW_SECONDS", -1.0)
    committed.write(0)
    committed.disk.gate.clear()
    while committed.disk.entered.acquire(blocking=False):
        pass
    log, done = committed.shelf.log(), list[int]()
    for _ in range(2):
        append(log, rows(1))
        committed.commit.add(log)
        committed.commit.wait(lambda: done.append(log.high_watermark))
        committed.loop.step() if log.end_offset == 3 else None
    assert committed.disk.entered.acquire(timeout=10), "another thread waits"
    assert (done, log.high_watermark) == ([], 2)
    committed.disk.gate.set()
    committed.loop.run_until(lambda: len(done) == 2)
    assert done == [3, 4]


def test_a_journal_that_fails_in_a_round_loses_nobody_who_waits(committed: Committed) -> None:
    committed.disk.syncs.clear()
    committed.disk.fail_sync()
    committed.write(0)
    assert committed.shelf.log().high_watermark == 2
    assert [path.name for path in committed.disk.syncs[:2]] == ["journal.new", "00000000000000000000.log"]
    committed.write(0)
    held = contents(committed.shelf.log())
    committed.commit.close()
    committed.shelf.lose_power()
    assert contents(committed.shelf.log()) == held


def test_closing_syncs_what_a_failing_journal_did_not_take(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "_SLOW_SECONDS", -1.0)
    committed.write(0)
    log, done = committed.shelf.log(), list[int]()
    committed.disk.gate.clear()
    append(log, rows(1))
    committed.commit.add(log)
    committed.commit.wait(lambda: done.append(log.high_watermark))
    committed.loop.step()
    committed.disk.fail_sync()
    threading.Timer(0.1, committed.disk.gate.set).start()
    committed.commit.close()
    assert done == [3]
    held = contents(log)
    committed.shelf.lose_power()
    assert contents(committed.shelf.log()) == held


def test_full_halves_are_settled_behind_the_rounds(committed: Committed) -> None:
    for i in range(100):
        committed.write(i % 3, size=1_000)
    assert committed.shelf.journal.active
    synced = [path.name for path in committed.disk.syncs]
    assert synced.count("journal.new") > 50, "the journal is used again and again"
    assert synced.count("00000000000000000000.log") > 6
    assert [committed.shelf.log(i).high_watermark for i in range(3)] == [35, 34, 34]


def test_whoever_waits_for_a_partition_that_is_being_settled_waits_for_that(committed: Committed) -> None:
    log = committed.shelf.log()
    committed.write(0, size=1_000)
    append(log, rows(1))
    work = log.begin_sync()  # as settling does, and the record is in no journal
    assert [work] == log.works()
    committed.shelf.journal.give_up(OSError(errno.EIO, "for the sake of the test"))
    done: list[int] = []
    committed.disk.gate.clear()
    committed.commit.add(log)
    committed.commit.wait(lambda: done.append(log.high_watermark))
    committed.loop.step()
    assert not done
    committed.disk.gate.set()
    committed.loop.run_until(lambda: bool(done))
    assert done == [log.end_offset]


def test_a_sync_behind_one_that_fails_fails_as_well(shelf: Shelf) -> None:
    log = shelf.log()
    append(log, rows(1))
    first = log.begin_sync()
    append(log, rows(1))
    second = log.begin_sync()
    shelf.disk.fail_sync()
    second.run()
    assert first.error is not None
    assert second.error is not None
    log.end_sync(second)
    assert log.error is not None
    assert log.high_watermark == 0
    assert [path.suffix for path in shelf.disk.syncs].count(".log") == 1, "it is never tried again"


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_acknowledged_is_lost_with_the_power(tmp_path: Path, seed: int) -> None:
    """Producers of three partitions, a group commit, a journal, and power that goes at any moment."""
    chance = random.Random(seed)
    for old in tmp_path.iterdir():
        shutil.rmtree(old)
    shelf = Shelf(tmp_path / "data", config=LogConfig(segment_bytes=chance.choice([3_000, 20_000])))
    sent: list[dict[int, bytes]] = [{}, {}, {}]
    acknowledged = [0, 0, 0]
    for life in range(3):
        loop = Loop()
        commit = GroupCommit(loop.soon, loop.soon_threadsafe, threads=2, journal=shelf.journal)
        for i in range(chance.randrange(80)):
            _produce(shelf, commit, chance, sent, acknowledged, seed=1_000 * life + i)
            if chance.random() < 0.8 and not loop.calls.empty():
                loop.step()
        commit.close() if chance.random() < 0.5 else _abandon(commit)
        shelf.lose_power(random.Random(seed + life) if chance.random() < 0.7 else None)
        for i, values in enumerate(sent):
            found = {offset: record.value for offset, record in contents(shelf.log(i)).items() if record}
            assert len(found) >= acknowledged[i]
            assert found.items() <= values.items()
            sent[i] = dict(found)  # type: ignore[arg-type]
            acknowledged[i] = len(found)
    shelf.die()


def _produce(
    shelf: Shelf,
    commit: GroupCommit,
    chance: random.Random,
    sent: list[dict[int, bytes]],
    acknowledged: list[int],
    *,
    seed: int,
) -> None:
    partitions = chance.sample(range(3), chance.randint(1, 3))
    ends: dict[int, int] = {}
    for partition in partitions:
        log = shelf.log(partition)
        records = rows(1, size=chance.choice([20, 1_000]), seed=seed)
        offset = append(log, records)
        assert records[0].value is not None
        sent[partition][offset] = records[0].value
        ends[partition] = log.end_offset
        commit.add(log)

    def acknowledge() -> None:
        for partition, end in ends.items():
            assert shelf.log(partition).high_watermark >= end
            acknowledged[partition] = max(acknowledged[partition], end)

    commit.wait(acknowledge)


def _abandon(commit: GroupCommit) -> None:
    """End the threads of a commit whose process dies: what they have not answered stays unanswered."""
    for _ in commit._threads:
        commit._jobs.put(None)
    for thread in commit._threads:
        thread.join()


def test_what_the_journal_has_and_a_segment_lacks_is_told_and_checked(shelf: Shelf) -> None:
    shelf.use_journal()
    for _ in range(3):
        append(shelf.log(1), rows(4, size=500))
        assert shelf.enter(shelf.log(1))
    append(shelf.log(2), rows(4))
    shelf.log(2).sync()
    whole = shelf.log(1).segments[0].path.stat().st_size
    shelf.die()
    assert verified(shelf.disk.root) == ([], 19), "a crash of the process took nothing"
    crashed = shelf.disk.crash(shelf.disk.root.with_name("crashed")).root
    [file] = crashed.glob(f"topics/{TOPIC}.*/1/*.log")
    before = file.read_bytes()
    [found], records = verified(crashed)
    assert records == 19
    assert (found.kind, found.partition, found.file, found.end) == (Kind.JOURNAL, 1, file.name, whole)
    assert (found.first_offset, found.next_offset) == (1, 13)
    assert (file.read_bytes(), (crashed / "journal").exists()) == (before, True), "nothing was changed"
    with file.open("r+b") as broken:
        broken.write(b"\xff" * 20)
    assert [each.kind for each in verified(crashed)[0]] == [Kind.JOURNAL, Kind.DAMAGE]
    shelf.disk = FaultyDisk(crashed)
    shelf.open()
    assert verified(crashed)[0][0].kind is Kind.DAMAGE, "the start has written it"


def verified(root: Path) -> tuple[list[Finding], int]:
    """Return what is found in a directory that no broker runs on, and how many records were checked."""
    said = [item for segment in segments(root, TOPIC, live=False) for item in verify(segment)]
    records = sum(item.records for item in said if isinstance(item, Progress))
    return [item for item in said if isinstance(item, Finding)], records
