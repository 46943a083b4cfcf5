"""Moments of a view's history."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater.views.errors import HistoryGone
from headwater.views.store import ViewDefinition

__all__ = ["history_begins", "iso"]


def history_begins(view: ViewDefinition, since: int | None, now: int, *, asked: int | None = None) -> int:
    """Return how far a view's history goes back, or raise `HistoryGone` where `asked` is before that.

    `since` is when it began to be kept.
    """
    if view.history_ms is None or since is None:
        raise HistoryGone(view.name, None)
    begins = max(since, now - view.history_ms)
    if asked is not None and asked < begins:
        raise HistoryGone(view.name, iso(begins))
    return begins


def iso(milliseconds: int) -> str:
    """Return a moment as text.

    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"
