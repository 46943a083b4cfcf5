"""The changes of a view, taken out of the pieces that the feed is kept in."""

from __future__ import annotations

__all__ = ["FEED"]

FEED = """
SELECT changes.first + entry.place - 1 AS token, entry.key, entry.row
FROM headwater.changes, unnest(changes.keys, changes.rows) WITH ORDINALITY AS entry (key, row, place)
WHERE changes.view = %s AND changes.last > %s AND changes.first <= %s
AND changes.first + entry.place - 1 BETWEEN %s + 1 AND %s
"""
"""Its parameters are a view, and twice the token behind which and the one up to which changes are asked for.

Tokens have no gaps, so that so many changes are a range of tokens.
"""
