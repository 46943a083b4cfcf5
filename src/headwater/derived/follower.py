"""A store kept in step with its table's topic: read, gather, apply rows and position at once.

After what may be over in a moment, a broker or a store that is away, it tries again with pauses that grow; what needs
somebody, as a store that has to be built anew, is said and looked at again after the longest pause. A record that says
nothing about a row is named, counted and passed over: the row stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headwater.client import AuthenticationFailed, ClientError, Cluster, UnknownTopic
from headwater.core.boundaries import boundary
from headwater.core.urls import KafkaUrl
from headwater.derived.change import Position
from headwater.derived.decode import Decoder
from headwater.derived.errors import DerivedError, Switched, TryAgain, Unreadable
from headwater.derived.reading import TopicReader
from headwater.derived.store import Store

__all__ = ["Follower", "Pauses", "Progress", "Stream"]

State = Literal["starting", "following", "waiting", "stopped"]

_WAIT_MS = 250
_GATHER_BYTES = 32 * 1024 * 1024
_LOOK_SECONDS = 5.0
_TICK_RECORDS = 1000
_TOLD = 20
"""Of so many unreadable records that are applied together each is named, and the rest counted."""


@dataclass(frozen=True)
class Stream:
    """A topic that holds the rows of a table."""

    topic: str
    decoder: Decoder


@dataclass(frozen=True)
class Pauses:
    """How long to wait before another try, in seconds."""

    first: float = 0.5
    longest: float = 30.0


@dataclass
class Progress:
    """How far a store is."""

    state: State = "starting"
    changes: int = 0
    commits: int = 0
    unreadable: int = 0
    retries: int = 0
    done: int = 0
    """Of so many offsets that there were when it began,"""
    total: int = 0
    problem: str = ""


class Follower:
    """One store that follows one topic; one thread runs it."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        store: Store,
        broker: KafkaUrl,
        *,
        say: Callable[[str], None] = lambda line: None,
        pauses: Pauses | None = None,
        deadline_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.progress = Progress()
        self._stream, self._store, self._broker = stream, store, broker
        self._say = say
        self._pauses = pauses or Pauses()
        self._deadline_seconds = deadline_seconds
        self._stopping = False
        self._drained = False

    def stop(self) -> None:
        """Have `run` return soon; from any thread or signal handler."""
        self._stopping = True

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
        pause = self._pauses.first
        while not self._stopping and not self._drained:
            before = self.progress.commits
            try:
                self._attempt(until_end=until_end, ready=ready, tick=tick)
                continue
            except Switched:
                continue
            except UnknownTopic:
                problem = f"the topic {self._stream.topic} of {self.name} is not there yet"
            except TryAgain as error:
                problem = str(error)
            except (DerivedError, AuthenticationFailed) as error:
                if until_end:
                    raise
                problem, pause = str(error), self._pauses.longest
            except ClientError as error:
                problem = str(error)
            if self.progress.commits > before:
                pause = self._pauses.first
            self.progress.state, self.progress.problem = "waiting", problem
            self.progress.retries += 1
            self._say(f"{problem}; trying again in {pause:g} s")
            self._pause(pause)
            pause = min(2 * pause, self._pauses.longest)
        self.progress.state = "stopped"

    def _attempt(self, *, until_end: bool, ready: Callable[[], None], tick: Callable[[], None]) -> None:
        base = self._store.position()
        self._check(base)
        cluster = Cluster(self._broker, f"headwater-{self.name}", deadline_seconds=self._deadline_seconds)
        try:
            reader = TopicReader(cluster, self._stream.topic, base, store=self.name)
            ends = reader.ends()
            began = dict(reader.offsets)
            self.progress.total = sum(max(0, end - began[partition]) for partition, end in ends.items())
            self._follow(reader, base, ends, began, until_end=until_end, ready=ready, tick=tick)
        finally:
            cluster.close()

    def _check(self, base: Position | None) -> None:
        if base is None:
            return
        again = f"build it anew with `headwater derived rebuild APP {self.name}`"
        if base.topic != self._stream.topic:
            raise DerivedError(
                f"{self.name} holds rows of {base.topic}, and not of {self._stream.topic}: {again}"
            )
        if base.shape != self._store.shape:
            raise DerivedError(
                f"{self.name} was made with other columns than it is declared with now: {again}"
            )

    def _follow(
        self,
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
            self._count(reader, ends, began)
            tick()
            if gathered.is_due(self._store, at_end=at_end and until_end) or (
                base is None and at_end  # an empty topic too makes a store that is there
            ):
                base = self._apply(gathered, base, reader)
                gathered = _Gathered()
            if at_end and not gathered.records:
                if not told:
                    told = True
                    self.progress.state, self.progress.problem = "following", ""
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
                if record is None:
                    self._unreadable(gathered, partition, -1, "a batch that does not open")
                    continue
                gathered.records += 1
                try:
                    found = self._stream.decoder.read(record.key, record.value)
                    if found is not None:
                        key, row = found
                        gathered.changes[key] = None if row is None else self._store.take(row)
                        gathered.bytes += 200 if row is None else 200 + len(row.text)
                except Unreadable as error:
                    self._unreadable(gathered, partition, record.offset, str(error))
                if gathered.is_full(self._store):
                    base = self._apply(gathered, base, reader)
                    gathered = _Gathered()
                if gathered.records % _TICK_RECORDS == 0:
                    self._count(reader, ends, began)
                    tick()

    def _count(self, reader: TopicReader, ends: dict[int, int], began: dict[int, int]) -> None:
        self.progress.done = sum(
            max(0, min(reader.offsets[partition], end) - began[partition]) for partition, end in ends.items()
        )

    def _unreadable(self, gathered: _Gathered, partition: int, offset: int, why: str) -> None:
        gathered.records += 1
        gathered.unreadable += 1
        self.progress.unreadable += 1
        if gathered.unreadable <= _TOLD:
            place = f"{self._stream.topic}-{partition}" + (f" at offset {offset}" if offset >= 0 else "")
            self._say(f"{place} says nothing about a row, and is passed over: {why}")

    def _apply(self, gathered: _Gathered, base: Position | None, reader: TopicReader) -> Position:
        start = base or Position(self._stream.topic, reader.topic_id, shape=self._store.shape)
        position = start.moved(reader.offsets, gathered.unreadable)
        boundary("derived.before_apply")
        self._store.apply(gathered.changes, base, position)
        boundary("derived.after_apply")
        if gathered.unreadable > _TOLD:
            self._say(f"{gathered.unreadable - _TOLD:,} more records say nothing about a row")
        self.progress.changes += len(gathered.changes)
        self.progress.commits += 1
        return position

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)


class _Gathered:
    """What has been read and is not applied yet: of each row, what became of it last."""

    def __init__(self) -> None:
        self.changes: dict[str, Any] = {}
        self.records = 0
        self.unreadable = 0
        self.bytes = 0
        self._began = time.monotonic()

    def is_due(self, store: Store, *, at_end: bool) -> bool:
        if not self.records:
            self._began = time.monotonic()
            return False
        return at_end or time.monotonic() - self._began >= store.gather_seconds

    def is_full(self, store: Store) -> bool:
        return len(self.changes) >= store.gather_changes or self.bytes >= _GATHER_BYTES
