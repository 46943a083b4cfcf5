"""The rows of a projection in SQLite: one generation is served while the next is built beside it.

Rows, and the offsets that they lead up to, are committed together, so an event counts once whatever happens.
Which generation is served is one row of the file: it changes for all readers, in all processes, at once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.events.errors import BadEvent

__all__ = ["Generation", "ProjectionFile", "Rows"]

_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS generations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, code TEXT NOT NULL, served INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS positions (
    generation INTEGER NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY (generation, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (
    generation INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (generation, key)
) WITHOUT ROWID;
"""


class Rows(MutableMapping[str, Any]):
    """The rows of a generation as a projection's function sees them: a mapping of text to what JSON holds.

    Changes are kept until `flush`; a row that was changed in place is to be assigned again.
    """

    def __init__(self, connection: sqlite3.Connection, generation: int) -> None:
        self._connection = connection
        self._generation = generation
        self._changed: dict[str, str | None] = {}

    def __getitem__(self, key: str) -> Any:
        if key in self._changed:
            text = self._changed[key]
        else:
            query = "SELECT row FROM rows WHERE generation = ? AND key = ?"
            found = self._connection.execute(query, (self._generation, key)).fetchone()
            text = found[0] if found is not None else None
        if text is None:
            raise KeyError(key)
        return json.loads(text)

    def __setitem__(self, key: str, row: Any) -> None:
        if not isinstance(key, str):
            raise BadEvent(f"the key of a projection's row is text, not {key!r:.80}")
        try:
            self._changed[key] = json.dumps(row, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise BadEvent(f"the row {key!r} of a projection cannot be JSON: {error}") from None

    def __delitem__(self, key: str) -> None:
        self[key]
        self._changed[key] = None

    def __iter__(self) -> Iterator[str]:
        self.flush()
        query = "SELECT key FROM rows WHERE generation = ? ORDER BY key"
        return iter([key for [key] in self._connection.execute(query, (self._generation,))])

    def __len__(self) -> int:
        self.flush()
        query = "SELECT count(*) FROM rows WHERE generation = ?"
        return int(self._connection.execute(query, (self._generation,)).fetchone()[0])

    def flush(self) -> None:
        """Write the changes to the transaction."""
        for key, row in self._changed.items():
            if row is None:
                self._connection.execute(
                    "DELETE FROM rows WHERE generation = ? AND key = ?", (self._generation, key)
                )
            else:
                self._connection.execute(
                    "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (self._generation, key, row)
                )
        self._changed.clear()


class Generation:
    """One making of the rows, within a transaction."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        self.number = number
        self.rows = Rows(connection, number)
        self._connection = connection

    def positions(self) -> dict[int, int]:
        """Return the offsets that the rows lead up to, by partition."""
        query = "SELECT partition, next_offset FROM positions WHERE generation = ?"
        return dict(self._connection.execute(query, (self.number,)).fetchall())

    def move(self, partition: int, next_offset: int) -> None:
        """Note how far a partition has been read."""
        row = (self.number, partition, next_offset)
        self._connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", row)


class _Connection:
    """A connection that one thread at a time has a transaction on."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)

    @contextmanager
    def transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class ProjectionFile:
    """The generations of a projection. Thread-safe."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever reads does not wait for whoever writes.
        self._writer, self._reader = _Connection(path), _Connection(path)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
        self._reader.close()

    @contextmanager
    def changing(self, number: int | None = None) -> Iterator[Generation]:
        """Give a generation, or the one that is served, in a transaction that ends with the block."""
        with self._writer.transaction("IMMEDIATE") as connection:
            generation = Generation(connection, number or self._served(connection)[0])
            yield generation
            generation.rows.flush()

    @contextmanager
    def reading(self) -> Iterator[Rows]:
        """Give the rows that are served, in one state of the file."""
        with self._reader.transaction("DEFERRED") as connection:
            yield Rows(connection, self._served(connection)[0])

    def served(self) -> tuple[int, str] | None:
        """Return the number of the generation that is served, and the code that made it."""
        with self._reader.transaction("DEFERRED") as connection:
            found = connection.execute("SELECT number, code FROM generations WHERE served").fetchone()
        return None if found is None else (found[0], found[1])

    def begin(self, code: str, *, served: bool) -> int:
        """Make an empty generation, in place of one that was left unfinished, and return its number."""
        with self._writer.transaction("IMMEDIATE") as connection:
            self._drop(connection)
            made = connection.execute(
                "INSERT INTO generations (code, served) VALUES (?, ?)", (code, int(served))
            )
            return int(made.lastrowid or 0)

    def serve(self, number: int) -> bool:
        """Serve a generation instead of the one that is; not while that one is further than it."""
        with self._writer.transaction("IMMEDIATE") as connection:
            now, _ = self._served(connection)
            ahead = Generation(connection, number).positions()
            behind = Generation(connection, now).positions()
            if any(ahead.get(partition, 0) < offset for partition, offset in behind.items()):
                return False
            connection.execute("UPDATE generations SET served = (number = ?)", (number,))
            self._drop(connection)
        return True

    def _served(self, connection: sqlite3.Connection) -> tuple[int, str]:
        number, code = connection.execute("SELECT number, code FROM generations WHERE served").fetchone()
        return int(number), str(code)

    def _drop(self, connection: sqlite3.Connection) -> None:
        gone = "(SELECT number FROM generations WHERE NOT served)"
        connection.execute(f"DELETE FROM rows WHERE generation IN {gone}")
        connection.execute(f"DELETE FROM positions WHERE generation IN {gone}")
        connection.execute("DELETE FROM generations WHERE NOT served")
