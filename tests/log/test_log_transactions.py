"""Transactions in one partition: the last stable offset, and what was aborted, across restarts of every kind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.core.errors import ApiError, ErrorCode
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.open_files import OpenFiles
from headwater.log.partition import PartitionLog
from headwater.log.recovery import open_partition
from headwater.log.transactions import Marker, Transactions, decode_marker, encode_marker
from headwater.record.batch import TRANSACTIONAL, batches, read_header
from headwater.record.records import Record, encode_batch

NOW = 1_700_000_000_000


def open_log(directory: Path) -> PartitionLog:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100)
    return open_partition(OpenFiles(Disk()), directory, "t", 0, config, synced=True, now_ms=NOW)


def send(
    log: PartitionLog, producer_id: int, epoch: int, sequence: int, *, transactional: bool = True
) -> int:
    batch = encode_batch(
        [Record(0, NOW, b"k", b"v" * 50)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    return log.append(memoryview(batch), read_header(batch), NOW)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_reads_back(commit: bool) -> None:
    batch = encode_marker(7, 3, Marker(commit, 5), NOW)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert decode_marker(batch) == Marker(commit, 5)


def test_an_open_transaction_holds_the_stable_offset_until_its_marker_is_durable(tmp_path: Path) -> None:
    log = open_log(tmp_path / "p")
    send(log, -1, -1, -1, transactional=False)
    first = send(log, 1, 0, 0)
    send(log, -1, -1, -1, transactional=False)
    log.sync()
    assert (log.last_stable_offset, log.high_watermark) == (first, 3)
    log.append_marker(1, 0, commit=True, coordinator_epoch=0, now_ms=NOW)
    assert log.last_stable_offset == first
    log.sync()
    assert log.last_stable_offset == log.high_watermark == 4


def test_the_marker_of_a_fenced_epoch_is_refused_and_a_newer_one_fences(tmp_path: Path) -> None:
    log = open_log(tmp_path / "p")
    send(log, 1, 3, 0)
    with pytest.raises(ApiError) as caught:
        log.append_marker(1, 2, commit=False, coordinator_epoch=0, now_ms=NOW)
    assert caught.value.code == ErrorCode.invalid_producer_epoch
    log.append_marker(1, 4, commit=False, coordinator_epoch=0, now_ms=NOW)
    with pytest.raises(ApiError) as caught:
        send(log, 1, 3, 1)
    assert caught.value.code == ErrorCode.invalid_producer_epoch
    assert send(log, 1, 4, 0) == 2


def test_within_finds_what_touches_a_range() -> None:
    transactions = Transactions()
    for producer_id, first, last in ((1, 0, 10), (2, 5, 12), (3, 20, 30)):
        transactions.end(producer_id, first, last, commit=False)
    transactions.end(4, 0, 40, commit=True)
    assert [a.producer_id for a in transactions.within(0, 1)] == [1]
    assert [a.producer_id for a in transactions.within(11, 20)] == [2]
    assert [a.producer_id for a in transactions.within(11, 21)] == [2, 3]
    assert transactions.within(31, 100) == []
    transactions.forget(12)
    assert [a.producer_id for a in transactions.aborted] == [2, 3]


class TransactionalLog(RuleBasedStateMachine):
    """A log against a list of what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.log = open_log(Path(self.scratch.name) / "p")
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.committed: set[int] = set()
        self.aborted: set[int] = set()

    @rule(producer=st.integers(1, 3))
    def produce(self, producer: int) -> None:
        sequence = self.sequences.get(producer, 0)
        offset = send(self.log, producer, 0, sequence)
        self.sequences[producer] = sequence + 1
        self.open.setdefault(producer, []).append(offset)

    @rule()
    def produce_plainly(self) -> None:
        self.committed.add(send(self.log, -1, -1, -1, transactional=False))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open)))
        self.log.append_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=NOW)
        (self.committed if commit else self.aborted).update(self.open.pop(producer))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.log.sync()
        if clean:
            self.log.close()
        self.log = open_log(Path(self.scratch.name) / "p")

    @rule()
    def sync(self) -> None:
        self.log.sync()

    @rule()
    def read_all(self) -> None:
        self.log.sync()
        first_open = min((offsets[0] for offsets in self.open.values()), default=self.log.end_offset)
        assert self.log.last_stable_offset == first_open
        assert self.visible() == {offset for offset in self.committed if offset < first_open}

    def visible(self) -> set[int]:
        """Read as a consumer does: drop the producers that are named as aborted until their marker."""
        found: set[int] = set()
        offset = 0
        while offset < self.log.last_stable_offset:
            data, ended = self.log.read_committed(offset, 300)
            pending = sorted(ended, key=lambda each: each.first_offset)
            dropped: set[int] = set()
            for _, header in batches(data):
                while pending and pending[0].first_offset <= header.last_offset:
                    dropped.add(pending.pop(0).producer_id)
                if header.is_control:
                    dropped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in dropped):
                    found.add(header.base_offset)
                offset = header.last_offset + 1
        return found

    @invariant()
    def stable_is_never_past_the_high_watermark(self) -> None:
        assert self.log.last_stable_offset <= self.log.high_watermark

    def teardown(self) -> None:
        self.log.close()
        self.scratch.cleanup()


TestTransactionalLog = TransactionalLog.TestCase
TestTransactionalLog.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
