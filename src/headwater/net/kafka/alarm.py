"""A call at a coordinator's next deadline, by its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Makes one call at the earliest of the deadlines that it was given since the last."""

    __slots__ = ("_call", "_deadline_ms", "_handle")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0

    def set(self, deadline_ms: int | None, now_ms: int) -> None:
        """Call no later than at a deadline; None asks for nothing."""
        if deadline_ms is None or (self._handle is not None and self._deadline_ms <= deadline_ms):
            return
        self.cancel()
        self._deadline_ms = deadline_ms
        delay_ms = max(0, deadline_ms - now_ms)
        self._handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._ring)

    def cancel(self) -> None:
        """Call no more, until another deadline is set."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._call()
