"""Follows a database as a runner does, and keeps what its changes lead to; for tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headwater.capture.change import Batch, Change, Row
from headwater.capture.postgres import open_source
from headwater.capture.postgres.catalog import Catalog
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import connect
from headwater.capture.postgres.snapshot import begin_reading, read_table
from headwater.capture.postgres.source import PostgresSource
from headwater.capture.source import TryAgain

Rows = dict[str, dict[tuple[bytes | None, ...], Row]]


def rows_of(url: str, tables: Sequence[str]) -> Rows:
    """Return the rows that tables have now, by their keys."""
    config = Config.parse(url, tables, name="check")
    with connect(config) as session:
        found: Rows = {}
        described = Catalog(config, session).tables()
        begin_reading(session)
        for table in described:
            found[str(table.schema)] = {
                key_of(change, change.after): change.after
                for changes in read_table(session, table, {})
                for change in changes
                if change.after is not None
            }
        return found


def key_of(change: Change, row: Row | None) -> tuple[bytes | None, ...]:
    """Return the values of a row's key."""
    assert row is not None
    names = [column.name for column in change.table.columns]
    return tuple(row[names.index(name)] for name in change.table.key)


class Follower:
    """The rows that a source's changes lead to; every change has to fit to what is there."""

    def __init__(self, url: str, tables: Sequence[str], *, name: str = "test", strict: bool = True) -> None:
        self.url = url
        self.tables = tables
        self.name = name
        self.strict = strict
        self.retrying = False
        self.rows: Rows = {}
        self.position: Any = None
        self.changes: list[Change] = []
        self.largest_batch = 0
        self._source: PostgresSource | None = None
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
            self._source = open_source(self.url, self.tables, name=self.name)
            self._source.describe()
            self._batches = iter(self._source.follow(self.position))
        batch = next(self._batches)
        for change in batch.changes:
            self._apply(change)
        self.changes += batch.changes
        self.largest_batch = max(self.largest_batch, len(batch.changes))
        self.position = json.loads(json.dumps(batch.position))
        return batch

    def acknowledge(self) -> None:
        """Let the database forget what was taken in."""
        assert self._source is not None
        self._source.acknowledge(self.position)

    def until(self, done: Callable[[], bool], seconds: float = 30) -> None:
        """Take batches in until something is so."""
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.changes[-3:]}"
            self.step()

    def settle(self, seconds: float = 30) -> None:
        """Take batches in until nothing more comes."""
        deadline = time.monotonic() + seconds
        while (batch := self.step()).changes or batch.is_behind:
            assert time.monotonic() < deadline, f"not within {seconds} s"

    def close(self) -> None:
        """Leave the database; the next step goes on from the last position."""
        if self._source is not None:
            self._source.close()
        self._source = self._batches = None

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply(self, change: Change) -> None:
        rows = self.rows.setdefault(str(change.table), {})
        if change.op == "t":
            rows.clear()
            return
        if change.after is None:
            found = rows.pop(key_of(change, change.before), None)
            assert found is not None or not self.strict, change
            return
        key = key_of(change, change.after)
        after = change.after
        if change.op == "u":
            was = key if change.before is None else key_of(change, change.before)
            known = rows.pop(was, None)
            assert known is not None or not self.strict, change
            if known is not None and len(known) == len(after):
                after = tuple(old if new is None else new for new, old in zip(after, known, strict=True))
        elif self.strict:
            assert key not in rows, change
        rows[key] = after
