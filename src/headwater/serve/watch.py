"""Noticing commits of other processes: the store's version is asked for while somebody waits, and only then."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from headwater.core.errors import HeadwaterError
from headwater.views import ViewStore

__all__ = ["Watch"]

_POLL_SECONDS = 0.02


class Watch:
    """Wakes those who wait for a view to change.

    One task asks for everybody, and reads the tokens of all views once for each commit, so that a
    follower wakes only when its own view has changed.
    """

    def __init__(self, store: ViewStore) -> None:
        self.tokens: dict[str, int] = {}
        self._store = store
        self._version: int | None = None
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, view: str, since: int, seconds: float) -> bool:
        """Wait until a view has changes behind a token; false when the time is over, or the server ends."""
        await self._refresh()
        if self.tokens.get(view, 0) > since:
            return True
        if self._closed:
            return False
        event = asyncio.Event()
        self._waiting[view].add(event)
        if self._task is None:
            self._task = asyncio.create_task(self._poll(), name="watch")
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting[view].discard(event)
            if not self._waiting[view]:
                del self._waiting[view]
        return not self._closed

    @property
    def closed(self) -> bool:
        """Whether the server ends, and so should every stream."""
        return self._closed

    async def close(self) -> None:
        """Wake everybody for good."""
        self._closed = True
        self._wake(list(self._waiting))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _refresh(self) -> None:
        version = await asyncio.to_thread(self._store.version)
        if version == self._version:
            return
        tokens = await asyncio.to_thread(self._store.tokens)
        before, self.tokens = self.tokens, tokens
        # The version was read before the tokens: what is committed in between is seen next time.
        self._version = version
        # Whoever sees the change first tells the others: to them it is no change any more.
        self._wake([view for view in self._waiting if tokens.get(view) != before.get(view)])

    async def _poll(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(_POLL_SECONDS)
                try:
                    await self._refresh()
                except HeadwaterError:
                    self._wake(list(self._waiting))  # whoever reads next meets the error, and can tell it
        finally:
            self._task = None  # whatever ended it, whoever waits next begins it anew

    def _wake(self, views: list[str]) -> None:
        for view in views:
            for event in self._waiting[view]:
                event.set()
