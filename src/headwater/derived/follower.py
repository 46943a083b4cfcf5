"""A store kept in step with its table's topic: read, gather, apply rows and position at once.

After what may be over in a moment, a broker or a store that is away, it tries again with pauses that grow; what needs
somebody, as a store that has to be built anew, is said and looked at again after the longest pause.

A record that cannot be read, or that says nothing about a row, becomes a dead letter of the application, is named and
counted; the row stays as it was. Its letter is written before the store's position goes past it: the store is
elsewhere, so that the two cannot be one transaction. After a crash in between the letter is written again, with the
same key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.client import AuthenticationFailed, BrokerError, ClientError, Cluster, UnknownTopic
from headwater.client.dead_letters import letter, send_letters
from headwater.core.boundaries import boundary
from headwater.core.urls import KafkaUrl
from headwater.derived.change import Position
from headwater.derived.decode import Decoder
from headwater.derived.errors import DerivedError, Switched, TryAgain, Unreadable
from headwater.derived.reading import TopicReader, Unopened
from headwater.derived.store import Store
from headwater.record.records import Record
from headwater.workers import worker
from headwater.workers.worker import Again, Pauses, Worker

__all__ = ["Follower", "Progress", "Stream"]

_WAIT_MS = 250
_GATHER_BYTES = 32 * 1024 * 1024
_LOOK_SECONDS = 5.0
_TICK_RECORDS = 1000
_TOLD = 20
"""Of so many unreadable records that are set aside together each is named, and the rest counted."""


@dataclass(frozen=True)
class Stream:
    """A topic that holds the rows of a table."""

    topic: str
    decoder: Decoder


@dataclass
class Progress(worker.Progress):
    """How far a store is; it is `following` once it has reached its topic's end."""

    changes: int = 0
    unreadable: int = 0
    done: int = 0
    """Of so many offsets that there were when it began,"""
    total: int = 0
    behind: int = 0
    """How many committed offsets the store does not hold yet."""
    last_record_ms: int = 0
    applied_at: float = 0.0

    def lag_seconds(self) -> float:
        """Return how long the newest record that was applied last took from its own time into the store."""
        return max(0.0, self.applied_at - self.last_record_ms / 1000) if self.last_record_ms else 0.0


