"""Follows a database as a runner does, and keeps what its changes lead to; for tests of every database."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

from headwater.capture.change import Batch, Change, Row
from headwater.capture.source import Source, TryAgain

Rows = dict[str, dict[tuple[bytes | None, ...], Row]]
S = TypeVar("S", bound=Source)


def key_of(change: Change, row: Row | None) -> tuple[bytes | None, ...]:
    """Return the values of a row's key."""
    assert row is not None
    names = [column.name for column in change.table.columns]
    return tuple(row[names.index(name)] for name in change.table.key)


class Following(ABC, Generic[S]):
    """The rows that a source's changes lead to; every change has to fit to what is there."""

    def __init__(self, url: str, tables: Sequence[str]) -> None:
        self.url = url
        self.tables = tables
        self.retrying = False
        self.rows: Rows = {}
        self.position: Any = None
        self.changes: list[Change] = []
        self.largest_batch = 0
        self._source: S | None = None
        self._batches: Iterator[Batch] | None = None

    @abstractmethod
    def open(self) -> S:
        """Return a new source."""

    @abstractmethod
    def apply(self, change: Change) -> None:
        """Take a change into the rows."""

    @abstractmethod
    def settle(self, seconds: float = 30) -> None:
        """Take batches in until nothing more comes."""

    def step(self) -> Batch:
        """Take one batch in; with `retrying`, as often as it takes."""
        while True:
            try:
                return self._step()
            except TryAgain:
                if not self.retrying:
                    raise
                self.close()
                time.sleep(0.05)

    def until(self, done: Callable[[], bool], seconds: float = 30) -> None:
        """Take batches in until something is so."""
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.changes[-3:]}"
            self.step()

    def ops(self) -> str:
        """Return the letters of all changes."""
        return "".join(change.op for change in self.changes)

    def close(self) -> None:
        """Leave the database; the next step goes on from the last position."""
        if self._source is not None:
            self._source.close()
        self._source = self._batches = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self) -> Batch:
        if self._source is None or self._batches is None:
            self._source = self.open()
            self._batches = iter(self._source.follow(self.position))
        batch = next(self._batches)
        for change in batch.changes:
            self.apply(change)
        self.changes += batch.changes
        self.largest_batch = max(self.largest_batch, len(batch.changes))
        self.position = json.loads(json.dumps(batch.position))
        return batch
