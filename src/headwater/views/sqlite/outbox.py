"""The outbox of a view store in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from headwater.views.errors import UnknownView
from headwater.views.outbox import Delivery, Outbox
from headwater.views.sqlite.file import SqliteFile

__all__ = ["SqliteOutbox"]

_KEEP_ROWS = 1000
"""How many of an alert's rows stay readable after they were taken."""

_COLUMNS = "token, key, row, tries, next_at, error"


class SqliteOutbox(Outbox):
    """Deliveries in the file of the views."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def take(self, view: str, limit: int = 1000) -> int:
        """Turn the next entries of an alert's feed into deliveries."""
        with self._file.write() as db:
            number, taken = _view(db, view)
            found = db.execute(
                "SELECT token, key, row FROM changes WHERE view = ? AND token > ? ORDER BY token LIMIT ?",
                (number, taken, limit),
            ).fetchall()
            if not found:
                return 0
            taken = found[-1][0]
            db.executemany(
                "INSERT INTO deliveries (view, token, key, row) VALUES (?, ?, ?, ?)",
                [(number, *change) for change in found if change[2] is not None],
            )
            _forget_rows(db, number, taken - _KEEP_ROWS)
            db.execute("UPDATE views SET taken = ? WHERE id = ?", (taken, number))
        return len(found)

    def waiting(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that are to be tried, soonest first."""
        return self._list(view, f"dead = 0 ORDER BY next_at, token LIMIT {int(limit)}")

    def dead(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that were given up, newest first."""
        return self._list(view, f"dead = 1 ORDER BY token DESC LIMIT {int(limit)}")

    def counts(self, view: str) -> tuple[int, int]:
        """Return how many messages wait, taken or not, and how many were given up."""
        with self._file.read() as db:
            number, taken = _view(db, view)
            [untaken] = db.execute(
                "SELECT count(*) FROM changes WHERE view = ? AND token > ? AND row IS NOT NULL",
                (number, taken),
            ).fetchone()
            all_of_it, dead = db.execute(
                "SELECT count(*), coalesce(sum(dead), 0) FROM deliveries WHERE view = ?", (number,)
            ).fetchone()
        return untaken + all_of_it - dead, dead

    def delivered(self, view: str, tokens: Sequence[int]) -> None:
        """Forget deliveries that arrived."""
        with self._file.write() as db:
            number, _ = _view(db, view)
            db.executemany(
                "DELETE FROM deliveries WHERE view = ? AND token = ?", [(number, token) for token in tokens]
            )

    def failed(self, view: str, token: int, *, error: str, next_at: float | None) -> None:
        """Note that a try failed."""
        with self._file.write() as db:
            number, _ = _view(db, view)
            db.execute(
                "UPDATE deliveries SET tries = tries + 1, error = ?, dead = ?, next_at = ? "
                "WHERE view = ? AND token = ?",
                (error, int(next_at is None), next_at or 0, number, token),
            )

    def redrive(self, view: str) -> int:
        """Try those again that were given up."""
        with self._file.write() as db:
            number, _ = _view(db, view)
            return db.execute(
                "UPDATE deliveries SET dead = 0, tries = 0, next_at = 0 WHERE view = ? AND dead = 1",
                (number,),
            ).rowcount

    def _list(self, view: str, condition: str) -> list[Delivery]:
        with self._file.read() as db:
            number, _ = _view(db, view)
            found = db.execute(
                f"SELECT {_COLUMNS} FROM deliveries WHERE view = ? AND {condition}", (number,)
            ).fetchall()
        return [Delivery._make(row) for row in found]


def _forget_rows(db: sqlite3.Connection, view: int, until: int) -> None:
    """Cut an alert's rows and feed, which would grow with every message ever sent."""
    if until <= 0:
        return
    gone = db.execute("DELETE FROM rows WHERE view = ? AND token <= ?", (view, until)).rowcount
    db.execute("DELETE FROM changes WHERE view = ? AND token <= ?", (view, until))
    db.execute("UPDATE views SET rows = rows - ?, floor = max(floor, ?) WHERE id = ?", (gone, until, view))


def _view(db: sqlite3.Connection, name: str) -> tuple[int, int]:
    found = db.execute("SELECT id, taken FROM views WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise UnknownView(name)
    number, taken = found
    return number, taken
