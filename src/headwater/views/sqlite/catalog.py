"""The views of a SQLite file: what is known of each, and the indexes that it asks for.

All views share one table of rows. An index of one view is partial, so that the others do not pay for it; SQLite
takes it only for a query that has the same number of the view and the same path in its text.
"""

from __future__ import annotations

import json
import sqlite3

from headwater.views.errors import UnknownView, ViewError
from headwater.views.known import COLUMNS, View
from headwater.views.sqlite.select import literal_path
from headwater.views.store import SHADOW, ViewDefinition

__all__ = ["View", "define", "definitions", "find", "forget"]


def find(db: sqlite3.Connection, name: str) -> View:
    """Return a view, or raise `UnknownView`."""
    found = db.execute(f"SELECT {COLUMNS} FROM views WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise UnknownView(name)
    return View(*found)


def definitions(db: sqlite3.Connection) -> list[ViewDefinition]:
    """Return every view but shadows, by name."""
    found = db.execute(f"SELECT {COLUMNS} FROM views ORDER BY name").fetchall()
    return [View(*view).definition for view in found if not view[1].startswith(SHADOW)]


def define(db: sqlite3.Connection, view: ViewDefinition, now: int) -> None:
    """Make a view, or give it what is asked for."""
    key, indexes = json.dumps(view.key), json.dumps(view.indexes)
    db.execute("INSERT OR IGNORE INTO views (name, key) VALUES (?, ?)", (view.name, key))
    known = find(db, view.name)
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
        db.execute("DELETE FROM history WHERE view = ?", (known.number,))
    db.execute(
        "UPDATE views SET key = ?, ttl = ?, indexes = ?, history = ?, history_since = ? WHERE id = ?",
        (key, view.ttl_ms, indexes, view.history_ms, since, known.number),
    )
    _index(db, known.number, view)


def forget(db: sqlite3.Connection, name: str) -> None:
    """Remove a view with all that belongs to it, if there is one."""
    found = db.execute("SELECT id FROM views WHERE name = ?", (name,)).fetchone()
    if found is None:
        return
    _index(db, found[0], ViewDefinition(name, ()))
    for table in ("rows", "changes", "history", "deliveries", "incidents"):
        db.execute(f"DELETE FROM {table} WHERE view = ?", found)
    db.execute("DELETE FROM views WHERE id = ?", found)


def _index(db: sqlite3.Connection, number: int, view: ViewDefinition) -> None:
    wanted = {
        f"field {number} {column}": f"json_extract(row, {literal_path(column)}), key"
        for column in view.indexes
    }
    if view.ttl_ms is not None:
        wanted[f"written {number} "] = "written"
    found = {
        name
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND (name GLOB ? OR name GLOB ?)",
            (f"field {number} *", f"written {number} *"),
        )
    }
    for name in found - wanted.keys():
        db.execute(f'DROP INDEX "{name}"')
    for name in wanted.keys() - found:
        db.execute(f'CREATE INDEX "{name}" ON rows ({wanted[name]}) WHERE view = {number}')
