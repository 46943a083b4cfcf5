"""A capture that runs: follow, publish, commit, acknowledge; again after what may be over in a moment.

What has come while a transaction was committed is the next transaction, up to a size and a time. So a lone change is
published at once, and many share the cost of a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headwater.capture.change import Position
from headwater.capture.feed import Feed
from headwater.capture.publisher import Publisher
from headwater.capture.source import CaptureError, Source, TryAgain
from headwater.client import AuthenticationFailed, ClientError
from headwater.core.boundaries import boundary
from headwater.workers import worker
from headwater.workers.worker import Again, Pauses, Worker

__all__ = ["Limits", "Progress", "Runner"]


@dataclass(frozen=True)
class Limits:
    """When a transaction ends."""

    bytes: int = 8 * 1024 * 1024
    seconds: float = 0.5
    idle_seconds: float = 5.0
    """How often a position that moved without changes is written down."""


@dataclass
class Progress(worker.Progress):
    """How far a capture is, for the status line and the metrics; its states are also `snapshot` and `streaming`."""

    rows: int = 0
    records: int = 0
    last_change_us: int = 0
    committed_at: float = 0.0
    position: Position | None = None

    def lag_seconds(self) -> float:
        """Return how long the last published change took from its commit in the database into its topic."""
        return max(0.0, self.committed_at - self.last_change_us / 1e6) if self.last_change_us else 0.0


class Runner(Worker[Progress]):
    """One capture: a database's source, and a publisher for each try."""

    def __init__(
        self,
        source: Callable[[], Source],
        publisher: Callable[[], Publisher],
        *,
        limits: Limits | None = None,
        pauses: Pauses | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(Progress(), pauses=pauses, say=say)
        self._source = source
        self._publisher = publisher
        self._limits = limits or Limits()

    def run(self, *, until_end: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        """Capture until stopped, or with `until_end` until the database has nothing more.

        Raises the `CaptureError` that needs somebody to do something. `ready` is called once changes are followed.
        """

        def attempt() -> None:
            try:
                self._attempt(until_end=until_end, ready=ready)
            except AuthenticationFailed as error:
                raise CaptureError(str(error)) from error
            except (TryAgain, ClientError) as error:  # the broker may come back, too
                raise Again(str(error)) from error

        self._repeat(attempt)

    def _attempt(self, *, until_end: bool, ready: Callable[[], None]) -> None:
        source = self._source()
        try:
            tables = source.describe()
            publisher = self._publisher()
        except BaseException:
            source.close()
            raise
        with publisher:
            try:
                position = publisher.open(tables)
            except BaseException:
                source.close()
                raise
            self.progress.position = position
            self.progress.state = "snapshot" if position is None else "streaming"
            feed = Feed(source, position)
            try:
                ready()
                self._pump(feed, publisher, until_end=until_end)
            finally:
                feed.stop()

    def _pump(self, feed: Feed, publisher: Publisher, *, until_end: bool) -> None:
        limits = self._limits
        rows, records, commits = self.progress.rows, self.progress.records, self.progress.commits
        written = time.monotonic()
        while not self._stopping:
            batch = feed.get(0.5)
            if batch is None:
                if feed.ended:
                    raise TryAgain("the database ended the stream")
                continue
            began = time.monotonic()
            idle = not batch.changes and not batch.is_behind
            publisher.add(batch)
            while (
                feed.waiting
                and publisher.pending_bytes < limits.bytes
                and time.monotonic() - began < limits.seconds
                and (batch := feed.get(0)) is not None
            ):
                idle = not batch.changes and not batch.is_behind
                publisher.add(batch)
            if publisher.pending_bytes or (
                publisher.moved and (until_end or time.monotonic() - written > limits.idle_seconds)
            ):
                position = publisher.commit()
                written = time.monotonic()
                if position is not None:
                    feed.acknowledge(position)
                    boundary("capture.after_acknowledge")
                done = publisher.published
                self.progress.rows = rows + done.rows
                self.progress.records = records + done.records
                self.progress.commits = commits + done.transactions
                self.progress.last_change_us = done.last_change_us
                self.progress.committed_at = time.time()
                self.progress.position = position
                for line in done.warnings:
                    self._say(line)
                done.warnings.clear()
            self._take_state(batch.changes[-1].op if batch is not None and batch.changes else None)
            if until_end and idle and not feed.waiting:
                self._drained = True
                return

    def _take_state(self, op: str | None) -> None:
        self.progress.problem = ""
        self.progress.state = "snapshot" if op == "r" else "streaming"
