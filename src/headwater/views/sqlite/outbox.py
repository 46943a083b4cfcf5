"""The outbox of a view store in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from headwater.views.errors import UnknownView
from headwater.views.outbox import AT_ONCE, KEEP_ROWS, Delivery, Outbox, Pacing
from headwater.views.pacing import Entry, Incident, Paced, group_of, pace
from headwater.views.sqlite.file import SqliteFile

__all__ = ["SqliteOutbox"]

_COLUMNS = "token, key, row, tries, next_at, error, held"
_INCIDENT = "name, until, held, token, key, row"


class SqliteOutbox(Outbox):
    """Deliveries in the file of the views."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def take(self, view: str, limit: int = 1000, *, pacing: Pacing = AT_ONCE, now: float = 0.0) -> int:
        """Turn the next entries of an alert's feed, and groups whose quiet time is over, into deliveries."""
        with self._file.write() as db:
            number, taken = _view(db, view)
            found = db.execute(
                "SELECT token, key, row FROM changes WHERE view = ? AND token > ? ORDER BY token LIMIT ?",
                (number, taken, limit),
            ).fetchall()
            over = db.execute(
                f"SELECT {_INCIDENT} FROM incidents WHERE view = ? AND until <= ? ORDER BY until LIMIT ?",
                (number, pacing.due(now), limit),
            ).fetchall()
            if not found and not over:
                return 0
            entries = [Entry._make(change) for change in found if change[2] is not None]
            known = {name: Incident._make(rest) for name, *rest in over}
            if pacing.throttle is not None:
                known |= _incidents(db, number, {group_of(pacing, entry.row) for entry in entries})
            _put(db, number, pace(pacing, now, known, entries))
            if found:
                taken = found[-1][0]
                _forget_rows(db, number, taken - KEEP_ROWS)
                db.execute("UPDATE views SET taken = ? WHERE id = ?", (taken, number))
        return len(found) + len(over)

    def quiet_until(self, view: str) -> float | None:
        """Return when the next quiet time of a group ends, if there is one."""
        with self._file.read() as db:
            number, _ = _view(db, view)
            [until] = db.execute("SELECT min(until) FROM incidents WHERE view = ?", (number,)).fetchone()
        return None if until is None else float(until)

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
            [held] = db.execute(
                "SELECT count(*) FROM incidents WHERE view = ? AND held > 0", (number,)
            ).fetchone()
        return untaken + all_of_it - dead + held, dead

    def delivered(self, view: str, tokens: Sequence[int]) -> None:
        """Forget deliveries that arrived."""
        with self._file.write() as db:
            number, _ = _view(db, view)
            db.executemany(
                "DELETE FROM deliveries WHERE view = ? AND token = ?", [(number, token) for token in tokens]
            )

    def failed(self, view: str, tokens: Sequence[int], *, error: str, next_at: float | None) -> None:
        """Note that a try failed."""
        with self._file.write() as db:
            number, _ = _view(db, view)
            db.executemany(
                "UPDATE deliveries SET tries = tries + 1, error = ?, dead = ?, next_at = ? "
                "WHERE view = ? AND token = ?",
                [(error, int(next_at is None), next_at or 0, number, token) for token in tokens],
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


def _incidents(db: sqlite3.Connection, view: int, groups: Iterable[str]) -> dict[str, Incident]:
    found: dict[str, Incident] = {}
    for group in groups:
        row = db.execute(
            f"SELECT {_INCIDENT} FROM incidents WHERE view = ? AND name = ?", (view, group)
        ).fetchone()
        if row is not None:
            found[group] = Incident._make(row[1:])
    return found


def _put(db: sqlite3.Connection, view: int, paced: Paced) -> None:
    db.executemany(
        f"INSERT INTO deliveries (view, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(view, *delivery) for delivery in paced.deliveries],
    )
    db.executemany(
        f"INSERT OR REPLACE INTO incidents (view, {_INCIDENT}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(view, name, *incident) for name, incident in paced.incidents.items() if incident is not None],
    )
    db.executemany(
        "DELETE FROM incidents WHERE view = ? AND name = ?",
        [(view, name) for name, incident in paced.incidents.items() if incident is None],
    )


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
