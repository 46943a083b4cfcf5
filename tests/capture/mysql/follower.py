"""Follows a server as a runner does, and keeps what its changes lead to; for tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headwater.capture.change import Batch, Change, Row
from headwater.capture.mysql import open_source
from headwater.capture.source import Source, TryAgain

Rows = dict[str, dict[tuple[bytes | None, ...], Row]]


def key_of(change: Change, row: Row | None) -> tuple[bytes | None, ...]:
    """Return the values of a row's key."""
    assert row is not None
    names = [column.name for column in change.table.columns]
    return tuple(row[names.index(name)] for name in change.table.key)


def rows_of(url: str, tables: Sequence[str]) -> Rows:
    """Return the rows that tables have now, by their keys, as a snapshot reads them."""
    with Follower(url, tables) as reader:
        reader.read_snapshot()
        return reader.rows


class Follower:
    """The rows that a source's changes lead to; every change has to fit to what is there."""

    def __init__(self, url: str, tables: Sequence[str]) -> None:
        self.url = url
        self.tables = tables
        self.retrying = False
        self.rows: Rows = {}
        self.position: Any = None
        self.changes: list[Change] = []
        self.largest_batch = 0
        self._source: Source | None = None
        self._batches: Iterator[Batch] | None = None

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

    def _step(self) -> Batch:
        if self._source is None or self._batches is None:
            self._source = open_source(self.url, self.tables, name="test")
            self._batches = iter(self._source.follow(self.position))
        batch = next(self._batches)
        for change in batch.changes:
            self._apply(change)
        self.changes += batch.changes
        self.largest_batch = max(self.largest_batch, len(batch.changes))
        self.position = json.loads(json.dumps(batch.position))
        return batch

    @property
    def has_read(self) -> bool:
        """Whether all tables have been read."""
        return self.position is not None and all(
            pieces and pieces[-1][0] is None for pieces in self.position.get("snapshot", {}).values()
        )

    def read_snapshot(self) -> None:
        """Take batches in until all tables have been read."""
        self.until(lambda: self.has_read)

    def until(self, done: Callable[[], bool], seconds: float = 30) -> None:
        """Take batches in until something is so."""
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.changes[-3:]}"
            self.step()

    def settle(self, seconds: float = 30) -> None:
        """Take batches in until nothing more comes."""
        deadline = time.monotonic() + seconds
        self.read_snapshot()
        while self.step().changes:
            assert time.monotonic() < deadline, f"not within {seconds} s"

    def ops(self) -> str:
        """Return the letters of all changes."""
        return "".join(change.op for change in self.changes)

    def close(self) -> None:
        """Leave the server; the next step goes on from the last position."""
        if self._source is not None:
            self._source.close()
        self._source = self._batches = None

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply(self, change: Change) -> None:
        rows = self.rows.setdefault(change.table.name, {})
        if change.op == "t":
            rows.clear()
            return
        if change.before is not None:
            known = rows.pop(key_of(change, change.before), None)
            assert known is not None, change
            assert known == change.before or len(known) != len(change.before), (known, change)
        if change.after is not None:
            key = key_of(change, change.after)
            assert key not in rows, change
            rows[key] = change.after
