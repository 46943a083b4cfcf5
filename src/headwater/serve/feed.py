"""Live feeds: a view's changes behind a token, as a long poll or as server-sent events.

An event stream without a token starts with the rows. They are read page by page, without those that
changed since the first page's token: these come as changes. So a reader misses nothing and sees
nothing twice, and no transaction stays open while a slow reader takes its time.

    event: start      forget what you have                              (no id)
    event: row        {"key": …, "row": {…}}                            (no id)
    event: ready      the rows are complete                             id: token
    event: change     {"key": …, "row": {…}}, row is null when deleted  id: token
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

from headwater.serve.tokens import read_token, write_token
from headwater.serve.watch import Watch
from headwater.views import Query, StoredChange, TokenGone, ViewError, ViewStore

__all__ = ["Feed", "entry", "until_failure"]

logger = logging.getLogger(__name__)

_PAGE = 1000
_HEARTBEAT_SECONDS = 15.0


class Feed:
    """One view's changes, for any number of readers."""

    def __init__(self, store: ViewStore, watch: Watch, view: str) -> None:
        self._store = store
        self._watch = watch
        self._view = view

    async def poll(self, since: str, *, seconds: float, limit: int) -> tuple[list[StoredChange], str]:
        """Return the changes behind a token and the token behind them, waiting for the first."""
        position = read_token(self._store, self._view, since)
        found = await self._changes(position, limit)
        if not found and seconds > 0 and await self._watch.wait(self._view, position, seconds):
            found = await self._changes(position, limit)
        return found, write_token(self._store, found[-1].token if found else position)

    async def events(self, since: str | None, *, start_over: bool = False) -> AsyncIterator[str]:
        """Return server-sent events that go on until the server ends; what is wrong is raised before the first.

        With `start_over` a token that is too old is no error: the rows come again.
        """
        position: int | None = None
        if since is not None:
            try:
                position = read_token(self._store, self._view, since)
                await self._changes(position, 1)
            except TokenGone:
                if not start_over:
                    raise
                position = None
        else:
            await asyncio.to_thread(self._store.token, self._view)
        return until_failure(self._stream(position))

    async def _stream(self, position: int | None) -> AsyncIterator[str]:
        while not self._watch.closed:
            if position is None:
                async for position, text in self._rows():  # noqa: B007  # the last one is where to go on
                    yield text
                continue
            try:
                found = await self._changes(position, _PAGE)
            except TokenGone:
                position = None
                continue
            if found:
                yield "".join(map(self._event, found))
                position = found[-1].token
            elif not await self._watch.wait(self._view, position, _HEARTBEAT_SECONDS):
                yield ": still here\n\n"

    async def _rows(self) -> AsyncIterator[tuple[int, str]]:
        after: str | None = None
        token: int | None = None
        while True:
            query = Query(after=after, until=token, limit=_PAGE)
            rows, now = await asyncio.to_thread(self._store.read, self._view, query)
            start = "event: start\ndata: {}\n\n" if token is None else ""
            token = now if token is None else token
            yield token, start + "".join(f"event: row\ndata: {entry(row.key, row.row)}\n\n" for row in rows)
            if len(rows) < _PAGE:
                break
            after = rows[-1].key
        yield token, f"id: {write_token(self._store, token)}\nevent: ready\ndata: {{}}\n\n"

    def _event(self, change: StoredChange) -> str:
        token = write_token(self._store, change.token)
        return f"id: {token}\nevent: change\ndata: {entry(change.key, change.row)}\n\n"

    async def _changes(self, since: int, limit: int) -> list[StoredChange]:
        return await asyncio.to_thread(self._store.changes, self._view, since, limit)


async def until_failure(stream: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield a stream's events, and end it where the store fails: whoever reads asks again and is told."""
    try:
        async for text in stream:
            yield text
    except ViewError as error:
        logger.warning("an event stream ended: %s", error)


def entry(key: str, row: str | None) -> str:
    """Return a row or a change as JSON on one line."""
    # A row is JSON text already and goes out as it is; a line break can only stand between its tokens.
    text = "null" if row is None else row.replace("\n", " ").replace("\r", " ")
    return f'{{"key":{json.dumps(key)},"row":{text}}}'
