"""A partition against a plain model: appends, syncs, reads, deletions, restarts, kills and power losses."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_helpers import NOW, TOPIC, TOPIC_ID, append, batch_at, contents, kill

from effort import examples
from headwater.core.errors import ApiError, ErrorCode
from headwater.log import growing as growing_module
from headwater.log.archive import copy, sweep
from headwater.log.config import LogConfig
from headwater.log.directory import LogDirectory
from headwater.log.errors import OffsetOutOfRange
from headwater.log.partition import PartitionLog
from headwater.log.sync import SyncWork
from headwater.record.codecs import Codec
from headwater.record.records import Record
from headwater.testing.disk import FaultyDisk

CONFIG = LogConfig(segment_bytes=12_000, index_interval_bytes=500, timestamp_after_max_ms=2**62)
CHECKPOINT_BYTES = 5_000


class Batch:
    """A batch the model knows of."""

    def __init__(self, base: int, records: list[Record], producer: int | None, sequence: int) -> None:
        self.base, self.records, self.producer, self.sequence = base, records, producer, sequence

    @property
    def end(self) -> int:
        return self.base + len(self.records)


class LogMachine(RuleBasedStateMachine):
    """One partition in a data directory on a faulty disk, beside what it ought to hold."""

    synced = True

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.lives = 0
        self.default_checkpoint = growing_module.CHECKPOINT_BYTES
        growing_module.CHECKPOINT_BYTES = CHECKPOINT_BYTES
        root = self.scratch / "0"
        root.mkdir()
        self.disk = FaultyDisk(root)
        self.batches: list[Batch] = []
        self.records: dict[int, Record] = {}
        self.end = self.visible = self.durable = self.start = 0
        self.flight: tuple[SyncWork, int] | None = None
        self.seed = 0
        self.forgotten = 0

    def teardown(self) -> None:
        growing_module.CHECKPOINT_BYTES = self.default_checkpoint
        self.disk.kill()
        kill(self.logs)
        shutil.rmtree(self.scratch)

    @property
    def log(self) -> PartitionLog:
        log = self.logs.get(TOPIC, 0)
        assert log is not None
        return log

    @initialize()
    def open(self) -> None:
        self.logs = LogDirectory(
            self.disk.root,
            synced=self.synced,
            disk=self.disk,
            open_files=2,
            archive=self.disk.root / "archive",
        )
        self.logs.open_topic(TOPIC, TOPIC_ID, range(1), CONFIG, NOW)
        self.logs.settle({TOPIC_ID})
        self.flight = None

    # -- writing ---------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 5),
        size=st.sampled_from([10, 10, 200, 900]),
        late=st.integers(-50, 50),
        producer=st.none() | st.integers(0, 2),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    )
    def append(self, count: int, size: int, late: int, producer: int | None, codec: Codec) -> None:
        self.seed += 1
        chance = random.Random(self.seed)
        records = [
            Record(
                i,
                NOW + 100 * self.seed + late + chance.randint(-9, 9),
                b"%d" % self.seed,
                chance.randbytes(size),
            )
            for i in range(count)
        ]
        sequence = self._next_sequence(producer)
        batch = Batch(self.end, records, producer, sequence)
        assert self._send(batch, codec) == self.end
        self.batches.append(batch)
        for record in records:
            self.records[self.end + record.offset] = record._replace(offset=self.end + record.offset)
        self.end = batch.end
        if not self.synced:
            self.visible = self.end

    def _next_sequence(self, producer: int | None) -> int:
        return (
            sum(len(b.records) for b in self.batches if b.producer == producer)
            if producer is not None
            else -1
        )

    def _send(self, batch: Batch, codec: Codec = Codec.NONE) -> int:
        if batch.producer is None:
            return append(self.log, batch.records, codec=codec)
        return append(
            self.log,
            batch.records,
            codec=codec,
            producer_id=batch.producer + 10 * self.forgotten,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )

    @rule()
    def send_again(self) -> None:
        for producer in range(3):
            for batch in [b for b in self.batches if b.producer == producer][-5:]:
                assert self._send(batch) == batch.base

    @rule(producer=st.integers(0, 2))
    def skip_a_sequence(self, producer: int) -> None:
        mine = [b for b in self.batches if b.producer == producer]
        if mine:
            ahead = Batch(-1, mine[-1].records, producer, self._next_sequence(producer) + 1)
            with pytest.raises(ApiError) as caught:
                self._send(ahead)
            assert caught.value.code is ErrorCode.out_of_order_sequence_number

    @rule()
    def sync(self) -> None:
        self.log.sync()
        self.flight = None
        self._synced(self.end)

    @precondition(lambda self: self.flight is None)
    @rule(run=st.booleans())
    def begin_sync(self, run: bool) -> None:
        if self.log.needs_sync:
            self.flight = (self.log.begin_sync(), self.end)
            if run:
                self.flight[0].run()

    @precondition(lambda self: self.flight is not None)
    @rule()
    def end_sync(self) -> None:
        assert self.flight is not None
        work, end = self.flight
        work.run()
        self.log.end_sync(work)
        self.flight = None
        self._synced(end)

    def _synced(self, end: int) -> None:
        self.durable = max(self.durable, end)
        self.visible = max(self.visible, end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(fraction=st.floats(0, 1))
    def delete_before(self, fraction: float) -> None:
        offset = self.start + int((self.visible - self.start) * fraction * fraction)
        assert self.log.delete_before(offset) == offset
        self.start = offset

    @rule(count=st.integers(1, 3), names=st.booleans())
    def archive(self, count: int, names: bool) -> None:
        log = self.log
        assert log.archive is not None
        for segment in [each for each in log.segments if each.archive is None][:count]:
            if not log.may_move(segment):
                break
            copy(self.disk, segment.path, log.archive / segment.path.name, lambda _: None)
            if names:  # or else it stays a copy that nobody asks for
                log.moved(segment)
                assert not segment.path.exists()

    @rule()
    def sweep_archive(self) -> None:
        log = self.log
        assert log.archive is not None
        kept = {segment.path.name for segment in log.archived}
        sweep(self.disk, log.archive, kept)
        if log.archive.exists():
            assert {path.name for path in log.archive.iterdir()} == kept

    @rule()
    def delete_too_much(self) -> None:
        with pytest.raises(ApiError):
            self.log.delete_before(self.visible + 1)

    @rule()
    def run_out_of_space(self) -> None:
        self.disk.full = True
        with pytest.raises(Exception, match="no space left"):
            append(self.log, [Record(0, NOW, None, b"x")])
        self.disk.full = False

    # -- reading ---------------------------------------------------------------------------------

    @rule(fraction=st.floats(0, 1), max_bytes=st.sampled_from([1, 100, 3000, 50_000]))
    def read(self, fraction: float, max_bytes: int) -> None:
        offset = self.start + int((self.visible - self.start) * fraction)
        read = batch_at(self.log, offset, max_bytes)
        assert all(record == self.records[record.offset] for record in read)
        assert all(record.offset < self.visible for record in read)

    @rule(past=st.booleans())
    def read_outside(self, past: bool) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.log.read(self.visible + 1 if past else self.start - 1, 100)

    @rule(fraction=st.floats(-0.1, 1.1))
    def look_up_times(self, fraction: float) -> None:
        seen = [self.records[offset] for offset in range(self.start, self.visible)]
        timestamp = NOW + int(100 * self.seed * fraction)
        at = next(((r.offset, r.timestamp) for r in seen if r.timestamp >= timestamp), None)
        assert self.log.offset_for_time(timestamp) == at
        largest = max(seen, key=lambda r: (r.timestamp, -r.offset), default=None)
        assert self.log.max_timestamp() == (largest and (largest.offset, largest.timestamp))

    # -- ends ------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.logs.close()
        assert self.disk.open_files == 0
        self._synced(self.end)
        read_before = self.disk.bytes_read
        self.open()
        assert self.disk.bytes_read == read_before, "a clean start reads no batches"
        self._check_all()

    @rule()
    def be_killed(self) -> None:
        self.disk.kill()
        kill(self.logs)
        self.open()
        if self.synced:
            self.durable = self.end
        self.visible = self.end  # what the operating system has, is there
        self._check_all()

    @rule(seed=st.none() | st.integers(0, 2**32))
    def lose_power(self, seed: int | None) -> None:
        self.disk.kill()
        kill(self.logs)
        self.lives += 1
        old = self.disk
        self.disk = old.crash(self.scratch / str(self.lives), None if seed is None else random.Random(seed))
        shutil.rmtree(old.root)
        self.open()
        end = self.log.end_offset
        assert self.durable <= end
        if self.synced:
            assert self.visible <= end
        if end > self.end:
            assert not self.synced
            assert end == self.start
        self._forget_from(end)
        if not self.synced:
            # What the producers sent may be lost or not, deleted or not: others take their place.
            self.forgotten += 1
            for batch in self.batches:
                batch.producer = None
        self.visible = end
        self.durable = end if self.synced else self.durable
        self._check_all()

    def _forget_from(self, end: int) -> None:
        self.batches = [b for b in self.batches if b.end <= end]
        self.records = {offset: r for offset, r in self.records.items() if offset < end}
        self.end = end

    def _check_all(self) -> None:
        assert self.log.error is None
        assert self.log.start_offset == self.start
        assert self.log.end_offset == self.end
        assert contents(self.log) == {o: self.records[o] for o in range(self.start, self.end)}

    @invariant()
    def bounds_agree(self) -> None:
        assert (self.log.start_offset, self.log.high_watermark, self.log.end_offset) == (
            self.start,
            self.visible,
            self.end,
        )


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_segment_that_recovery_took_away_does_not_come_back_with_the_next_power_loss(
    is_killed: bool,
) -> None:
    machine = LogMachine()
    try:
        machine.open()
        _append(machine)
        machine.restart()
        _append(machine)
        machine.roll()
        machine.delete_before(1.0)
        machine.lose_power(None)  # which takes the second record, and leaves the segment behind it
        if is_killed:
            machine.be_killed()
        _append(machine)
        _append(machine)
        machine.restart()
        machine.lose_power(None)
    finally:
        machine.teardown()


def test_what_a_deleted_segment_told_of_its_producers_outlives_it() -> None:
    machine = LogMachine()
    try:
        machine.open()
        _append(machine, producer=0)
        machine.be_killed()
        machine.delete_before(1.0)
        machine.roll()
        machine.restart()  # which removes the segment
        _append(machine)
        machine.restart()
        machine.lose_power(None)
        machine.send_again()
    finally:
        machine.teardown()


def _append(machine: LogMachine, producer: int | None = None) -> None:
    machine.append(count=1, size=10, late=0, producer=producer, codec=Codec.NONE)


class OsMachine(LogMachine):
    """The same with durability left to the operating system."""

    synced = False


PROFILE = settings(
    max_examples=examples(150),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSynced = LogMachine.TestCase
TestSynced.settings = PROFILE
TestLeftToTheSystem = OsMachine.TestCase
TestLeftToTheSystem.settings = settings(PROFILE, max_examples=examples(80))
