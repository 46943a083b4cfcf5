"""Compaction: what stays, what goes, and that nobody can tell otherwise."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from compaction_helpers import alive, committed, compact, job, newest, put, walk, write
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import NOW, open_log, release

from effort import examples
from headwater.log import cleanable, swap
from headwater.log.cleanable import Cleaned
from headwater.log.cleaner import Cleaning, Done, SourceDamaged, Unit
from headwater.log.compaction import DELETE_HORIZON, MAX_SPAN, Batch, dense, empty, encode
from headwater.log.config import LogConfig
from headwater.log.partition import PartitionLog
from headwater.log.transactions import Aborted
from headwater.record.batch import batches, read_header
from headwater.record.codecs import Codec
from headwater.record.records import MAX_DECOMPRESSED, Record, decode_batch
from headwater.testing.disk import FaultyDisk

CONFIG = LogConfig(
    segment_bytes=600, index_interval_bytes=100, compacted=True, deleted=False, delete_retention_ms=1000
)
DAY = 24 * 3600 * 1000


def fill(log: PartitionLog, keys: int, rounds: int, *, codec: Codec = Codec.NONE) -> None:
    for turn in range(rounds):
        for key in range(keys):
            write(log, [(b"key-%d" % key, b"%d" % turn)], now_ms=NOW, codec=codec)
    log.roll()
    log.sync()


# -- examples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
def test_the_newest_value_of_every_key_stays_where_it_was(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 5, 20, codec=codec)
    before = committed(log)
    size = log.size_bytes()
    compact(log, Cleaned(), NOW)
    after = committed(log)
    assert after == newest_offsets(before)
    assert log.size_bytes() < size / 4
    assert len(log.segments) == 2, "the remains of all segments are in one"
    log.close()
    assert committed(open_log(tmp_path / "0", config=CONFIG)) == after


def newest_offsets(records: dict[int, Record]) -> dict[int, Record]:
    return {record.offset: record for record in newest(records).values()}


def test_a_tombstone_stays_for_its_time_and_then_vanishes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"1"), (b"b", b"1")], now_ms=NOW)
    offset = write(log, [(b"a", None), (b"c", b"1")], now_ms=NOW)
    log.roll()
    log.sync()
    tombstone = committed(log)[offset]
    cleaned, _ = compact(log, Cleaned(), NOW)
    assert cleaned == Cleaned(4, NOW + 1000)
    assert committed(log)[offset] == tombstone, "its timestamp is still its own"
    assert read_header(log.read(offset, 1)).attributes & DELETE_HORIZON
    assert not cleanable.look_at(log, cleaned, NOW + 999).wanted(0.5)
    cleaned, units = compact(log, cleaned, NOW + 999)
    assert not units, "there was nothing to do, so nothing is exchanged"
    assert cleanable.look_at(log, cleaned, NOW + 1000).wanted(0.5)
    cleaned, _ = compact(log, cleaned, NOW + 1000)
    assert [record.key for record in committed(log).values()] == [b"b", b"c"]
    assert cleaned.horizon_ms is None


def test_records_without_a_key_go_and_an_empty_key_is_one(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(None, b"1"), (b"", b"2"), (b"", b"3")], now_ms=NOW)
    log.roll()
    log.sync()
    compact(log, Cleaned(), NOW)
    assert [(r.offset, r.value) for r in walk(log)] == [(2, b"3")]


def test_long_keys_are_told_apart(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    keys = [b"k" * size for size in (30, 31, 32, 33, 63, 64, 200)]
    for value in (b"1", b"2"):
        for key in keys:
            write(log, [(key, value)], now_ms=NOW)
    log.roll()
    log.sync()
    compact(log, Cleaned(), NOW)
    assert [(r.key, r.value) for r in walk(log)] == [(key, b"2") for key in keys]


def test_keys_that_do_not_fit_the_map_take_several_passes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 40, 3)
    before = committed(log)
    cleaned, passes = Cleaned(), 0
    while cleaned.offset < log.segments[-1].base_offset:
        reached = cleaned.offset
        cleaned, _ = compact(log, cleaned, NOW, map_entries=16)
        assert cleaned.offset > reached
        passes += 1
    assert passes > 3
    assert committed(log) == newest_offsets(before)


def test_an_aborted_transaction_goes_and_its_marker_after_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"kept")], now_ms=NOW)
    write(log, [(b"a", b"aborted")], now_ms=NOW, producer_id=7, sequence=0, transactional=True)
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    write(log, [(b"b", b"committed")], now_ms=NOW, producer_id=7, sequence=1, transactional=True)
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW)
    log.roll()
    log.sync()
    cleaned = Cleaned()
    for now in (NOW, NOW + 1000, NOW + 2000, NOW + 3000):
        cleaned, _ = compact(log, cleaned, now)
        assert [r.value for r in committed(log).values()] == [b"kept", b"committed"]
        assert [r.value for r in walk(log)] == [b"kept", b"committed"]
    assert log.transactions.aborted == [], "a reader who hears of it would wait for a marker that is gone"
    markers = [header.base_offset for _, header in batches(log.read(0, 10_000)) if header.is_control]
    assert markers == [4], "the other one still belongs to a record"
    log.close()
    again = open_log(tmp_path / "0", config=CONFIG)
    assert again.transactions.aborted == []
    assert [r.value for r in committed(again).values()] == [b"kept", b"committed"]


def test_nothing_at_or_after_an_open_transaction_is_touched(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 2, 5)
    write(log, [(b"key-0", b"open")], now_ms=NOW, producer_id=7, sequence=0, transactional=True)
    fill(log, 2, 5)
    compact(log, Cleaned(), NOW)
    assert [(r.key, r.value) for r in walk(log)][:3] == [
        (b"key-0", b"4"),
        (b"key-1", b"4"),
        (b"key-0", b"open"),
    ]
    assert len(list(walk(log))) == 13


def test_young_records_wait_for_the_minimal_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=replace(CONFIG, min_compaction_lag_ms=5000))
    fill(log, 2, 5)
    assert cleanable.look_at(log, Cleaned(), NOW + 4999).segments == []
    assert cleanable.look_at(log, Cleaned(), NOW + 5001).segments


def test_a_growing_segment_is_rolled_in_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=replace(CONFIG, max_compaction_lag_ms=5000))
    write(log, [(b"a", b"1")], now_ms=NOW)
    log.sync()
    assert not cleanable.wants_roll(log, NOW + 5000)
    assert cleanable.wants_roll(log, NOW + 5001)
    log.roll()
    log.sync()
    assert not cleanable.wants_roll(log, NOW + DAY)
    assert cleanable.look_at(log, Cleaned(), NOW + 5001).overdue
    assert not cleanable.look_at(log, Cleaned(1), NOW + 5001).overdue


def test_the_last_batch_of_a_producer_stays_so_that_its_sequence_does(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"1"), (b"b", b"1")], now_ms=NOW, producer_id=7, sequence=0)
    write(log, [(b"a", b"2"), (b"b", b"2")], now_ms=NOW, producer_id=7, sequence=2)
    write(log, [(b"a", b"3"), (b"b", b"3")], now_ms=NOW)
    log.roll()
    log.sync()
    compact(log, Cleaned(), NOW)
    assert [r.value for r in walk(log)] == [b"3", b"3"]
    log.close()
    for name in ("checkpoint", "checkpoint.synced"):
        (tmp_path / "0" / name).unlink(missing_ok=True)
    again = open_log(tmp_path / "0", config=CONFIG)
    assert write(again, [(b"a", b"2"), (b"b", b"2")], now_ms=NOW, producer_id=7, sequence=2) == 2
    assert write(again, [(b"c", b"1")], now_ms=NOW, producer_id=7, sequence=4) == 6


def test_times_lead_to_what_is_left(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], now_ms=NOW)
    write(log, [(b"a", b"3"), (b"c", b"1")], now_ms=NOW + 1)
    log.sync()
    log.roll()  # readers have not been shown the new segment yet
    assert log.max_timestamp() == (2, NOW + 2)
    compact(log, Cleaned(), NOW)
    assert log.max_timestamp() == (4, NOW + 2)
    assert log.offset_for_time(NOW) == (1, NOW + 1)
    assert log.offset_for_time(NOW + 2) == (4, NOW + 2)
    assert log.offset_for_time(NOW + 3) is None
    assert [r.offset for r in walk(log)] == [1, 3, 4]


def test_a_checkpoint_of_a_segment_as_it_was_is_not_taken_for_what_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    for value in (b"x", b"y", b"z"):
        write(log, [(b"key-0", value)], now_ms=NOW)
    log.want_checkpoint()
    log.sync()
    stale = (tmp_path / "0" / "checkpoint").read_bytes()
    fill(log, 2, 5)
    (tmp_path / "0" / "checkpoint").write_bytes(stale)  # as if none could be saved since
    before = committed(log)
    compact(log, Cleaned(), NOW)
    release(log)
    again = open_log(tmp_path / "0", config=CONFIG)
    assert committed(again) == newest_offsets(before)
    assert again.end_offset == log.end_offset


def test_a_transaction_that_ended_after_the_compacted_part_stays_aborted_through_a_crash(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"good")], now_ms=NOW)
    write(log, [(b"a", b"aborted")], now_ms=NOW, producer_id=5, sequence=0, transactional=True)
    log.roll()
    log.append_marker(5, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    log.sync()
    assert [r.value for r in committed(log).values()] == [b"good"]
    (tmp_path / "0" / "checkpoint").unlink()  # as if none could be saved
    work = job(log, Cleaned(), NOW)
    assert work is not None
    log.rest_on(work.segments[-1].next_offset, ())
    release(log)  # killed while the cleaner works
    again = open_log(tmp_path / "0", config=CONFIG)
    assert [r.value for r in committed(again).values()] == [b"good"]
    compact(again, Cleaned(), NOW)
    assert [r.value for r in committed(again).values()] == [b"good"]


def test_a_checkpoint_that_was_under_way_does_not_bring_an_aborted_transaction_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"aborted")], now_ms=NOW, producer_id=5, sequence=0, transactional=True)
    log.append_marker(5, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    write(log, [(b"b", b"good")], now_ms=NOW, producer_id=5, sequence=1, transactional=True)
    log.append_marker(5, 0, commit=True, coordinator_epoch=0, now_ms=NOW)
    log.roll()
    log.sync()
    cleaned = Cleaned()
    now = NOW
    for _ in range(2):
        cleaned, _ = compact(log, cleaned, now)
        now += CONFIG.delete_retention_ms + 1
    write(log, [(b"c", b"plain")], now_ms=NOW)
    log.want_checkpoint()
    sync = log.begin_sync()
    _, units = compact(log, cleaned, now)
    assert [unit.dropped_markers for unit in units] == [[1]]
    sync.run()
    log.end_sync(sync)
    assert [r.value for r in committed(log).values()] == [b"good", b"plain"]
    release(log)
    again = open_log(tmp_path / "0", config=CONFIG)
    assert [r.value for r in committed(again).values()] == [b"good", b"plain"]


def test_damage_is_not_made_to_look_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 5, 20)
    with log.segments[1].path.open("r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff")
    work = job(log, Cleaned(), NOW)
    assert work is not None
    with pytest.raises(SourceDamaged, match="does not read"):
        list(Cleaning(work).run())


def test_deleting_records_while_they_are_cleaned_brings_nothing_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 3, 30)
    work = job(log, Cleaned(), NOW)
    assert work is not None
    until = work.segments[-1].next_offset
    log.rest_on(until, ())
    steps = Cleaning(work).run()
    unit = next(steps)
    assert isinstance(unit, Unit)
    log.delete_before(89)
    put(log, unit, until)
    assert [r.offset for r in walk(log)] == [89]
    log.close()
    again = open_log(tmp_path / "0", config=CONFIG)
    assert again.start_offset == 89
    assert [r.offset for r in walk(again)] == [89]


def test_a_hole_larger_than_a_batch_may_span_takes_several() -> None:
    last = 3 * MAX_SPAN
    covered = list(dense([], 5, lambda: last))
    at = 5
    for batch, end in covered:
        header = encode(batch, end)[1]
        assert header.base_offset == at
        assert 0 <= header.last_offset_delta < 2**31 - 1
        at = end + 1
    assert at == last
    fixed = Batch(empty(0).header, b"", fixed=True)
    assert [(b.header.base_offset, end) for b, end in dense([fixed], 0, lambda: 10)] == [(0, 0), (1, 9)]


def test_a_compressed_batch_stays_compressed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    write(log, [(b"a", b"1"), (b"b", b"1")], now_ms=NOW, codec=Codec.ZSTD)
    write(log, [(b"a", b"2")], now_ms=NOW)
    log.roll()
    log.sync()
    compact(log, Cleaned(), NOW)
    header = read_header(log.read(0, 1))
    assert header.attributes & 7 == Codec.ZSTD.value
    assert [r.value for r in decode_batch(log.read(0, 1), limit=MAX_DECOMPRESSED)] == [b"1"]


# -- the model -------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A log that is written, compacted and crashed at random."""

    log: PartitionLog
    chance: random.Random
    now: int = NOW
    cleaned: Cleaned = field(default_factory=Cleaned)
    sequences: dict[int, int] = field(default_factory=dict)
    began: set[int] = field(default_factory=set)

    def write(self) -> None:
        producer = self.chance.choice([-1, -1, 1, 2, 3])
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(self.chance.randint(1, 4)):
            key = b"k" * self.chance.choice([1, 40]) + b"%d" % self.chance.randrange(6)
            pairs.append((key, self.chance.choice([None, b"%d" % self.chance.randrange(1000)])))
        sequence = self.sequences.get(producer, 0)
        write(
            self.log,
            pairs,
            now_ms=self.now,
            codec=self.chance.choice(list(Codec)),
            producer_id=producer,
            sequence=sequence if producer >= 0 else -1,
            transactional=producer >= 2,
        )
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)
        if producer >= 2:
            self.began.add(producer)

    def end(self) -> None:
        if self.began:
            producer = self.chance.choice(sorted(self.began))
            self.began.discard(producer)
            self.log.append_marker(
                producer, 0, commit=self.chance.random() < 0.5, coordinator_epoch=0, now_ms=self.now
            )

    def step(self) -> None:
        self.chance.choice([self.write, self.write, self.write, self.end, self.log.roll])()
        self.now += self.chance.choice([0, 1, 400])


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_a_compacted_log_tells_what_the_whole_one_told(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "0"
        model = Model(open_log(directory, config=CONFIG), chance)
        everything: dict[int, Record] = {}
        for _ in range(chance.randint(1, 4)):
            for _ in range(chance.randint(1, 25)):
                model.step()
            model.log.sync()
            before = committed(model.log)
            everything.update(before)
            assert alive(before) == alive(everything)
            model.cleaned, _ = compact(
                model.log, model.cleaned, model.now, map_entries=chance.choice([3, 1_000_000])
            )
            _check(model.log, everything)
            if chance.random() < 0.5:
                _reopen(model, directory)
                _check(model.log, everything)
        _end_all(model)
        everything.update(committed(model.log))
        _settle(model)
        _check(model.log, everything)
        release(model.log)


def _check(log: PartitionLog, everything: dict[int, Record]) -> None:
    after = committed(log)
    assert alive(after) == alive(everything)
    assert all(everything[offset] == record for offset, record in after.items()), "nothing changes in place"
    for _ in walk(log, max_bytes=1):
        pass


def _reopen(model: Model, directory: Path) -> None:
    model.log.close()
    if model.chance.random() < 0.3:
        for name in ("checkpoint", "checkpoint.synced"):
            (directory / name).unlink(missing_ok=True)
    aborted = {ended.last_offset for ended in model.log.transactions.aborted}
    model.log = open_log(directory, config=CONFIG)
    known = {ended.last_offset for ended in model.log.transactions.aborted}
    assert known <= aborted, "no transaction is taken for aborted that readers were not told of"
    model.cleaned = cleanable.load(directory)


def _end_all(model: Model) -> None:
    while model.began:
        model.end()
    model.log.roll()
    model.log.sync()


def _settle(model: Model) -> None:
    """Compact until nothing is left to do."""
    for _ in range(4):
        model.now += 2000
        model.cleaned, _ = compact(model.log, model.cleaned, model.now)
    records = list(walk(model.log))
    assert all(record.value is not None for record in records), "tombstones vanish"
    assert len({record.key for record in records}) == len(records), "each key is there once"


# -- crashes ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_a_crash_at_any_step_loses_and_resurrects_nothing(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "before"
        root.mkdir()
        disk = CountingDisk(root)
        model = Model(open_log(root / "orders" / "0", config=CONFIG, disk=disk), chance)
        for _ in range(30):
            model.step()
        _end_all(model)
        disk.sync_all()
        before = committed(model.log)
        if chance.random() < 0.5:
            model.cleaned, _ = compact(model.log, model.cleaned, model.now)
            model.now += 2000
        disk.left = chance.randint(0, 60)
        with suppress(PowerLoss):
            compact(model.log, model.cleaned, model.now)
        disk.left = None
        after_disk = disk.crash(Path(name) / "after", chance if chance.random() < 0.7 else None)
        disk.kill()
        log = open_log(Path(name) / "after" / "orders" / "0", config=CONFIG, disk=after_disk)
        _check(log, before)
        assert log.end_offset == model.log.end_offset
        assert not list((Path(name) / "after" / "orders" / "0").glob(f"*{swap.SUFFIX}"))
        for _ in range(4):
            model.now += 2000
            model.cleaned, _ = compact(log, cleanable.load(log.directory), model.now)
        _check(log, before)
        assert {r.key for r in walk(log)} == set(alive(before))
        after_disk.kill()


@pytest.mark.parametrize("lucky", [False, True], ids=["only what was synced", "all that was written"])
def test_a_crash_after_each_step_of_an_exchange(tmp_path: Path, lucky: bool) -> None:
    steps = 0
    while True:
        root = tmp_path / str(steps)
        root.mkdir()
        disk = CountingDisk(root)
        log = open_log(root / "orders" / "0", config=CONFIG, disk=disk)
        fill(log, 4, 8)
        write(log, [(b"key-1", None)], now_ms=NOW)
        fill(log, 2, 1)
        disk.sync_all()
        before = committed(log)
        disk.left = steps
        try:
            compact(log, Cleaned(), NOW)
        except PowerLoss:
            disk.left = None
        else:
            break
        if lucky:
            disk.sync_all()
        after = disk.crash(tmp_path / f"{steps}-after")
        disk.kill()
        again = open_log(tmp_path / f"{steps}-after" / "orders" / "0", config=CONFIG, disk=after)
        _check(again, before)
        compact(again, cleanable.load(again.directory), NOW)
        assert committed(again) == newest_offsets(before)
        after.kill()
        steps += 1
    disk.kill()
    assert steps > 20


class PowerLoss(Exception):
    """The machine is gone."""


class CountingDisk(FaultyDisk):
    """A disk whose power goes after a number of operations."""

    left: int | None = None

    def _spend(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise PowerLoss
            self.left -= 1

    def rename(self, source: Path, target: Path) -> None:
        self._spend()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._spend()
        super().remove(path)

    def sync(self, fd: int) -> None:
        self._spend()
        super().sync(fd)

    def sync_directory(self, path: Path) -> None:
        self._spend()
        super().sync_directory(path)


def test_a_swap_that_names_what_is_not_there_is_not_believed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 5, 20)
    before = committed(log)
    bases = [segment.base_offset for segment in log.segments[:-1]]
    swap.Swap("feed", bases, [swap.Fresh(0, 100, 61)]).save(log.disk, log.directory)
    log.close()
    assert committed(open_log(tmp_path / "0", config=CONFIG)) == before


def test_the_end_of_a_job_is_told_to_whoever_waits(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0", config=CONFIG)
    fill(log, 5, 20)
    work = job(log, Cleaned(), NOW)
    assert work is not None
    *_, last = Cleaning(replace(work, aborted=[Aborted(9, 0, 1)])).run()
    assert last == Done(100, None, 100, 5)
