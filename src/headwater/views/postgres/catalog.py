"""The views of a Postgres database: what is known of each, and the table and the indexes that it has.

The rows of each view are a table of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headwater.views import known as common
from headwater.views.errors import UnknownView, ViewError
from headwater.views.postgres.database import Cursor
from headwater.views.postgres.select import index_expressions
from headwater.views.store import SHADOW, ViewDefinition

__all__ = ["View", "define", "definitions", "find", "forget"]

_COLUMNS = f"{common.COLUMNS}, taken"


@dataclass(frozen=True, slots=True)
class View(common.View):
    """A view as Postgres knows it: its rows have a table of their own, and its feed is taken from an outbox."""

    taken: int

    @property
    def table(self) -> str:
        """Return the name of the table that holds its rows."""
        return f"headwater.rows_{self.number}"


def find(cursor: Cursor, name: str, *, lock: bool = False) -> View:
    """Return a view, or raise `UnknownView`; with `lock`, nobody else changes it until the transaction ends."""
    cursor.execute(
        f"SELECT {_COLUMNS} FROM headwater.views WHERE name = %s{' FOR UPDATE' if lock else ''}", (name,)
    )
    found = cursor.fetchone()
    if found is None:
        raise UnknownView(name)
    return View(*found)


def definitions(cursor: Cursor) -> list[ViewDefinition]:
    """Return every view but shadows, by name."""
    cursor.execute(f"SELECT {_COLUMNS} FROM headwater.views ORDER BY name")
    return [View(*view).definition for view in cursor.fetchall() if not view[1].startswith(SHADOW)]


def define(cursor: Cursor, view: ViewDefinition, now: int) -> None:
    """Make a view, or give it what is asked for."""
    key, indexes = json.dumps(view.key), json.dumps(view.indexes)
    cursor.execute(
        "INSERT INTO headwater.views (name, key) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
        (view.name, key),
    )
    made = cursor.rowcount == 1
    known = find(cursor, view.name, lock=True)
    if made:
        cursor.execute(
            f'CREATE TABLE {known.table} (key text PRIMARY KEY COLLATE "C", row json NOT NULL, token bigint NOT NULL,'
            " at bigint NOT NULL, written bigint NOT NULL) WITH (fillfactor = 50)"
        )
    if known.definition == view:
        return
    if known.key != key and known.rows:
        raise ViewError(
            f"the view {view.name} holds rows by {', '.join(json.loads(known.key))}, "
            f"not by {', '.join(view.key)}: give the view another name, or start its query over with --reset"
        )
    since = None
    if view.history_ms is not None:
        since = now if known.history_since is None else known.history_since
    else:
        cursor.execute("DELETE FROM headwater.history WHERE view = %s", (known.number,))
    cursor.execute(
        "UPDATE headwater.views SET key = %s, ttl = %s, indexes = %s, history = %s, history_since = %s,"
        " version = version + 1 WHERE id = %s",
        (key, view.ttl_ms, indexes, view.history_ms, since, known.number),
    )
    _index(cursor, known, view)


def forget(cursor: Cursor, name: str) -> None:
    """Remove a view with all that belongs to it, if there is one."""
    try:
        known = find(cursor, name, lock=True)
    except UnknownView:
        return
    cursor.execute(f"DROP TABLE {known.table}")
    for table in ("changes", "history", "deliveries", "incidents"):
        cursor.execute(f"DELETE FROM headwater.{table} WHERE view = %s", (known.number,))
    cursor.execute("DELETE FROM headwater.views WHERE id = %s", (known.number,))


def _index(cursor: Cursor, known: View, view: ViewDefinition) -> None:
    """Make the indexes that are wanted, and drop the others; the position of a column is in the name."""
    number, before = known.number, known.definition
    for place, column in enumerate(before.indexes):
        if place >= len(view.indexes) or view.indexes[place] != column:
            cursor.execute(f"DROP INDEX IF EXISTS headwater.rows_{number}_field_{place}")
    for place, column in enumerate(view.indexes):
        if place >= len(before.indexes) or before.indexes[place] != column:
            # The driver puts parameters in place, also in statements where the server takes none.
            expressions, names = index_expressions(column)
            cursor.execute(
                f"CREATE INDEX rows_{number}_field_{place} ON {known.table} ({expressions}, key)", names
            )
    if view.ttl_ms is None:
        cursor.execute(f"DROP INDEX IF EXISTS headwater.rows_{number}_written")
    else:
        cursor.execute(f"CREATE INDEX IF NOT EXISTS rows_{number}_written ON {known.table} (written)")
