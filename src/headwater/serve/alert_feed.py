"""Alerts to browsers: `GET /alerts/feed`, server-sent events that a page shows as notifications.

A message is delivered when it is in the view `@alerts`, by its id: one that is sent twice is there once. From
there it goes to every page that looks, and one that was away for a moment resumes behind the id of the last event
that it saw. A page that opens sees what comes from then on. Messages leave after a day.

    event: alert      {"id": …, "alert": …, "row": {…}}                 id: token
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headwater.serve.message import Message, Outcome
from headwater.serve.tokens import read_token, write_token
from headwater.serve.watch import Watch
from headwater.views import OWN, Change, TokenGone, ViewDefinition, ViewStore

__all__ = ["FEED", "BrowserChannel", "alert_events"]

FEED = OWN + "alerts"
_DEFINITION = ViewDefinition(FEED, ("id",), ttl_ms=86_400_000)
_PAGE = 100
_HEARTBEAT_SECONDS = 15.0


class BrowserChannel:
    """Puts messages where pages read them."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store

    async def send(self, message: Message) -> Outcome:
        """Keep a message for those who look, now or in a moment."""
        await asyncio.to_thread(self._put, message)
        return Outcome()

    def _put(self, message: Message) -> None:
        self._store.define(_DEFINITION)
        query = f"alert {message.alert}"
        change = Change(message.id, message.json())
        # Another process may have taken the epoch.
        while not self._store.commit(query, self._store.epoch(query) + 1, FEED, [change]):
            pass


async def alert_events(store: ViewStore, watch: Watch, since: str | None) -> AsyncIterator[bytes]:
    """Return events from a token on, or from now on; a token that cannot be read is raised before the first."""
    await asyncio.to_thread(store.define, _DEFINITION)
    if since is None:
        position = await asyncio.to_thread(store.token, FEED)
    else:
        try:
            position = read_token(store, FEED, since)
            await asyncio.to_thread(store.changes, FEED, position, 1)
        except TokenGone:
            position = await asyncio.to_thread(store.token, FEED)
    return _stream(store, watch, position)


async def _stream(store: ViewStore, watch: Watch, position: int) -> AsyncIterator[bytes]:
    # At once, so that a page knows that it is connected, and where to resume if nothing comes.
    yield f"id: {write_token(store, FEED, position)}\nevent: ready\ndata: {{}}\n\n".encode()
    while not watch.closed:
        found = await asyncio.to_thread(store.changes, FEED, position, _PAGE)
        for change in found:
            position = change.token
            if change.row is not None:
                text = change.row.replace("\n", " ").replace("\r", " ")
                yield f"id: {write_token(store, FEED, position)}\nevent: alert\ndata: {text}\n\n".encode()
        if not found and not await watch.wait(FEED, position, _HEARTBEAT_SECONDS):
            yield b": still here\n\n"
