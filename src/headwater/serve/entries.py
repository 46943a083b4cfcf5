"""Changes as readers get them, written once for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from headwater.serve.records import raw_columns

__all__ = ["Entry", "entry", "project", "squashed"]


def entry(key: str, row: str | None) -> str:
    """Return a row or a change as JSON on one line."""
    # A row is JSON text already and goes out as it is; a line break can only stand between its tokens.
    text = "null" if row is None else row.replace("\n", " ").replace("\r", " ")
    return f'{{"key":{json.dumps(key)},"row":{text}}}'


def project(row: str, fields: Sequence[str]) -> str:
    """Return a row with some of its columns alone, whose values stay as they are written.

    >>> project('{"country": "DE", "revenue": 1.10, "n": 3}', ["revenue", "nothing"])
    '{"revenue":1.10}'
    """
    columns = raw_columns(row)
    return "{" + ",".join(f"{json.dumps(name)}:{columns[name]}" for name in fields if name in columns) + "}"


class Entry:
    """A change of a query's rows: what it is, and its texts, which are made when first asked for."""

    __slots__ = ("_event", "_message", "key", "row", "token")

    def __init__(self, token: int, key: str, row: str | None) -> None:
        self.token = token
        self.key = key
        self.row = row
        self._event: bytes | None = None
        self._message: str | None = None

    def event(self, feed: str) -> bytes:
        """Return the change as a server-sent event."""
        if self._event is None:
            self._event = (
                f"id: {feed}-{self.token}\nevent: change\ndata: {entry(self.key, self.row)}\n\n".encode()
            )
        return self._event

    def message(self, feed: str) -> str:
        """Return the change as a WebSocket message."""
        if self._message is None:
            body = entry(self.key, self.row)
            self._message = f'{{"event":"change","token":"{feed}-{self.token}",{body[1:]}'
        return self._message


def squashed(entries: Iterable[Entry]) -> list[Entry]:
    """Return the last change of each key, in the order of tokens: whoever goes on from any of them misses nothing."""
    last: dict[str, Entry] = {}
    for each in entries:
        last.pop(each.key, None)
        last[each.key] = each
    return list(last.values())
