"""A capture that runs: follow, publish, commit, acknowledge; again after what may be over in a moment.

What has come while a transaction was committed is the next transaction, up to a size and a time. So a lone change is
published at once, and many share the cost of a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headwater.capture.change import Position
from headwater.capture.feed import Feed
from headwater.capture.publisher import Publisher
from headwater.capture.source import CaptureError, Source, TryAgain
from headwater.client import AuthenticationFailed, ClientError
from headwater.core.boundaries import boundary

__all__ = ["Limits", "Progress", "Runner"]

State = Literal["starting", "snapshot", "streaming", "waiting", "stopped"]


@dataclass(frozen=True)
class Limits:
    """When a transaction ends, and how long to pause before another try."""

    bytes: int = 8 * 1024 * 1024
    seconds: float = 0.5
    idle_seconds: float = 5.0
    """How often a position that moved without changes is written down."""
    first_pause: float = 0.5
    longest_pause: float = 30.0


@dataclass
class Progress:
    """How far a capture is, for the status line and the metrics."""

    state: State = "starting"
    rows: int = 0
    records: int = 0
    transactions: int = 0
    last_change_us: int = 0
    committed_at: float = 0.0
    position: Position | None = None
    retries: int = 0
    problem: str = ""

    def lag_seconds(self) -> float:
        """Return how long the last published change took from its commit in the database into its topic."""
        return max(0.0, self.committed_at - self.last_change_us / 1e6) if self.last_change_us else 0.0


class Runner:
    """One capture: a database's source, and a publisher for each try."""

    def __init__(
        self,
        source: Callable[[], Source],
        publisher: Callable[[], Publisher],
        *,
        limits: Limits | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.progress = Progress()
        self._source = source
        self._publisher = publisher
        self._limits = limits or Limits()
        self._say = say
        self._stopping = False
        self._drained = False

    def stop(self) -> None:
        """Have `run` return soon; from any thread or signal handler."""
        self._stopping = True

    def run(self, *, until_idle: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        """Capture until stopped, or with `until_idle` until the database has nothing more.

        Raises the `CaptureError` that needs somebody to do something. `ready` is called once changes are followed.
        """
        pause = self._limits.first_pause
        while not self._stopping and not self._drained:
            began = self.progress.transactions
            try:
                self._attempt(until_idle=until_idle, ready=ready)
                continue
            except TryAgain as error:
                problem = str(error)
            except AuthenticationFailed as error:
                raise CaptureError(str(error)) from error
            except ClientError as error:  # of the broker, which may come back
                problem = str(error)
            if self.progress.transactions > began:
                pause = self._limits.first_pause
            self.progress.state, self.progress.problem = "waiting", problem
            self.progress.retries += 1
            self._say(f"{problem}; trying again in {pause:g} s")
            self._pause(pause)
            pause = min(2 * pause, self._limits.longest_pause)
        self.progress.state = "stopped"

    def _attempt(self, *, until_idle: bool, ready: Callable[[], None]) -> None:
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
                self._pump(feed, publisher, until_idle=until_idle)
            finally:
                feed.stop()

    def _pump(self, feed: Feed, publisher: Publisher, *, until_idle: bool) -> None:
        limits = self._limits
        rows, records, transactions = self.progress.rows, self.progress.records, self.progress.transactions
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
                publisher.moved and (until_idle or time.monotonic() - written > limits.idle_seconds)
            ):
                position = publisher.commit()
                written = time.monotonic()
                if position is not None:
                    feed.acknowledge(position)
                    boundary("capture.after_acknowledge")
                done = publisher.published
                self.progress.rows = rows + done.rows
                self.progress.records = records + done.records
                self.progress.transactions = transactions + done.transactions
                self.progress.last_change_us = done.last_change_us
                self.progress.committed_at = time.time()
                self.progress.position = position
                for line in done.warnings:
                    self._say(line)
                done.warnings.clear()
            self._take_state(batch.changes[-1].op if batch is not None and batch.changes else None)
            if until_idle and idle and not feed.waiting:
                self._drained = True
                return

    def _take_state(self, op: str | None) -> None:
        self.progress.problem = ""
        self.progress.state = "snapshot" if op == "r" else "streaming"

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)
