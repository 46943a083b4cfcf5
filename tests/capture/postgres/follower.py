"""Follows a database as a runner does, and keeps what its changes lead to; for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from capture.following import Following, Rows, key_of
from headwater.capture.change import Change
from headwater.capture.postgres import open_source
from headwater.capture.postgres.catalog import Catalog
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import connect
from headwater.capture.postgres.snapshot import begin_reading, read_table
from headwater.capture.postgres.source import PostgresSource


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


class Follower(Following[PostgresSource]):
    """The rows that a source's changes lead to; unless not `strict`, every change has to fit to what is there."""

    def __init__(self, url: str, tables: Sequence[str], *, name: str = "test", strict: bool = True) -> None:
        super().__init__(url, tables)
        self.name = name
        self.strict = strict

    def open(self) -> PostgresSource:
        """Return a new source, once the database has all that following it needs."""
        source = open_source(self.url, self.tables, name=self.name)
        self._source = source  # so that it is closed if it refuses
        source.describe()
        return source

    def acknowledge(self) -> None:
        """Let the database forget what was taken in."""
        assert self._source is not None
        self._source.acknowledge(self.position)

    def settle(self, seconds: float = 30) -> None:
        """Take batches in until nothing more comes."""
        deadline = time.monotonic() + seconds
        while (batch := self.step()).changes or batch.is_behind:
            assert time.monotonic() < deadline, f"not within {seconds} s"

    def apply(self, change: Change) -> None:
        """Take a change into the rows; what it leaves out stays as it was."""
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
