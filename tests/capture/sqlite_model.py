"""SQLite files that are written and captured in one process, for tests without a broker."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwater.capture.change import Batch, Change, Position
from headwater.capture.envelope import Encoder, Origin
from headwater.capture.sqlite import open_source
from headwater.capture.sqlite.source import SqliteSource
from headwater.record.records import Record

from .comparing import Row, materialised, parse

ORIGIN = Origin("sqlite", "shop", "shop", "1")


def make(path: Path, *statements: str, journal: str = "wal") -> sqlite3.Connection:
    """Return a connection to a new file, with tables made."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    for statement in statements:
        connection.execute(statement)
    return connection


class Captured:
    """A file that is captured into memory, and may be interrupted between any two batches."""

    def __init__(self, path: Path, *tables: str) -> None:
        self.url = f"sqlite:///{path}"
        self.tables = tables
        self.position: Position | None = None
        self.changes: list[Change] = []
        self._source: SqliteSource | None = None
        self._batches: Iterator[Batch] | None = None

    def open(self) -> SqliteSource:
        """Start following from where it was."""
        if self._source is None:
            self._source = open_source(self.url, self.tables, name="shop")
            self._batches = self._source.follow(self.position)
        return self._source

    def step(self) -> bool:
        """Take one batch; tell whether it had changes."""
        self.open()
        assert self._batches is not None
        batch = next(self._batches)
        self.changes += batch.changes
        self.position = batch.position
        return bool(batch.changes)

    def drain(self) -> None:
        """Take all there is, and let the file forget it."""
        while self.step():
            pass
        assert self.position is not None
        self.open().acknowledge(self.position)

    def crash(self) -> None:
        """Forget everything but what was taken."""
        if self._source is not None:
            self._source.close()
        self._source = self._batches = None

    def rows(self, table: str) -> list[Row]:
        """Return the rows that the changes lead to, by the records that they become."""
        return list(materialised(self.records(table)).values())

    def records(self, table: str) -> Iterable[Record]:
        """Return the records of a table."""
        encoder = Encoder(ORIGIN)
        for change in self.changes:
            if change.table.name == table:
                for key, value in encoder.records(change, 0):
                    yield Record(0, 0, key, value)


def replay(changes: Iterable[Change]) -> dict[tuple[Any, ...], Any]:
    """Return the rows that changes lead to; each has to fit what those before it have led to."""
    rows: dict[tuple[Any, ...], Any] = {}
    for change in changes:
        names = [column.name for column in change.table.columns]
        places = [names.index(name) for name in change.table.key]
        if change.before is not None:
            before = tuple(change.before[place] for place in places)
            assert rows.pop(before) == change.before, f"{change} does not follow"
        elif change.op == "u" and change.after is not None:
            rows.pop(tuple(change.after[place] for place in places), None)
        if change.after is not None:
            after = tuple(change.after[place] for place in places)
            assert after not in rows, f"{change} makes a row that there is"
            rows[after] = change.after
    return rows


def table_rows(connection: sqlite3.Connection, path: Path, table: str) -> list[Row]:
    """Return the rows of a table as JSON has them, read by a snapshot of its own."""
    from headwater.capture.sqlite.config import layout_of, quote
    from headwater.capture.sqlite.stream import Reader

    layout = layout_of(connection, table)
    assert layout is not None
    reader = Reader(layout)
    columns = ", ".join(quote(name) for name in layout.names)
    rows: list[tuple[Any, ...]] = connection.execute(f"SELECT {columns} FROM {quote(table)}").fetchall()
    return [
        {
            name: parse(value)
            for name, value in zip(layout.names, reader.row(row), strict=True)
            if value is not None
        }
        for row in rows
    ]


def same(left: Iterable[Row], right: Iterable[Row]) -> bool:
    """Tell whether rows are the same, in whatever order."""

    def ordered(rows: Iterable[Row]) -> list[str]:
        return sorted(repr(sorted(row.items())) for row in rows)

    return ordered(left) == ordered(right)
