"""A SQLite file that is followed: its change table, and before that its rows.

Every step is a short read of its own, so that it stands in nobody's way, with a write-ahead log or without. A step of
the snapshot first reads all changes there are, then the next rows: so the rows are as they are behind these changes,
and whatever is changed later comes later.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from headwater.capture.change import Batch, Change, Position, Row, TableSchema
from headwater.capture.source import CaptureError, TryAgain
from headwater.capture.sqlite.config import BUSY_SECONDS, connect, layout_of, names_of, path_of, problem
from headwater.capture.sqlite.install import install, installed, keep_in_step, no_table, stored_layouts
from headwater.capture.sqlite.offset import Offset
from headwater.capture.sqlite.snapshot import read_rows
from headwater.capture.sqlite.stream import Reader, Stream, size_of
from headwater.capture.sqlite.triggers import CHANGES, FORGET, META

__all__ = ["SqliteSource", "read_table"]

T = TypeVar("T")

_ROWS = 5_000
_BYTES = 4 * 1024 * 1024
"""What a batch holds, whatever the size of its transaction."""
_POLL_SECONDS = 0.02
_IDLE_SECONDS = 0.5
_FORGET_ROWS = 5_000
_FORGET_SECONDS = 1.0
_FORGET_WAIT_MS = 50


def read_table(url: str, table: str) -> Iterator[tuple[TableSchema, list[Row]]]:
    """Yield the rows of a table as capture writes them, in short steps, without a trace in the file."""
    path = path_of(url)
    [name] = names_of([table])
    connection = connect(path)
    try:
        layout = layout_of(connection, name)
        if layout is None:
            raise no_table(path, name)
        reader = Reader(layout)
        after = None
        while True:
            values = [*itertools.islice(read_rows(connection, layout, after), _ROWS)]
            yield layout.table, [reader.row(each) for each in values]
            if len(values) < _ROWS:
                return
            after = reader.key(values[-1])
    except sqlite3.Error as error:
        raise problem(path, error) from error
    finally:
        connection.close()


class SqliteSource:
    """The tables of one file."""

    def __init__(self, url: str, tables: Sequence[str], *, name: str) -> None:
        self._url = url
        self._path = path_of(url)
        self._tables = names_of(tables)
        self._name = name
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._schema_version = -1
        self._readers: dict[int, Reader] = {}
        self._newest: dict[str, Reader] = {}
        self._stream: Stream | None = None
        self._forgotten = 0
        self._forgot_at = 0.0

    def describe(self) -> list[TableSchema]:
        """Return the tables as they are now."""

        def ask() -> list[TableSchema]:
            found = []
            for name in self._tables:
                layout = layout_of(self._open(), name)
                if layout is None:
                    raise no_table(self._path, name)
                found.append(layout.table)
            return found

        return self._asking(ask)

    def follow(self, position: Position | None) -> Iterator[Batch]:
        """Yield the rows, then their changes, from a position on."""
        offset = self._asking(lambda: self._begin(position))
        while True:
            version = self._asking(self._data_version)
            changes, more = self._asking(lambda: self._step(offset))
            if not changes and not more:
                waited = time.monotonic() + _IDLE_SECONDS
                while time.monotonic() < waited and self._asking(self._data_version) == version:
                    time.sleep(_POLL_SECONDS)
                if self._asking(self._data_version) != version:
                    continue
            if changes or not more:
                yield Batch(changes, offset.position())

    def acknowledge(self, position: Position) -> None:
        """Delete changes that are in their topics, now and then: a write that others wait for has to be worth it."""
        seq = int(position["seq"])
        now = time.monotonic()
        if seq - self._forgotten < _FORGET_ROWS and (
            now - self._forgot_at < _FORGET_SECONDS or seq == self._forgotten
        ):
            return
        connection = self._open()
        connection.execute(f"PRAGMA busy_timeout = {_FORGET_WAIT_MS}")
        with suppress(sqlite3.OperationalError):  # somebody writes: the next time will do
            connection.execute(FORGET, (seq,))
            self._forgotten = seq
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        self._forgot_at = now

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path)
            self._file = self._on_disk()
        return self._connection

    def _on_disk(self) -> tuple[int, int] | None:
        """Return what tells the file that is there now from others."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _asking(self, ask: Callable[[], T]) -> T:
        """Do something with the file, and say what is wrong with it."""
        try:
            return ask()
        except sqlite3.Error as error:
            raise problem(self._path, error) from error

    def _data_version(self) -> int:
        """Return a number that is another one once somebody else has written."""
        [found] = self._open().execute("PRAGMA data_version").fetchone()
        if self._on_disk() != self._file:  # the one that is open is nobody's any more, and will not change
            raise TryAgain(f"{self._path} was deleted, or replaced by another file")
        return int(found)

    def _begin(self, position: Position | None) -> Offset:
        connection = self._open()
        there = installed(connection)
        if position is None:
            install(self._url, self._tables)
            there = installed(connection)
            assert there is not None
            self._own(connection)
            return Offset(there, self._last_seq(connection))
        offset = Offset.of(position)
        if there != offset.install:
            became = "was removed" if there is None else "was removed and installed again"
            raise self._lost(f"the change table {became} since")
        if self._last_seq(connection) < offset.seq:
            raise self._lost("the file is older than that, as one from a backup is")
        asked = f"SELECT at FROM {CHANGES} WHERE seq = ?"
        if offset.at is not None and connection.execute(asked, (offset.seq,)).fetchone() not in (
            None,  # published, and forgotten
            (offset.at,),
        ):
            raise self._lost("the file was replaced by an older one, as from a backup, and written to since")
        new = [name for name in self._tables if name not in offset.done and name not in offset.after]
        if new:
            install(self._url, new)
        self._own(connection)
        return offset

    def _lost(self, reason: str) -> CaptureError:
        return CaptureError(
            f"{self._path} cannot be followed from where {self._name!r} was: {reason}. Take a new snapshot with"
            f" `headwater capture snapshot {self._name}`"
        )

    def _own(self, connection: sqlite3.Connection) -> None:
        """Refuse to take the changes away from another capture."""
        asked = f"SELECT value FROM {META} WHERE name = 'capture'"
        owner = connection.execute(asked).fetchone()
        if owner is None:
            connection.execute(f"INSERT OR IGNORE INTO {META} VALUES ('capture', ?)", (self._name,))
            owner = connection.execute(asked).fetchone()
        if owner != (self._name,):
            raise CaptureError(
                f"{self._path} is captured as {owner[0]!r} already: add the tables to that one, or `headwater capture"
                " remove` it first"
            )

    def _last_seq(self, connection: sqlite3.Connection) -> int:
        [last] = connection.execute(f"SELECT max(seq) FROM {CHANGES}").fetchone()
        return int(last or 0)

    def _step(self, offset: Offset) -> tuple[list[Change], bool]:
        """Return the next changes or rows, and whether more may be there already; move the offset."""
        connection = self._open()
        connection.execute("BEGIN")
        try:
            while connection.execute("PRAGMA schema_version").fetchone() != (self._schema_version,):
                connection.execute("COMMIT")
                self._look(connection)
                connection.execute("BEGIN")
            assert self._stream is not None
            changes, drained = self._stream.read(offset, _ROWS, _BYTES)
            if drained:
                changes += self._snapshot(connection, offset)
            return changes, not drained or any(offset.reads(name) for name in self._tables)
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")

    def _snapshot(self, connection: sqlite3.Connection, offset: Offset) -> list[Change]:
        for name in self._tables:
            if not offset.reads(name):
                continue
            reader = self._newest[name]
            now_us = time.time_ns() // 1000
            source: dict[str, object] = {"seq": offset.seq}
            changes: list[Change] = []
            size = 0
            for values in read_rows(connection, reader.layout, offset.after.get(name)):
                row = reader.row(values)
                offset.after[name] = reader.key(values)
                changes.append(Change("r", reader.table, None, row, now_us, None, source))
                size += size_of(row)
                if len(changes) == _ROWS or size > _BYTES:
                    return changes
            offset.done.add(name)
            offset.after.pop(name, None)
            if changes:
                return changes
        return []

    def _look(self, connection: sqlite3.Connection) -> None:
        """Look at the tables anew, and have their triggers know the columns that there are."""
        self._schema_version = keep_in_step(connection, self._path, self._tables, self._name)
        for number, layout in stored_layouts(connection).items():
            if number not in self._readers:
                self._readers[number] = Reader(layout)
            if layout.table.name in self._tables:
                self._newest[layout.table.name] = self._readers[number]
        self._stream = Stream(connection, self._readers, frozenset(self._tables))
