"""The commit of a view in Postgres: COPY into a temporary table, then one merging transaction.

Whoever commits holds the lock on the view's own line in `views`, so commits of a view happen one after the
other, and tokens grow in the order of commits; commits of different views do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.views.outbox import ALERT
from headwater.views.postgres.catalog import View
from headwater.views.postgres.database import Cursor
from headwater.views.postgres.staging import copy_text
from headwater.views.store import SHADOW

__all__ = ["copy", "differences", "empty", "expire", "merge"]

_PIECE = 500
"""How many changes are together in the feed."""

_DELTA = """
INSERT INTO delta (n, key, row, existed)
SELECT row_number() OVER (ORDER BY incoming.key), incoming.key, incoming.row, live.key IS NOT NULL
FROM incoming LEFT JOIN {table} AS live ON live.key = incoming.key
WHERE incoming.row::text IS DISTINCT FROM live.row::text
"""
_TALLY = """
SELECT count(*), count(*) FILTER (WHERE row IS NOT NULL AND NOT existed), count(*) FILTER (WHERE row IS NULL)
FROM delta
"""
_REMEMBER = """
INSERT INTO headwater.history (view, key, token, since, until, row)
SELECT %(view)s, live.key, live.token, live.at, %(now)s, live.row
FROM delta JOIN {table} AS live ON live.key = delta.key WHERE delta.existed AND live.at < %(now)s
"""
_FEED = f"""
INSERT INTO headwater.changes (view, first, last, keys, rows)
SELECT %(view)s, %(token)s + min(n), %(token)s + max(n), array_agg(key ORDER BY n), array_agg(row::text ORDER BY n)
FROM delta GROUP BY (n - 1) / {_PIECE} ORDER BY 3
"""
_INSERT = """
INSERT INTO {table} (key, row, token, at, written)
SELECT key, row, %(token)s + n, %(now)s, %(now)s FROM delta WHERE row IS NOT NULL AND NOT existed ORDER BY n
"""
_UPDATE = """
UPDATE {table} AS live SET row = delta.row, token = %(token)s + delta.n, at = %(now)s, written = %(now)s
FROM delta WHERE live.key = delta.key AND delta.row IS NOT NULL AND delta.existed
"""
_DELETE = "DELETE FROM {table} AS live USING delta WHERE live.key = delta.key AND delta.row IS NULL"
_RENEW = """
UPDATE {table} AS live SET written = %(now)s FROM incoming
WHERE live.key = incoming.key AND live.row::text = incoming.row::text
"""
_DIFFERENCES = """
INSERT INTO incoming SELECT key, row FROM {shadow} UNION ALL
SELECT key, NULL FROM {table} AS live WHERE NOT EXISTS (SELECT FROM {shadow} AS built WHERE built.key = live.key)
"""
_EXPIRED = "INSERT INTO incoming SELECT key, NULL FROM {table} WHERE written <= %s"
_ALL = "INSERT INTO incoming SELECT key, NULL FROM {table}"


def copy(cursor: Cursor, changes: Sequence[tuple[str, str | None]]) -> None:
    """Bring changes, one for each key, to the server."""
    if changes:
        with cursor.copy("COPY incoming (key, row) FROM STDIN") as staging:
            staging.write(copy_text(changes))


def merge(cursor: Cursor, view: View, *, now: int, keep: int) -> int:
    """Apply what was copied, and return how many rows really changed."""
    if view.ttl is not None:
        cursor.execute(_RENEW.format(table=view.table), {"now": now})
    return _merge(cursor, view, now=now, keep=keep)


def differences(cursor: Cursor, view: View, shadow: View, *, now: int, keep: int) -> int:
    """Make a view's rows those of another, and return how many differed."""
    cursor.execute(_DIFFERENCES.format(table=view.table, shadow=shadow.table))
    return merge(cursor, view, now=now, keep=keep)


def expire(cursor: Cursor, view: View, *, now: int, keep: int) -> int:
    """Delete the rows of a view whose time has run out."""
    if view.ttl is None:
        return 0
    cursor.execute("TRUNCATE incoming, delta")
    cursor.execute(_EXPIRED.format(table=view.table), (now - view.ttl,))
    return _merge(cursor, view, now=now, keep=keep) if cursor.rowcount else 0


def empty(cursor: Cursor, view: View, *, now: int, keep: int) -> int:
    """Delete all rows of a view."""
    cursor.execute(_ALL.format(table=view.table))
    return _merge(cursor, view, now=now, keep=keep)


def _merge(cursor: Cursor, view: View, *, now: int, keep: int) -> int:
    given = {"view": view.number, "token": view.token, "now": now}
    cursor.execute(_DELTA.format(table=view.table), given)
    cursor.execute(_TALLY)
    changed, added, deleted = cursor.fetchone()
    if not changed:
        cursor.execute("UPDATE headwater.views SET version = version + 1 WHERE id = %(view)s", given)
        return 0
    if view.history is not None:
        cursor.execute(_REMEMBER.format(table=view.table), given)
        cursor.execute(
            "DELETE FROM headwater.history WHERE view = %s AND until <= %s",
            (view.number, now - view.history),
        )
    followed = not view.name.startswith(SHADOW)
    if followed:
        cursor.execute(_FEED, given)
    if changed > added + deleted:
        cursor.execute(_UPDATE.format(table=view.table), given)
    if added:
        cursor.execute(_INSERT.format(table=view.table), given)
    if deleted:
        cursor.execute(_DELETE.format(table=view.table), given)
    token, floor = view.token + changed, view.floor
    if not view.name.startswith(ALERT):  # an alert's feed is cut when it was taken
        floor = max(floor, token - keep) if followed else token
        if followed and floor > view.floor:
            cursor.execute(
                "DELETE FROM headwater.changes WHERE view = %s AND last <= %s", (view.number, floor)
            )
    cursor.execute(
        "UPDATE headwater.views SET token = %s, floor = %s, rows = %s, at = %s, version = version + 1"
        " WHERE id = %s",
        (token, floor, view.rows + added - deleted, now, view.number),
    )
    return int(changed)
