"""Two producers with one transactional id, crashes that lose what was not synced, and time-outs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.transactions import Ending, ProducerIdentity, TopicPartition, TransactionState
from headwater.core.errors import ApiError, ErrorCode

from .harness import P0, P1, TIMEOUT_MS, Harness

WHICH = st.sampled_from([0, 0, 0, 1])
"""Mostly the same producer, so that it gets as far as ending something."""
MOSTLY = st.sampled_from([True, True, True, False])
MOSTLY_NOT = st.sampled_from([False, False, False, True])
REFUSALS = {
    ErrorCode.producer_fenced,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.invalid_txn_state,
    ErrorCode.concurrent_transactions,
}


@dataclass(frozen=True)
class Entry:
    """A batch or a marker in a partition; `transaction` is the number the test gave it."""

    producer: ProducerIdentity
    transaction: int = -1
    commit: bool | None = None


@dataclass
class Partition:
    """A log of which a crash keeps what was synced and perhaps more."""

    entries: list[Entry] = field(default_factory=list)
    synced: int = 0

    def append(self, entry: Entry) -> None:
        same = [
            e.producer.epoch for e in self.entries if e.producer.producer_id == entry.producer.producer_id
        ]
        assert entry.producer.epoch >= max(same, default=-1), "a fenced epoch got as far as the partition"
        self.entries.append(entry)

    def outcomes(self) -> list[tuple[int, bool | None]]:
        """Return each batch's transaction and whether it was committed; None while it is open."""
        found = []
        for i, entry in enumerate(self.entries):
            if entry.commit is None:
                ends = (
                    later.commit
                    for later in self.entries[i:]
                    if later.commit is not None and later.producer.producer_id == entry.producer.producer_id
                )
                found.append((entry.transaction, next(ends, None)))
        return found

    def open(self) -> set[ProducerIdentity]:
        last = {entry.producer.producer_id: entry for entry in self.entries}
        return {entry.producer for entry in last.values() if entry.commit is None}


