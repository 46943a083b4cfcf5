"""Positions in a feed as clients hold them: `IDENTITY-VIEW-NUMBER`.

The identity is the store's: after the store was made anew, an old token must not fit by accident. Nor must that of
another view, whose changes have numbers of their own.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from headwater.serve.errors import HttpError
from headwater.views import TokenGone, ViewStore

__all__ = ["feed_name", "read_token", "write_token"]


def feed_name(store: ViewStore, view: str) -> str:
    """Return what every token of a view starts with, before the dash and the number."""
    return f"{store.identity}-{quote(view, safe='')}"


def write_token(store: ViewStore, view: str, number: int) -> str:
    """Return the text of a token."""
    return f"{feed_name(store, view)}-{number}"


def read_token(store: ViewStore, view: str, text: str) -> int:
    """Return the number in a token of this view, or raise `TokenGone` where it belongs to another store."""
    feed, dash, number = text.rpartition("-")
    if not dash or not (number.isascii() and number.isdigit()):
        raise HttpError(400, f"{text!r} is no token: use one that an answer of this server held")
    identity, _, name = feed.partition("-")
    if identity != store.identity or not name:
        raise TokenGone(view, text)
    if feed != feed_name(store, view):
        raise HttpError(
            400, f"{text!r} is a token of {unquote(name)}: go on with one that an answer about {view} held"
        )
    return int(number)
