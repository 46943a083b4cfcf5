"""A view store in Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.core.clock import Clock, SystemClock
from headwater.views.errors import TokenGone
from headwater.views.postgres import catalog
from headwater.views.postgres.database import Cursor, Database, stage
from headwater.views.postgres.feed import FEED
from headwater.views.postgres.merge import copy, differences, empty, expire, merge
from headwater.views.postgres.outbox import PostgresOutbox
from headwater.views.postgres.select import select, storable
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

__all__ = ["PostgresStore"]

# Every commit counts in the line of its view: together they differ after any of them, and one statement tells.
_VERSION = """
SELECT hashtextextended(
    (SELECT string_agg(id || ' ' || version, ',' ORDER BY id) FROM headwater.views), 0
) + (SELECT coalesce(sum(version), 0)::bigint FROM headwater.statuses)
"""


class PostgresStore(ViewStore):
    """Views in a database; see `Database` for what becomes of a connection that breaks."""

    def __init__(self, url: str, *, keep_changes: int = KEEP_CHANGES, clock: Clock | None = None) -> None:
        self._keep = keep_changes
        self._clock = clock or SystemClock()
        self._database = Database(url)
        self.identity = self._database.identity
        self.outbox = PostgresOutbox(self._database)
        self._numbers: dict[str, int] = {}

    def define(self, view: ViewDefinition) -> None:
        """Make a view where there is none, or give it what is asked for."""
        self._database.write(lambda cursor: catalog.define(cursor, view, self._clock.wall_ms()))

    def definitions(self) -> list[ViewDefinition]:
        """Return every view, by name."""
        return self._database.read(catalog.definitions)

    def epoch(self, query: str) -> int:
        """Return the last epoch that a query committed, or -1."""
        return self._database.read(lambda cursor: _epoch(cursor, query))

    def commit(self, query: str, epoch: int, view: str, changes: Iterable[Change]) -> bool:
        """Apply an epoch in one transaction; false where it was committed before."""
        given = sorted(dict(changes).items())

        def work(cursor: Cursor) -> bool:
            stage(cursor)
            copy(cursor, given)
            found = catalog.find(cursor, view, lock=True)
            if epoch <= _epoch(cursor, query):
                return False
            now = self._now(found)
            merge(cursor, found, now=now, keep=self._keep)
            if found.ttl is not None:
                expire(cursor, catalog.find(cursor, view), now=now, keep=self._keep)
            _put_epoch(cursor, query, epoch)
            return True

        return self._database.write(work)

    def reset(self, query: str, view: str) -> None:
        """Let a query start over."""

        def work(cursor: Cursor) -> None:
            stage(cursor)
            found = catalog.find(cursor, view, lock=True)
            empty(cursor, found, now=self._now(found), keep=self._keep)
            cursor.execute("DELETE FROM headwater.epochs WHERE query = %s", (query,))

        self._database.write(work)

    def expire(self) -> int:
        """Delete the rows whose time has run out."""
        now = self._clock.wall_ms()
        timed = self._database.fetch("SELECT id, name, ttl FROM headwater.views WHERE ttl IS NOT NULL", ())
        gone = 0
        for number, name, ttl in timed:
            due = f"SELECT 1 FROM headwater.rows_{number} WHERE written <= %s LIMIT 1"
            if self._database.fetch(due, (now - ttl,)):
                gone += self._database.write(self._expiring(name))
        return gone

    def _expiring(self, view: str) -> Callable[[Cursor], int]:
        def work(cursor: Cursor) -> int:
            stage(cursor)
            found = catalog.find(cursor, view, lock=True)
            return expire(cursor, found, now=self._now(found), keep=self._keep)

        return work

    def shadow(self, view: str, query: str) -> str:
        """Make an empty shadow of a view."""

        def work(cursor: Cursor) -> str:
            key = catalog.find(cursor, view).definition.key
            _discard(cursor, view, query)
            catalog.define(cursor, ViewDefinition(shadow_of(view), key), self._clock.wall_ms())
            return shadow_of(view)

        return self._database.write(work)

    def swap(self, view: str, *, query: str, shadow_query: str) -> int:
        """Let a shadow's rows take the place of the view's."""

        def work(cursor: Cursor) -> int:
            stage(cursor)
            live = catalog.find(cursor, view, lock=True)
            shadow = catalog.find(cursor, shadow_of(view), lock=True)
            changed = differences(cursor, live, shadow, now=self._now(live), keep=self._keep)
            epoch = _epoch(cursor, shadow_query)
            _discard(cursor, view, shadow_query)
            _put_epoch(cursor, query, epoch)
            return changed

        return self._database.write(work)

    def discard(self, view: str, shadow_query: str) -> None:
        """Forget the shadow of a view."""
        self._database.write(lambda cursor: _discard(cursor, view, shadow_query))

    def has_shadow(self, view: str) -> bool:
        """Tell whether there is a shadow of a view."""
        return bool(self._database.fetch("SELECT 1 FROM headwater.views WHERE name = %s", (shadow_of(view),)))

    def history(self, view: str, key: str, limit: int = 100) -> list[Version]:
        """Return what a row is and was, newest first."""

        def work(cursor: Cursor) -> list[Version]:
            found = catalog.find(cursor, view)
            begins = history_begins(found.definition, found.history_since, self._clock.wall_ms())
            cursor.execute(
                f"SELECT at AS since, NULL AS until, row::text, token FROM {found.table}"
                " WHERE key = %(key)s UNION ALL"
                " SELECT since, until, row::text, token FROM headwater.history"
                " WHERE view = %(view)s AND key = %(key)s AND until > %(begins)s"
                " ORDER BY token DESC LIMIT %(limit)s",
                {"view": found.number, "key": storable(key), "begins": begins, "limit": limit},
            )
            return [Version(since, until, row) for since, until, row, _ in cursor.fetchall()]

        return self._database.read(work)

    def read(self, view: str, query: Query = Query()) -> Snapshot:  # noqa: B008  # it is frozen
        """Return rows, and the token that belongs to them."""

        def work(cursor: Cursor) -> Snapshot:
            found = catalog.find(cursor, view)
            if query.at is not None:
                now = self._clock.wall_ms()
                history_begins(found.definition, found.history_since, now, asked=query.at)
            cursor.execute(*select(found.number, query))
            return Snapshot([StoredRow._make(row) for row in cursor.fetchall()], found.token)

        return self._database.read(work)

    def row(self, view: str, key: str) -> StoredRow | None:
        """Return a row, if there is one."""
        number = self._numbers.get(view)
        if number is None:
            number = self._database.read(lambda cursor: catalog.find(cursor, view)).number
            if not view.startswith(SHADOW):  # any other keeps its number for ever
                self._numbers[view] = number
        found = self._database.fetch(
            f"SELECT key, row::text, token FROM headwater.rows_{number} WHERE key = %s", (storable(key),)
        )
        return StoredRow._make(found[0]) if found else None

    def count(self, view: str) -> int:
        """Return how many rows a view has."""
        return self._database.read(lambda cursor: catalog.find(cursor, view)).rows

    def token(self, view: str) -> int:
        """Return the token of a view's last change; 0 before the first."""
        return self._database.read(lambda cursor: catalog.find(cursor, view)).token

    def tokens(self) -> dict[str, int]:
        """Return the token of every view's last change."""
        found = self._database.fetch("SELECT name, token FROM headwater.views ORDER BY name", ())
        return {name: token for name, token in found if not name.startswith(SHADOW)}

    def changes(self, view: str, since: int, limit: int = 1000) -> list[StoredChange]:
        """Return the changes behind a token, or raise `TokenGone`."""

        def work(cursor: Cursor) -> list[StoredChange]:
            known = catalog.find(cursor, view)
            if not known.floor <= since <= known.token:
                raise TokenGone(view, since)
            until = since + limit
            cursor.execute(f"{FEED} ORDER BY token", (known.number, since, until, since, until))
            return [StoredChange._make(change) for change in cursor.fetchall()]

        return self._database.read(work)

    def version(self) -> int:
        """Return a number that differs after any process committed."""
        return int(self._database.fetch(_VERSION, ())[0][0] or 0)

    def put_status(self, name: str, status: str) -> None:
        """Keep what a pipeline says of itself, as JSON."""

        def work(cursor: Cursor) -> None:
            cursor.execute(
                "INSERT INTO headwater.statuses (name, status) VALUES (%s, %s) ON CONFLICT (name)"
                " DO UPDATE SET status = excluded.status, version = statuses.version + 1",
                (name, status),
            )

        self._database.write(work)

    def statuses(self) -> dict[str, str]:
        """Return what pipelines last said, by name."""
        return dict(self._database.fetch("SELECT name, status FROM headwater.statuses ORDER BY name", ()))

    def close(self) -> None:
        """Hang up."""
        self._database.close()

    def _now(self, view: catalog.View) -> int:
        """Return the time of a commit, which is not before that of the last one whatever the clock says."""
        return max(self._clock.wall_ms(), view.at)


def _epoch(cursor: Cursor, query: str) -> int:
    cursor.execute("SELECT epoch FROM headwater.epochs WHERE query = %s", (query,))
    found = cursor.fetchone()
    return int(found[0]) if found else -1


def _put_epoch(cursor: Cursor, query: str, epoch: int) -> None:
    cursor.execute(
        "INSERT INTO headwater.epochs VALUES (%s, %s) ON CONFLICT (query) DO UPDATE SET epoch = excluded.epoch",
        (query, epoch),
    )


def _discard(cursor: Cursor, view: str, query: str) -> None:
    catalog.forget(cursor, shadow_of(view))
    cursor.execute("DELETE FROM headwater.epochs WHERE query = %s", (query,))