@dataclass
class Client:
    identity: ProducerIdentity | None = None
    superseded: bool = False
    transaction: int = -1
    written: int = 0


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = Harness()
        self.synced_log = 0
        self.partitions = {P0: Partition(), P1: Partition()}
        self.clients = [Client(), Client()]
        self.numbers = 0
        self.endings: list[Ending] = []
        self.committed: dict[int, int] = {}
        """The transactions whose commit was acknowledged, with how many batches each had."""
        self.aborted: set[int] = set()
        self.asked: set[int] = set()
        """The transactions that somebody tried to commit."""

    def refused(self, error: ApiError) -> None:
        assert error.code in REFUSALS

    def sync(self) -> None:
        self.synced_log = len(self.h.log)
        for partition in self.partitions.values():
            partition.synced = len(partition.entries)

    def finish(self) -> None:
        """Write the markers of what is decided, then complete it: the service's two steps."""
        self.sync()
        endings, self.endings = self.endings, []
        for ending in endings:
            for place in ending.partitions:
                self.partitions[place].append(Entry(ending.producer, commit=ending.commit))
        self.sync()
        self.h.finish(endings)

    @rule(which=WHICH, again=MOSTLY_NOT)
    def init(self, which: int, again: bool) -> None:
        client = self.clients[which]
        if client.identity is not None and not client.superseded and not again:
            return
        self.finish()
        out = self.h.init()
        self.endings += out.endings
        if out.reply.error:
            self.finish()
            out = self.h.init()
        self.sync()
        client.identity, client.superseded, client.written = out.reply.producer, False, 0
        client.transaction = -1
        self.clients[1 - which].superseded = True

    @precondition(lambda self: any(client.identity for client in self.clients))
    @rule(which=WHICH, place=st.sampled_from([P0, P1]), synced=st.booleans())
    def produce(self, which: int, place: TopicPartition, synced: bool) -> None:
        client = self.clients[which]
        if client.identity is None:
            return
        try:
            self.h.add(client.identity, place)
        except ApiError as error:
            self.refused(error)
            return
        assert not client.superseded, "a fenced producer wrote"
        if client.transaction < 0:
            client.transaction = self.numbers = self.numbers + 1
        self.partitions[place].append(Entry(client.identity, client.transaction))
        client.written += 1
        if synced:
            self.sync()

    @precondition(lambda self: any(client.transaction >= 0 for client in self.clients))
    @rule(which=WHICH, commit=MOSTLY, answered=MOSTLY, finished=MOSTLY)
    def end(self, which: int, commit: bool, answered: bool, finished: bool) -> None:
        client = self.clients[which]
        if client.identity is None:
            return
        try:
            out = self.h.end(client.identity, commit=commit)
        except ApiError as error:
            self.refused(error)
            return
        assert not client.superseded, "a fenced producer ended a transaction"
        if commit:
            self.asked.add(client.transaction)
        self.endings += out.endings
        if finished:
            self.finish()
        if not answered:
            client.identity, client.transaction = None, -1  # the answer was lost with the client
            return
        self.sync()
        if client.transaction >= 0:
            if commit:
                self.committed[client.transaction] = client.written
            else:
                self.aborted.add(client.transaction)
        client.identity, client.transaction, client.written = out.reply.producer, -1, 0

    @precondition(lambda self: bool(self.endings))
    @rule()
    def write_markers(self) -> None:
        self.finish()

    @precondition(lambda self: bool(self.h.coordinator.ongoing))
    @rule(ms=st.sampled_from([TIMEOUT_MS + 1, TIMEOUT_MS // 2]), finished=MOSTLY)
    def wait(self, ms: int, finished: bool = False) -> None:
        self.h.now_ms += ms
        out = self.h.coordinator.timed_out(self.h.now_ms)
        self.h.apply(out.records)
        self.endings += out.endings
        if finished:
            self.finish()

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.h.restart(data.draw(st.integers(self.synced_log, len(self.h.log))))
        for partition in self.partitions.values():
            kept = data.draw(st.integers(partition.synced, len(partition.entries)))
            del partition.entries[kept:]
        for place, partition in self.partitions.items():
            for producer in partition.open():
                records = self.h.coordinator.adopt(self.h.now_ms, producer, place)
                assert records is not None, "an open transaction belongs to nobody"
                self.h.apply(records)
        self.endings = self.h.coordinator.decided()
        self.sync()
        survived = [t for p in self.partitions.values() for t, _ in p.outcomes()]
        for client in self.clients:
            # What was not acknowledged may be gone; the client knows, and may send it again.
            client.written = survived.count(client.transaction)

    @invariant()
    def never_both_committed_and_aborted(self) -> None:
        outcomes: dict[int, set[bool]] = {}
        for partition in self.partitions.values():
            for transaction, commit in partition.outcomes():
                if commit is not None:
                    outcomes.setdefault(transaction, set()).add(commit)
        for transaction, found in outcomes.items():
            assert len(found) == 1, f"transaction {transaction} was committed and aborted"
            assert True not in found or transaction in self.asked, "nobody asked for this commit"
            assert not (transaction in self.aborted and True in found)
            assert not (transaction in self.committed and False in found)

    def teardown(self) -> None:
        """Every transaction ends, and what was committed is whole."""
        self.finish()
        self.wait(TIMEOUT_MS + 1, finished=True)
        self.never_both_committed_and_aborted()
        assert not self.h.coordinator.ongoing
        states = {t.state for t in self.h.coordinator.transactions.values()}
        assert states <= {
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
        for partition in self.partitions.values():
            assert not partition.open()
        found = [t for p in self.partitions.values() for t, commit in p.outcomes() if commit]
        for transaction, written in self.committed.items():
            assert found.count(transaction) == written


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)
