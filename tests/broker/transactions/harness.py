"""A transaction coordinator with a log that may lose what was not synced."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from headwater.broker.state import StateRecord
from headwater.broker.transactions import (
    TRANSACTION_SETTINGS,
    Ending,
    EndRequest,
    InitRequest,
    Outcome,
    ProducerIdentity,
    Reply,
    TopicPartition,
    Transaction,
    TransactionCoordinator,
    TransactionState,
)
from headwater.broker.transactions.outcome import NOBODY
from headwater.broker.transactions.records import encode

TIMEOUT_MS = 60_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Harness:
    """The coordinator as the service runs it, one call at a time."""

    def __init__(self, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = TRANSACTION_SETTINGS.resolve(given)
        self.log: list[StateRecord] = []
        self.now_ms = 1_000_000
        self.ids = count(100)
        self.coordinator = TransactionCoordinator(self.settings)

    def apply(self, records: Sequence[StateRecord]) -> None:
        for record in records:
            self.log.append(record)
            self.coordinator.replay(record)

    def restart(self, kept: int | None = None) -> None:
        """Start again from the first `kept` records, or from all of them."""
        del self.log[len(self.log) if kept is None else kept :]
        self.coordinator = TransactionCoordinator(self.settings)
        for record in self.log:
            self.coordinator.replay(record)

    def new_id(self) -> int:
        return next(self.ids)

    def init(
        self, name: str = "x", expected: ProducerIdentity = NOBODY, timeout_ms: int = TIMEOUT_MS
    ) -> Outcome[Reply]:
        out = self.coordinator.init(self.now_ms, InitRequest(name, timeout_ms, expected), self.new_id)
        self.apply(out.records)
        return out

    def begin(self, name: str = "x") -> ProducerIdentity:
        """Return a producer of a transactional id, whatever was there before."""
        out = self.init(name)
        while out.reply.error:
            self.finish(out.endings)
            out = self.init(name)
        return out.reply.producer

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, version: int = 2) -> None:
        self.apply(
            self.coordinator.add_partitions(
                self.now_ms, "x", producer, partitions or (P0,), client_version=version
            )
        )

    def end(self, producer: ProducerIdentity, *, commit: bool, bumps: bool = True) -> Outcome[Reply]:
        request = EndRequest("x", producer, commit, bumps_epoch=bumps)
        out = self.coordinator.end(self.now_ms, request, self.new_id)
        self.apply(out.records)
        return out

    def finish(self, endings: Sequence[Ending]) -> None:
        for ending in endings:
            self.apply(self.coordinator.complete(self.now_ms, ending))

    def end_whole(self, producer: ProducerIdentity, *, commit: bool, bumps: bool = True) -> ProducerIdentity:
        out = self.end(producer, commit=commit, bumps=bumps)
        self.finish(out.endings)
        return out.reply.producer

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.transactions["x"]

    def state(self) -> TransactionState:
        return self.transaction.state

    def put(self, transaction: Transaction) -> None:
        self.apply([encode(transaction)])
