"""A view store in SQLite.

A commit works in sets rather than row by row. The given changes go to a temporary table sorted by key,
so that the tree of rows is walked in order; one join with the stored rows keeps those that really
change and numbers them; from there they go to the feed and to the rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from headwater.views.errors import TokenGone, UnknownView, ViewError
from headwater.views.outbox import ALERT
from headwater.views.sqlite.file import SqliteFile
from headwater.views.sqlite.outbox import SqliteOutbox
from headwater.views.sqlite.select import select
from headwater.views.store import (
    KEEP_CHANGES,
    Change,
    Query,
    Snapshot,
    StoredChange,
    StoredRow,
    ViewDefinition,
    ViewStore,
)

__all__ = ["SqliteStore"]

_DELTA = """
INSERT INTO delta (key, row, existed)
SELECT incoming.key, incoming.row, rows.row IS NOT NULL
FROM incoming LEFT JOIN rows ON rows.view = ? AND rows.key = incoming.key
WHERE incoming.row IS NOT rows.row
"""
_FEED = "INSERT INTO changes SELECT ?, ? + n, key, row FROM delta"
_UPSERT = """
INSERT INTO rows SELECT ?, key, row, ? + n FROM delta WHERE row IS NOT NULL
ON CONFLICT (view, key) DO UPDATE SET row = excluded.row, token = excluded.token
"""
_DELETE = "DELETE FROM rows WHERE view = ? AND key IN (SELECT key FROM delta WHERE row IS NULL)"
_TALLY = """
SELECT count(*), coalesce(sum(row IS NOT NULL AND NOT existed), 0), coalesce(sum(row IS NULL), 0) FROM delta
"""


class SqliteStore(ViewStore):
    """Views in a file; see `SqliteFile` for what is safe to do at once."""

    def __init__(self, path: str, *, keep_changes: int = KEEP_CHANGES) -> None:
        self._file = SqliteFile(path)
        self._keep = keep_changes
        self.identity = self._file.identity
        self.outbox = SqliteOutbox(self._file)

    def define(self, view: ViewDefinition) -> None:
        """Make a view where there is none."""
        key = json.dumps(view.key)
        with self._file.write() as db:
            found = db.execute("SELECT key, rows FROM views WHERE name = ?", (view.name,)).fetchone()
            if found is None:
                db.execute("INSERT INTO views (name, key) VALUES (?, ?)", (view.name, key))
            elif found[0] != key and found[1]:
                raise ViewError(
                    f"the view {view.name} holds rows by {', '.join(json.loads(found[0]))}, "
                    f"not by {', '.join(view.key)}: give the view another name, or start its query over"
                )
            elif found[0] != key:
                db.execute("UPDATE views SET key = ? WHERE name = ?", (key, view.name))

    def definitions(self) -> list[ViewDefinition]:
        """Return every view, by name."""
        with self._file.read() as db:
            found = db.execute("SELECT name, key FROM views ORDER BY name").fetchall()
        return [ViewDefinition(name, tuple(json.loads(key))) for name, key in found]

    def epoch(self, query: str) -> int:
        """Return the last epoch that a query committed, or -1."""
        with self._file.read() as db:
            return _epoch(db, query)

    def commit(self, query: str, epoch: int, view: str, changes: Iterable[Change]) -> bool:
        """Apply an epoch in one transaction; false where it was committed before."""
        # Whoever computes rows lazily does so before the lock is taken.
        given = sorted(dict(changes).items())
        with self._file.write() as db:
            if epoch <= _epoch(db, query):
                return False
            self._apply(db, view, given)
            db.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?)", (query, epoch))
        return True

    def reset(self, query: str, view: str) -> None:
        """Let a query start over."""
        with self._file.write() as db:
            number, *_ = _view(db, view)
            keys = db.execute("SELECT key FROM rows WHERE view = ?", (number,)).fetchall()
            self._apply(db, view, [(key, None) for (key,) in keys])
            db.execute("DELETE FROM epochs WHERE query = ?", (query,))

    def read(self, view: str, query: Query = Query()) -> Snapshot:  # noqa: B008  # it is frozen
        """Return rows, and the token that belongs to them."""
        with self._file.read() as db:
            number, token, _, _ = _view(db, view)
            rows = db.execute(*select(number, query)).fetchall()
        return Snapshot([StoredRow._make(row) for row in rows], token)

    def row(self, view: str, key: str) -> StoredRow | None:
        """Return a row, if there is one."""
        with self._file.read() as db:
            number, *_ = _view(db, view)
            found = db.execute(
                "SELECT key, row, token FROM rows WHERE view = ? AND key = ?", (number, key)
            ).fetchone()
        return StoredRow._make(found) if found else None

    def count(self, view: str) -> int:
        """Return how many rows a view has."""
        with self._file.read() as db:
            return _view(db, view)[3]

    def token(self, view: str) -> int:
        """Return the token of a view's last change; 0 before the first."""
        with self._file.read() as db:
            return _view(db, view)[1]

    def tokens(self) -> dict[str, int]:
        """Return the token of every view's last change."""
        with self._file.read() as db:
            return dict(db.execute("SELECT name, token FROM views ORDER BY name"))

    def changes(self, view: str, since: int, limit: int = 1000) -> list[StoredChange]:
        """Return the changes behind a token, or raise `TokenGone`."""
        with self._file.read() as db:
            number, token, floor, _ = _view(db, view)
            if not floor <= since <= token:
                raise TokenGone(view, since)
            found = db.execute(
                "SELECT token, key, row FROM changes WHERE view = ? AND token > ? ORDER BY token LIMIT ?",
                (number, since, limit),
            ).fetchall()
        return [StoredChange._make(change) for change in found]

    def version(self) -> int:
        """Return a number that differs after any process committed."""
        return self._file.version()

    def put_status(self, name: str, status: str) -> None:
        """Keep what a pipeline says of itself, as JSON."""
        with self._file.write() as db:
            db.execute("INSERT OR REPLACE INTO statuses VALUES (?, ?)", (name, status))

    def statuses(self) -> dict[str, str]:
        """Return what pipelines last said, by name."""
        with self._file.read() as db:
            return dict(db.execute("SELECT name, status FROM statuses ORDER BY name"))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _apply(self, db: sqlite3.Connection, view: str, changes: list[tuple[str, str | None]]) -> None:
        number, token, floor, rows = _view(db, view)
        db.execute("DELETE FROM incoming")
        db.execute("DELETE FROM delta")
        db.executemany("INSERT INTO incoming VALUES (?, ?)", changes)
        db.execute(_DELTA, (number,))
        changed, added, deleted = db.execute(_TALLY).fetchone()
        if not changed:
            return
        db.execute(_FEED, (number, token))
        db.execute(_UPSERT, (number, token))
        if deleted:
            db.execute(_DELETE, (number,))
        token += changed
        if not view.startswith(ALERT):  # an alert's feed is cut when it was taken
            floor = max(floor, token - self._keep)
            db.execute("DELETE FROM changes WHERE view = ? AND token <= ?", (number, floor))
        db.execute(
            "UPDATE views SET token = ?, floor = ?, rows = ? WHERE id = ?",
            (token, floor, rows + added - deleted, number),
        )


def _view(db: sqlite3.Connection, name: str) -> tuple[int, int, int, int]:
    """Return a view's number, token, floor and count of rows."""
    found = db.execute("SELECT id, token, floor, rows FROM views WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise UnknownView(name)
    number, token, floor, rows = found
    return number, token, floor, rows


def _epoch(db: sqlite3.Connection, query: str) -> int:
    found = db.execute("SELECT epoch FROM epochs WHERE query = ?", (query,)).fetchone()
    return found[0] if found else -1
