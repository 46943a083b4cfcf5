"""Live feeds shared by their readers: each view is read once, each change is filtered and written once.

A `Hub` has a `ViewReader` for each view that somebody follows: the one that reads the store's feed. It hands
changes to the `SharedFeed`s of that view, one for each different filter. A feed knows which keys its filter has
let through, so it can tell a row that starts or stops to match, and keeps its last changes. A reader is a
position among those: it costs no queue, however slow it is, and the others do not notice it.

A reader whose position is older than what a feed keeps reads the store's feed itself until it has caught up.
It cannot know then which rows matched at its position: of a row that does not match, it is told the delete
once, even if it never had the row.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from headwater.core.errors import HeadwaterError
from headwater.serve.entries import Entry, project
from headwater.serve.errors import HttpError
from headwater.serve.query import Selection
from headwater.serve.watch import Watch
from headwater.views import StoredChange, TokenGone, ViewStore
from headwater.views.conditions import matches

__all__ = ["Hub", "SharedFeed"]

logger = logging.getLogger(__name__)

PAGE = 1000
KEEP = 20_000
"""How many changes a feed keeps for readers that are a little behind."""
HEARTBEAT_SECONDS = 15.0
_MAX_FEEDS = 2000
"""Of one view: each knows the keys that its filter lets through."""
_IDLE_SECONDS = 60.0
"""How long a feed stays without readers: for those who were cut off, and between long polls."""


class SharedFeed:
    """The changes of a view's rows that a selection asks for, as far back as they are kept."""

    def __init__(self, selection: Selection, position: int) -> None:
        self.selection = selection
        self.position = position
        """The token of the last change of the view that this has seen."""
        self.error: HeadwaterError | None = None
        self.readers = 0
        self.idle_since = 0.0
        self._query = selection.query()
        self._floor = position
        self._entries: list[Entry] = []
        self._members: set[str] = set()
        # Until the matching keys are read: the changes to look at afterwards.
        self._waiting: list[StoredChange] | None = [] if selection.filters else None
        self._unsure_until = position
        self._seen: set[str] = set()
        self._news = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether it knows which rows match."""
        return self._waiting is None

    def since(self, position: int) -> list[Entry] | None:
        """Return the changes behind a position; None where they do not reach back that far."""
        if position < self._floor:
            return None
        return self._entries[bisect_right(self._entries, position, key=lambda each: each.token) :]

    async def news(self) -> None:
        """Wait for a change, a heartbeat, or the end."""
        await self._news.wait()

    def wake(self) -> None:
        """Wake every reader once."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def know(self, keys: Iterable[str], until: int) -> None:
        """Take the keys of the rows that match; of those changed up to `until` while they were read, no one knows."""
        self._members.update(keys)
        self._unsure_until = until
        waiting, self._waiting = self._waiting or [], None
        self.take([(change, None) for change in waiting])

    def take(self, changes: list[tuple[StoredChange, Any]]) -> None:
        """Take changes of the view, with what was read of their rows where somebody filters."""
        if self._waiting is not None:
            self._waiting += [change for change, _ in changes]
            return
        for change, columns in changes:
            found = self.derive(change, columns)
            if found is not None:
                self._entries.append(found)
            self.position = change.token
        if len(self._entries) > 2 * KEEP:
            self._floor = self._entries[-KEEP - 1].token
            del self._entries[:-KEEP]
        self.wake()

    def restart(self, position: int) -> None:
        """Go on from a position with changes missed before it: whoever is older starts over."""
        self._entries.clear()
        # Nobody knows which rows match by now: of each, the first change that does not is told as a delete.
        self._members.clear()
        self._seen.clear()
        self._unsure_until = sys.maxsize
        self.position = self._floor = position
        self.wake()

    def derive(self, change: StoredChange, columns: Any = None) -> Entry | None:
        """Return what a change of the view is to this feed, which is at that change; None for nothing."""
        if self._waiting is None and not self.selection.filters:
            return self.upsert(change)
        if self.lets_through(change, columns):
            self._members.add(change.key)
            return self.upsert(change)
        is_unsure = change.token <= self._unsure_until and change.key not in self._seen
        if is_unsure:
            self._seen.add(change.key)
        if change.key in self._members or is_unsure:
            self._members.discard(change.key)
            return Entry(change.token, change.key, None)
        return None

    def lets_through(self, change: StoredChange, columns: Any = None) -> bool:
        """Tell whether the row that a change leaves is asked for."""
        if change.row is None or not self.selection.filters:
            return change.row is not None
        return matches(json.loads(change.row) if columns is None else columns, self._query)

    def upsert(self, change: StoredChange) -> Entry:
        """Return a change as it goes out."""
        return Entry(change.token, change.key, self.shown(change.row))

    def shown(self, row: str | None) -> str | None:
        """Return a row with the fields that are asked for."""
        fields = self.selection.fields
        return row if row is None or fields is None else project(row, fields)