class Follower(Worker[Progress]):
    """One store that follows one topic; one thread runs it."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        store: Store,
        broker: KafkaUrl,
        *,
        dead_letters: str,
        say: Callable[[str], None] = lambda line: None,
        pauses: Pauses | None = None,
        deadline_seconds: float = 10.0,
    ) -> None:
        super().__init__(Progress(), pauses=pauses, say=say)
        self.name = name
        self._stream, self._store, self._broker = stream, store, broker
        self._dead_letters = dead_letters
        self._deadline_seconds = deadline_seconds

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def run(
        self,
        *,
        until_end: bool = False,
        ready: Callable[[], None] = lambda: None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Follow until stopped, or with `until_end` until the topic has nothing more.

        With `until_end`, raises the `DerivedError` that needs somebody. `ready` is called once the store is as far
        as the topic was when this began, `tick` whenever something was read.
        """

        def attempt() -> None:
            try:
                self._attempt(until_end=until_end, ready=ready, tick=tick)
            except Switched:
                pass  # somebody else has moved the store on: go on from there
            except UnknownTopic as error:
                problem = f"the topic {self._stream.topic} of {self.name} is not there yet"
                raise Again(problem) from error
            except TryAgain as error:
                raise Again(str(error)) from error
            except (DerivedError, AuthenticationFailed) as error:
                if until_end:
                    raise
                raise Again(str(error), needs_somebody=True) from error
            except ClientError as error:
                raise Again(str(error)) from error

        self._repeat(attempt)

    def _attempt(self, *, until_end: bool, ready: Callable[[], None], tick: Callable[[], None]) -> None:
        base = self._store.position()
        if base is not None:
            base.check(self.name, self._stream.topic, self._store.shape)
        cluster = Cluster(self._broker, f"headwater-{self.name}", deadline_seconds=self._deadline_seconds)
        try:
            reader = TopicReader(cluster, self._stream.topic, base, store=self.name)
            ends = reader.ends()
            began = dict(reader.offsets)
            self.progress.state, self.progress.problem = "catching up", ""
            self.progress.total = sum(max(0, end - began[partition]) for partition, end in ends.items())
            self._follow(cluster, reader, base, ends, began, until_end=until_end, ready=ready, tick=tick)
        finally:
            cluster.close()

    def _follow(
        self,
        cluster: Cluster,
        reader: TopicReader,
        base: Position | None,
        ends: dict[int, int],
        began: dict[int, int],
        *,
        until_end: bool,
        ready: Callable[[], None],
        tick: Callable[[], None],
    ) -> None:
        gathered = _Gathered()
        looked = time.monotonic()
        told = False
        while not self._stopping:
            at_end = all(reader.offsets[partition] >= end for partition, end in ends.items())
            if gathered.is_due(self._store, at_end=at_end and until_end) or (
                base is None and at_end  # an empty topic too makes a store that is there
            ):
                base = self._apply(cluster, gathered, base, reader)
                gathered = _Gathered()
            self._count(reader, ends, began, gathered, base)
            tick()
            if at_end and not gathered.records:
                if not told:
                    told = True
                    self.progress.state = "following"
                    ready()
                if until_end:
                    self._drained = True
                    return
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                reader.ends()  # partitions may have been added
                if self._store.position() != base:
                    raise Switched(f"{self.name} is not where it was left")
            for partition, record in reader.fetch(0 if until_end and not at_end else _WAIT_MS):
                gathered.records += 1
                try:
                    self._gather(gathered, record)
                except Unreadable as error:
                    self._set_aside(gathered, partition, record, str(error))
                if gathered.is_full(self._store):
                    base = self._apply(cluster, gathered, base, reader)
                    gathered = _Gathered()
                if gathered.records % _TICK_RECORDS == 0:
                    self._count(reader, ends, began, gathered, base)
                    tick()

    def _count(
        self,
        reader: TopicReader,
        ends: dict[int, int],
        began: dict[int, int],
        gathered: _Gathered,
        base: Position | None,
    ) -> None:
        offsets = reader.offsets
        self.progress.done = sum(
            max(0, min(offsets[partition], end) - began[partition]) for partition, end in ends.items()
        )
        # The markers of transactions have offsets too, and are never applied.
        held = offsets if not gathered.records else began if base is None else base.offsets
        self.progress.behind = sum(
            max(0, end - held.get(partition, 0)) for partition, end in reader.committed.items()
        )

    def _gather(self, gathered: _Gathered, record: Record | Unopened) -> None:
        if isinstance(record, Unopened):
            raise Unreadable(
                f"a batch of records, up to offset {record.last_offset}, does not open: {record.reason}"
            )
        gathered.newest_ms = max(gathered.newest_ms, record.timestamp)
        found = self._stream.decoder.read(record.key, record.value)
        if found is not None:
            key, row = found
            gathered.changes[key] = None if row is None else self._store.take(row)
            gathered.bytes += 200 if row is None else 200 + len(row.text)

    def _set_aside(self, gathered: _Gathered, partition: int, record: Record | Unopened, reason: str) -> None:
        if isinstance(record, Unopened):
            record = Record(record.first_offset, 0, None, None)
        topic = self._stream.topic
        dead = letter(f"{self.name}: {reason}", topic, partition, *record)
        gathered.letters.append(dead)
        gathered.bytes += 200 + len(dead.value or b"")
        if len(gathered.letters) <= _TOLD:
            place = f"{topic}-{partition} at offset {record.offset}"
            self._say(f"{place} cannot be read, and is in {self._dead_letters}: {reason}")

    def _bury(self, cluster: Cluster, gathered: _Gathered) -> None:
        if not gathered.letters:
            return
        try:
            send_letters(cluster, self._dead_letters, gathered.letters)
        except BrokerError as error:
            if error.retriable:
                raise
            raise DerivedError(str(error)) from error
        boundary("derived.after_letters")
        self.progress.unreadable += len(gathered.letters)
        if len(gathered.letters) > _TOLD:
            more = len(gathered.letters) - _TOLD
            self._say(f"{more:,} more records cannot be read, and are in {self._dead_letters}")

    def _apply(
        self, cluster: Cluster, gathered: _Gathered, base: Position | None, reader: TopicReader
    ) -> Position:
        self._bury(cluster, gathered)
        start = base or Position(self._stream.topic, reader.topic_id, shape=self._store.shape)
        position = start.moved(reader.offsets, len(gathered.letters))
        boundary("derived.before_apply")
        self._store.apply(gathered.changes, base, position)
        boundary("derived.after_apply")
        self.progress.changes += len(gathered.changes)
        self.progress.commits += 1
        self.progress.last_record_ms, self.progress.applied_at = gathered.newest_ms, time.time()
        return position


class _Gathered:
    """What has been read and is not applied yet: of each row, what became of it last; and what cannot be read."""

    def __init__(self) -> None:
        self.changes: dict[str, Any] = {}
        self.records = 0
        self.letters: list[Record] = []
        self.bytes = 0
        self.newest_ms = 0
        self._began = time.monotonic()

    def is_due(self, store: Store, *, at_end: bool) -> bool:
        if not self.records:
            self._began = time.monotonic()
            return False
        return at_end or time.monotonic() - self._began >= store.gather_seconds

    def is_full(self, store: Store) -> bool:
        return len(self.changes) >= store.gather_changes or self.bytes >= _GATHER_BYTES
