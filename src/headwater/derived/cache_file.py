"""A cache in a SQLite file: rows and position in one transaction.

    SELECT row FROM rows WHERE key = '42'

The store that is built beside has tables of its own in the same file, which are renamed in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from headwater.derived.change import Position, Row
from headwater.derived.errors import Behind, DerivedError, Switched, TryAgain
from headwater.derived.store import Prepared

__all__ = ["FileCache"]

T = TypeVar("T")

_BUSY_SECONDS = 20.0
_PAGE = 1000
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


class FileCache:
    """Rows by key in a file."""

    gather_seconds = 0.0
    gather_changes = 20_000
    shape = ""

    def __init__(self, path: Path, *, prefix: str = "") -> None:
        self.path = path
        self._rows, self._position = f"{prefix}rows", f"{prefix}position"
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> str | None:
        """Return the JSON of a row."""
        query = f"SELECT row FROM {self._rows} WHERE key = ?"
        found = self._asking(lambda: self._open().execute(query, (key,)).fetchone())
        return None if found is None else str(found[0])

    def position(self) -> Position | None:
        """Return how far the cache is."""
        return self._asking(lambda: self._read_position(self._open()))

    def take(self, row: Row) -> str:
        """Return the row's JSON."""
        return row.text

    def apply(self, changes: Prepared, base: Position | None, position: Position) -> None:
        """Change rows and position in one transaction."""
        gone = [(key,) for key, row in changes.items() if row is None]
        kept = [(key, row) for key, row in changes.items() if row is not None]

        def apply(connection: sqlite3.Connection) -> None:
            if self._read_position(connection) != base:
                raise Switched(f"{self.path} was moved on by another process")
            connection.executemany(f"DELETE FROM {self._rows} WHERE key = ?", gone)
            connection.executemany(f"INSERT OR REPLACE INTO {self._rows} VALUES (?, ?)", kept)
            connection.execute(f"INSERT OR REPLACE INTO {self._position} VALUES (1, ?)", (position.encode(),))

        self._in_transaction(apply)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield keys and rows in steps, so that nobody waits for whoever reads."""
        query = f"SELECT key, row FROM {self._rows} WHERE key > ? ORDER BY key LIMIT {_PAGE}"
        last = ""
        first = f"SELECT key, row FROM {self._rows} WHERE key = ''"
        yield from self._asking(lambda: self._open().execute(first).fetchall())
        while True:
            page = self._asking(lambda after=last: self._open().execute(query, (after,)).fetchall())  # type: ignore[misc]
            if not page:
                return
            yield from page
            last = page[-1][0]

    def count(self) -> int:
        """Return how many rows there are."""
        query = f"SELECT count(*) FROM {self._rows}"
        return int(self._asking(lambda: self._open().execute(query).fetchone()[0]))

    def beside(self) -> FileCache:
        """Return an empty cache in the same file."""
        other = FileCache(self.path, prefix="building_")

        def clear(connection: sqlite3.Connection) -> None:
            connection.execute(f"DELETE FROM {other._rows}")
            connection.execute(f"DELETE FROM {other._position}")

        other._in_transaction(clear)
        return other

    def switch(self, beside: FileCache) -> None:
        """Rename the tables of another cache to ours."""

        def rename(connection: sqlite3.Connection) -> None:
            live, built = self._read_position(connection), beside._read_position(connection)
            if built is None or not built.may_replace(live):
                raise Behind(f"{self.path} has moved on")
            for mine, other in ((self._rows, beside._rows), (self._position, beside._position)):
                connection.execute(f"DROP TABLE {mine}")
                connection.execute(f"ALTER TABLE {other} RENAME TO {mine}")

        self._in_transaction(rename)
        beside.close()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read_position(self, connection: sqlite3.Connection) -> Position | None:
        found = connection.execute(f"SELECT said FROM {self._position}").fetchone()
        return None if found is None else Position.decode(found[0])

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            # What a power failure takes back it takes back with its position, and is read again.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._rows} (key TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID"
            )
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._position} (one INTEGER PRIMARY KEY, said TEXT NOT NULL)"
            )
            self._connection = connection
        return self._connection

    def _in_transaction(self, work: Callable[[sqlite3.Connection], None]) -> None:
        def run() -> None:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                work(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        self._asking(run)

    def _asking(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except sqlite3.Error as error:
            self.close()
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _PASSING:
                raise TryAgain(f"{self.path}: {error}") from error
            raise DerivedError(
                f"the cache {self.path} cannot be used ({error}): let this user write to it, or delete it and start"
                " again, and it is built anew"
            ) from error