class ViewReader:
    """The one reader of a view's changes, and the feeds that it fills."""

    def __init__(self, store: ViewStore, watch: Watch, view: str, position: int) -> None:
        self.position = position
        self.feeds: dict[Selection, SharedFeed] = {}
        self._store = store
        self._watch = watch
        self._view = view

    async def run(self) -> None:
        """Read and hand out for as long as there are feeds."""
        try:
            while self.feeds and not self._watch.closed:
                if await self._watch.wait(self._view, self.position, HEARTBEAT_SECONDS):
                    await self._read()
                else:
                    self._each_wakes()
                self._drop_idle()
        except HeadwaterError as error:
            logger.warning("the feed of %s ended: %s", self._view, error)
            for feed in self.feeds.values():
                feed.error = error
        finally:
            self._each_wakes()

    async def _read(self) -> None:
        try:
            changes = await asyncio.to_thread(self._store.changes, self._view, self.position, PAGE)
        except TokenGone:
            self.position = await asyncio.to_thread(self._store.token, self._view)
            for feed in self.feeds.values():
                feed.restart(self.position)
            return
        if not changes:
            return
        is_filtered = any(feed.selection.filters for feed in self.feeds.values())
        read = [
            (change, json.loads(change.row) if is_filtered and change.row is not None else None)
            for change in changes
        ]
        self.position = changes[-1].token
        for feed in self.feeds.values():
            feed.take(read)

    def _each_wakes(self) -> None:
        for feed in self.feeds.values():
            feed.wake()

    def _drop_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for selection, feed in list(self.feeds.items()):
            if not feed.readers and now - feed.idle_since > _IDLE_SECONDS:
                del self.feeds[selection]


class Hub:
    """The readers and feeds of all views that somebody follows."""

    def __init__(self, store: ViewStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self._readers: dict[str, ViewReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def feed(self, view: str, selection: Selection) -> SharedFeed:
        """Return the feed of a selection, which is made where nobody has asked for it lately."""
        known = self._readers.get(view)
        if known is not None and selection in known.feeds and known.feeds[selection].is_ready:
            return known.feeds[selection]
        async with self._lock:
            reader = self._readers.get(view) or await self._start(view)
            feed = reader.feeds.get(selection)
            if feed is None:
                if len(reader.feeds) >= _MAX_FEEDS:
                    text = f"{view} is followed by {_MAX_FEEDS} different queries already: try again later"
                    raise HttpError(503, text, {"Retry-After": "30"})
                feed = reader.feeds[selection] = SharedFeed(selection, reader.position)
                feed.idle_since = asyncio.get_running_loop().time()
                if selection.filters:
                    try:
                        feed.know(*await asyncio.to_thread(self._keys, view, selection, feed.position))
                    except BaseException:
                        del reader.feeds[selection]
                        raise
            return feed

    @property
    def count(self) -> int:
        """How many readers there are."""
        return sum(feed.readers for reader in self._readers.values() for feed in reader.feeds.values())

    async def _start(self, view: str) -> ViewReader:
        position = await asyncio.to_thread(self._store.token, view)
        reader = self._readers[view] = ViewReader(self._store, self._watch, view, position)

        async def run() -> None:
            await asyncio.sleep(0)  # whoever asks gets its feed in first
            async with self._lock:
                pass
            try:
                await reader.run()
            finally:
                if self._readers.get(view) is reader:
                    del self._readers[view]

        task = asyncio.create_task(run(), name=f"feed {view}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return reader

    def _keys(self, view: str, selection: Selection, until: int) -> tuple[list[str], int]:
        """Return the keys of the rows that match and are as they were at a token, and how far the view is."""
        keys: list[str] = []
        while True:
            query = selection.query(after=keys[-1] if keys else None, until=until, limit=PAGE)
            rows, token = self._store.read(view, query)
            keys += [row.key for row in rows]
            if len(rows) < PAGE:
                return keys, token
