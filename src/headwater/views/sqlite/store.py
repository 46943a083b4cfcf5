"""A view store in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from headwater.core.clock import Clock, SystemClock
from headwater.views.errors import TokenGone
from headwater.views.sqlite import catalog
from headwater.views.sqlite.file import SqliteFile
from headwater.views.sqlite.merge import differences, expire, merge
from headwater.views.sqlite.outbox import SqliteOutbox
from headwater.views.sqlite.select import select
from headwater.views.store import (
    KEEP_CHANGES,
    SHADOW,
    Change,
    Query,
    Snapshot,
    StoredChange,
    StoredRow,
    Version,
    ViewDefinition,
    ViewStore,
    shadow_of,
)
from headwater.views.times import history_begins

__all__ = ["SqliteStore"]

_ROW = "SELECT key, row, token FROM rows WHERE view = (SELECT id FROM views WHERE name = ?) AND key = ?"


class SqliteStore(ViewStore):
    """Views in a file; see `SqliteFile` for what is safe to do at once."""

    def __init__(self, path: str, *, keep_changes: int = KEEP_CHANGES, clock: Clock | None = None) -> None:
        self._file = SqliteFile(path)
        self._keep = keep_changes
        self._clock = clock or SystemClock()
        self.identity = self._file.identity
        self.outbox = SqliteOutbox(self._file)

    def define(self, view: ViewDefinition) -> None:
        """Make a view where there is none, or give it what is asked for."""
        with self._file.write() as db:
            catalog.define(db, view, self._clock.wall_ms())

    def definitions(self) -> list[ViewDefinition]:
        """Return every view, by name."""
        with self._file.read() as db:
            return catalog.definitions(db)

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
            found = catalog.find(db, view)
            now = self._now(found)
            merge(db, found, given, now=now, keep=self._keep)
            if found.ttl is not None:
                expire(db, catalog.find(db, view), now=now, keep=self._keep)
            db.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?)", (query, epoch))
        return True

    def reset(self, query: str, view: str) -> None:
        """Let a query start over."""
        with self._file.write() as db:
            found = catalog.find(db, view)
            keys = db.execute("SELECT key FROM rows WHERE view = ? ORDER BY key", (found.number,)).fetchall()
            changes = [(key, None) for (key,) in keys]
            merge(db, found, changes, now=self._now(found), keep=self._keep)
            db.execute("DELETE FROM epochs WHERE query = ?", (query,))

    def expire(self) -> int:
        """Delete the rows whose time has run out."""
        now = self._clock.wall_ms()
        with self._file.read() as db:  # the write lock is taken only for those that have such rows
            timed = db.execute("SELECT id, name, ttl FROM views WHERE ttl IS NOT NULL").fetchall()
            due = [
                name
                for number, name, ttl in timed
                if db.execute(
                    f"SELECT 1 FROM rows WHERE view = {number} AND written <= ? LIMIT 1", (now - ttl,)
                ).fetchone()
            ]
        gone = 0
        for name in due:
            with self._file.write() as db:
                view = catalog.find(db, name)
                gone += expire(db, view, now=self._now(view), keep=self._keep)
        return gone

    def shadow(self, view: str, query: str) -> str:
        """Make an empty shadow of a view."""
        with self._file.write() as db:
            key = catalog.find(db, view).definition.key
            self._discard(db, view, query)
            catalog.define(db, ViewDefinition(shadow_of(view), key), self._clock.wall_ms())
        return shadow_of(view)

    def swap(self, view: str, *, query: str, shadow_query: str) -> int:
        """Let a shadow's rows take the place of the view's."""
        with self._file.write() as db:
            live, shadow = catalog.find(db, view), catalog.find(db, shadow_of(view))
            changed = differences(db, live, shadow, now=self._now(live), keep=self._keep)
            epoch = _epoch(db, shadow_query)
            self._discard(db, view, shadow_query)
            db.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?)", (query, epoch))
        return changed

    def discard(self, view: str, shadow_query: str) -> None:
        """Forget the shadow of a view."""
        with self._file.write() as db:
            self._discard(db, view, shadow_query)

    def has_shadow(self, view: str) -> bool:
        """Tell whether there is a shadow of a view."""
        with self._file.read() as db:
            found = db.execute("SELECT 1 FROM views WHERE name = ?", (shadow_of(view),)).fetchone()
        return found is not None

    def history(self, view: str, key: str, limit: int = 100) -> list[Version]:
        """Return what a row is and was, newest first."""
        with self._file.read() as db:
            found = catalog.find(db, view)
            begins = history_begins(found.definition, found.history_since, self._clock.wall_ms())
            rows = db.execute(
                "SELECT at, NULL, row, token FROM rows WHERE view = ?1 AND key = ?2 UNION ALL"
                " SELECT since, until, row, token FROM history WHERE view = ?1 AND key = ?2 AND until > ?3"
                " ORDER BY 4 DESC LIMIT ?4",
                (found.number, key, begins, limit),
            ).fetchall()
        return [Version(since, until, row) for since, until, row, _ in rows]

    def read(self, view: str, query: Query = Query()) -> Snapshot:  # noqa: B008  # it is frozen
        """Return rows, and the token that belongs to them."""
        with self._file.read() as db:
            found = catalog.find(db, view)
            definition = found.definition
            if query.at is not None:
                history_begins(definition, found.history_since, self._clock.wall_ms(), asked=query.at)
            rows = db.execute(*select(found.number, query, definition.indexes)).fetchall()
        return Snapshot([StoredRow._make(row) for row in rows], found.token)

    def row(self, view: str, key: str) -> StoredRow | None:
        """Return a row, if there is one."""
        found = self._file.fetch(_ROW, (view, key))
        if not found:
            self.token(view)  # which refuses a view that nobody has defined
        return StoredRow._make(found[0]) if found else None

    def count(self, view: str) -> int:
        """Return how many rows a view has."""
        with self._file.read() as db:
            return catalog.find(db, view).rows

    def token(self, view: str) -> int:
        """Return the token of a view's last change; 0 before the first."""
        with self._file.read() as db:
            return catalog.find(db, view).token

    def tokens(self) -> dict[str, int]:
        """Return the token of every view's last change."""
        with self._file.read() as db:
            found = db.execute("SELECT name, token FROM views ORDER BY name").fetchall()
        return {name: token for name, token in found if not name.startswith(SHADOW)}

    def changes(self, view: str, since: int, limit: int = 1000) -> list[StoredChange]:
        """Return the changes behind a token, or raise `TokenGone`."""
        with self._file.read() as db:
            known = catalog.find(db, view)
            if not known.floor <= since <= known.token:
                raise TokenGone(view, since)
            found = db.execute(
                "SELECT token, key, row FROM changes WHERE view = ? AND token > ? ORDER BY token LIMIT ?",
                (known.number, since, limit),
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

    def _now(self, view: catalog.View) -> int:
        """Return the time of a commit, which is not before that of the last one whatever the clock says."""
        return max(self._clock.wall_ms(), view.at)

    def _discard(self, db: sqlite3.Connection, view: str, query: str) -> None:
        catalog.forget(db, shadow_of(view))
        db.execute("DELETE FROM epochs WHERE query = ?", (query,))


def _epoch(db: sqlite3.Connection, query: str) -> int:
    found = db.execute("SELECT epoch FROM epochs WHERE query = ?", (query,)).fetchone()
    return found[0] if found else -1
