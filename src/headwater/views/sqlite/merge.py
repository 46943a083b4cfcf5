"""The commit of a view in SQLite: changes in sets rather than row by row.

The given changes go to a temporary table sorted by key, so that the tree of rows is walked in order; one join
with the stored rows keeps those that really change and numbers them; from there they go to the history, to
the feed and to the rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from headwater.views.outbox import ALERT
from headwater.views.sqlite.catalog import View
from headwater.views.store import SHADOW

__all__ = ["differences", "expire", "merge"]

_DELTA = """
INSERT INTO delta (key, row, existed)
SELECT incoming.key, incoming.row, rows.row IS NOT NULL
FROM incoming LEFT JOIN rows ON rows.view = ? AND rows.key = incoming.key
WHERE incoming.row IS NOT rows.row
"""
_TALLY = """
SELECT count(*), coalesce(sum(row IS NOT NULL AND NOT existed), 0), coalesce(sum(row IS NULL), 0) FROM delta
"""
_REMEMBER = """
INSERT INTO history (view, key, token, since, until, row)
SELECT view, key, token, at, ?, row FROM rows
WHERE view = ? AND at < ? AND key IN (SELECT key FROM delta WHERE existed)
"""
_FEED = "INSERT INTO changes SELECT ?, ? + n, key, row FROM delta"
_UPSERT = """
INSERT INTO rows SELECT ?1, key, row, ?2 + n, ?3, ?3 FROM delta WHERE row IS NOT NULL
ON CONFLICT (view, key) DO UPDATE SET
row = excluded.row, token = excluded.token, at = excluded.at, written = excluded.written
"""
_DELETE = "DELETE FROM rows WHERE view = ? AND key IN (SELECT key FROM delta WHERE row IS NULL)"
_RENEW = "UPDATE rows SET written = ? WHERE view = ? AND key IN (SELECT key FROM incoming)"
_DIFFERENCES = """
INSERT INTO incoming SELECT key, row FROM (
    SELECT key, row FROM rows WHERE view = ?1
    UNION ALL
    SELECT key, NULL FROM rows AS live WHERE view = ?2
    AND NOT EXISTS (SELECT 1 FROM rows WHERE view = ?1 AND key = live.key)
) ORDER BY key
"""


def merge(
    db: sqlite3.Connection, view: View, changes: Sequence[tuple[str, str | None]], *, now: int, keep: int
) -> int:
    """Apply changes, sorted by key, and return how many rows really changed."""
    db.execute("DELETE FROM incoming")
    db.executemany("INSERT INTO incoming VALUES (?, ?)", changes)
    if view.ttl is not None:
        db.execute(_RENEW, (now, view.number))
    return _merge(db, view, now=now, keep=keep)


def differences(db: sqlite3.Connection, view: View, shadow: View, *, now: int, keep: int) -> int:
    """Make a view's rows those of another, and return how many differed."""
    db.execute("DELETE FROM incoming")
    db.execute(_DIFFERENCES, (shadow.number, view.number))
    if view.ttl is not None:
        db.execute(_RENEW, (now, view.number))
    return _merge(db, view, now=now, keep=keep)


def expire(db: sqlite3.Connection, view: View, *, now: int, keep: int) -> int:
    """Delete the rows of a view whose time has run out."""
    if view.ttl is None:
        return 0
    db.execute("DELETE FROM incoming")
    db.execute(
        f"INSERT INTO incoming SELECT key, NULL FROM rows WHERE view = {view.number} AND written <= ?"
        " ORDER BY key",
        (now - view.ttl,),
    )
    return _merge(db, view, now=now, keep=keep)


def _merge(db: sqlite3.Connection, view: View, *, now: int, keep: int) -> int:
    number, token = view.number, view.token
    db.execute("DELETE FROM delta")
    db.execute(_DELTA, (number,))
    changed, added, deleted = db.execute(_TALLY).fetchone()
    if not changed:
        return 0
    if view.history is not None:
        db.execute(_REMEMBER, (now, number, now))
        db.execute("DELETE FROM history WHERE view = ? AND until <= ?", (number, now - view.history))
    followed = not view.name.startswith(SHADOW)
    if followed:
        db.execute(_FEED, (number, token))
    db.execute(_UPSERT, (number, token, now))
    if deleted:
        db.execute(_DELETE, (number,))
    token, floor = token + changed, view.floor
    if not view.name.startswith(ALERT):  # an alert's feed is cut when it was taken
        floor = max(floor, token - keep) if followed else token
        if floor > view.floor and followed:
            db.execute("DELETE FROM changes WHERE view = ? AND token <= ?", (number, floor))
    db.execute(
        "UPDATE views SET token = ?, floor = ?, rows = ?, at = ? WHERE id = ?",
        (token, floor, view.rows + added - deleted, now, number),
    )
    return int(changed)
