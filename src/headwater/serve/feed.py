"""What a reader of a live feed gets: the rows first, then each change, from a token on where it has one.

Rows are read page by page, without those that changed since the first page's token: these come as changes. So a
reader misses nothing and sees nothing twice, and no transaction stays open while a slow reader takes its time.
One that falls behind gets the latest change of each row alone, or is cut off, as it asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from headwater.serve.entries import Entry, squashed
from headwater.serve.errors import HttpError
from headwater.serve.hub import PAGE, Hub, SharedFeed
from headwater.serve.query import Selection
from headwater.serve.tokens import read_token, write_token
from headwater.serve.watch import Watch
from headwater.views import TokenGone, ViewError, ViewStore

__all__ = ["Batch", "Feed", "Kind", "slow_option", "until_failure"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_BEHIND = 1000
"""A reader that kept up, and has more changes than these before it, is slow."""
_STALLED_SECONDS = 1.0


class Kind(Enum):
    """What a batch is."""

    START = "start"
    ROW = "row"
    READY = "ready"
    CHANGE = "change"
    ALIVE = "alive"
    CUT = "cut"


@dataclass(frozen=True)
class Batch:
    """Some of what a reader gets, and the position behind it."""

    kind: Kind
    position: int
    entries: list[Entry]


class Feed:
    """A view's rows and changes that a selection asks for, for one reader."""

    def __init__(self, store: ViewStore, hub: Hub, watch: Watch, view: str, selection: Selection) -> None:
        self._store = store
        self._hub = hub
        self._watch = watch
        self._view = view
        self._selection = selection
        # Of what is read from the store itself, without a break: the rows that are known not to match.
        self._out: set[str] = set()

    async def poll(self, since: str, *, seconds: float, limit: int) -> tuple[list[Entry], str]:
        """Return the changes behind a token and the token behind them, waiting for the first."""
        position, there = await self._position(since)
        feed = await self._hub.feed(self._view, self._selection)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            feed.idle_since = loop.time()
            found, position = await self._next(feed, position, limit)
            left = deadline - loop.time()
            # What was committed before the request is waited for in any case: it is on its way.
            is_over = left <= 0 and position >= there
            if found or is_over or self._watch.closed:
                return found, write_token(self._store, self._view, position)
            if feed.error is not None:
                raise feed.error
            if position >= feed.position:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left if left > 0 else None):
                        await feed.news()

    async def follow(
        self, since: str | None, *, start_over: bool = False, cut: bool = False
    ) -> AsyncIterator[Batch]:
        """Return batches that go on until the server ends; what is wrong is raised before the first.

        A token that is gone starts over with the rows where `start_over` says so: a browser that resumes by itself
        has nobody to tell.
        """
        position: int | None = None
        if since is not None:
            try:
                position, _ = await self._position(since)
            except TokenGone:
                if not start_over:
                    raise
        feed = await self._hub.feed(self._view, self._selection)
        return self._batches(feed, position, cut=cut)

    async def _batches(self, feed: SharedFeed, position: int | None, *, cut: bool) -> AsyncIterator[Batch]:
        loop = asyncio.get_running_loop()
        feed.readers += 1
        kept_up = False
        took = 0.0
        try:
            while not self._watch.closed:
                if feed.error is not None:
                    raise feed.error
                if position is None:
                    async for batch in self._rows(feed):
                        yield batch
                        position = batch.position
                    kept_up, took = False, 0.0
                    continue
                if position >= feed.position:
                    kept_up = True
                    before = feed.position
                    await feed.news()
                    if feed.position == before and not self._watch.closed:
                        yield Batch(Kind.ALIVE, position, [])
                    continue
                try:
                    found, after = await self._next(feed, position, None if kept_up else PAGE)
                except TokenGone:
                    position = None
                    continue
                if kept_up and len(found) > _BEHIND:
                    if cut and took > _STALLED_SECONDS:
                        yield Batch(Kind.CUT, position, [])
                        return
                    found = squashed(found)
                began = loop.time()
                if found:
                    yield Batch(Kind.CHANGE, after, found)
                took = loop.time() - began
                position = after
        finally:
            feed.readers -= 1
            feed.idle_since = loop.time()

    async def _position(self, since: str) -> tuple[int, int]:
        """Return the position that a token names, and that of the first change behind it, or itself."""
        try:
            position = read_token(self._store, self._view, since)
        except HttpError:
            await asyncio.to_thread(self._store.token, self._view)  # a view that is not there is said first
            raise
        # Refuses a token that is gone, or was never given, before anything is answered.
        changes = await asyncio.to_thread(self._store.changes, self._view, position, 1)
        return position, changes[0].token if changes else position

    async def _next(self, feed: SharedFeed, position: int, limit: int | None) -> tuple[list[Entry], int]:
        """Return changes behind a position, and the position behind them."""
        found = feed.since(position)
        if found is None:
            return await self._stored(feed, position, limit or 10 * PAGE)
        self._out.clear()
        if limit is not None and len(found) > limit:
            return found[:limit], found[limit - 1].token
        return found, max(position, feed.position)

    async def _stored(self, feed: SharedFeed, position: int, limit: int) -> tuple[list[Entry], int]:
        """Return changes that the feed does not keep any more, from the store."""
        changes = await asyncio.to_thread(self._store.changes, self._view, position, limit)
        found = []
        for change in changes:
            if feed.lets_through(change):
                self._out.discard(change.key)
                found.append(feed.upsert(change))
            elif change.key not in self._out:
                if feed.selection.filters:
                    self._out.add(change.key)
                found.append(Entry(change.token, change.key, None))
        return found, changes[-1].token if changes else position

    async def _rows(self, feed: SharedFeed) -> AsyncIterator[Batch]:
        after: str | None = None
        token: int | None = None
        self._out.clear()
        while True:
            query = self._selection.query(after=after, until=token, limit=PAGE)
            rows, now = await asyncio.to_thread(self._store.read, self._view, query)
            if token is None:
                token = now
                yield Batch(Kind.START, token, [])
            if rows:
                yield Batch(Kind.ROW, token, [Entry(row.token, row.key, feed.shown(row.row)) for row in rows])
            if len(rows) < PAGE:
                break
            after = rows[-1].key
        yield Batch(Kind.READY, token, [])


def slow_option(text: str | None) -> bool:
    """Tell whether a slow reader asked to be cut off."""
    if text not in (None, "squash", "cut"):
        raise HttpError(400, f"slow={text} does not fit: it is squash, for the latest of each row, or cut")
    return text == "cut"


async def until_failure(stream: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield a stream's parts, and end it where the store fails: whoever reads asks again and is told."""
    try:
        async for part in stream:
            yield part
    except ViewError as error:
        logger.warning("an event stream ended: %s", error)
