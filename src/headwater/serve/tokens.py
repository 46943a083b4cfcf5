"""Positions in a feed as clients hold them: `IDENTITY-NUMBER`.

The identity is the store's: after the store was made anew, an old token must not fit by accident.
"""

from __future__ import annotations

from headwater.serve.errors import HttpError
from headwater.views import TokenGone, ViewStore

__all__ = ["read_token", "write_token"]


def write_token(store: ViewStore, number: int) -> str:
    """Return the text of a token."""
    return f"{store.identity}-{number}"


def read_token(store: ViewStore, view: str, text: str) -> int:
    """Return the number in a token, or raise `TokenGone` where it belongs to another store."""
    identity, dash, number = text.rpartition("-")
    if not dash or not (number.isascii() and number.isdigit()):
        raise HttpError(400, f"{text!r} is no token: use one that an answer of this server held")
    if identity != store.identity:
        raise TokenGone(view, text)
    return int(number)
