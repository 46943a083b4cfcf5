"""Deadlines by key: setting one again is cheap, and keys without one cost nothing.

A heartbeat moves its member's deadline further away and is by far the most frequent change, so it
only writes the dictionary. The heap keeps the older, earlier entry, and puts it back at its right
place when that comes to the top.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from enum import Enum
from itertools import count
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class TimerKind(Enum):
    """What happens when a deadline passes."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    REBALANCE = "rebalance"
    OFFSET_EXPIRY = "offset-expiry"


class TimerKey(NamedTuple):
    """Whose deadline it is."""

    kind: TimerKind
    group: str = ""
    member: str = ""


class Deadlines(Generic[K]):
    """A set of deadlines in milliseconds, earliest first."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        # The earliest heap entry of each key: what a new deadline must undercut to need another.
        self._queued: dict[K, int] = {}
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        """Let `key` fall due at `deadline_ms`, instead of whenever it would have."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Forget the deadline of `key`, if it has one."""
        self._deadlines.pop(key, None)

    def next_deadline(self) -> int | None:
        """Return the earliest deadline, or None when there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key that fell due first, or None when none has."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        self._queued.pop(key, None)
        del self._deadlines[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._sequence), key))

    def _settle(self) -> None:
        """Bring a true deadline to the top of the heap."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            if self._queued.get(key) != queued_ms:
                heapq.heappop(self._heap)
                continue
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == queued_ms:
                return
            heapq.heappop(self._heap)
            del self._queued[key]
            if deadline_ms is not None:
                self._push(key, deadline_ms)


class Timers(Deadlines[TimerKey]):
    """The deadlines of the group coordinator."""
