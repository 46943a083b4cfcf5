"""The memory that all connections share: for requests that arrive, and for responses that nobody reads.

A request that does not arrive whole needs a buffer of its size from its first bytes on, and a client may take
its time with the rest. So the buffers of all connections have a limit together; a connection whose request
does not fit is not read until it does. A part of it is for requests of common size, so that a few huge ones
do not stop everybody, and who takes too long while others wait loses the connection.

Responses have a limit too: the more of them wait to be read, the smaller the next ones are. Once there is
no room for any, connections that have not read theirs for long are closed for the sake of those that would.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headwater.core.clock import Clock

if TYPE_CHECKING:
    from headwater.net.kafka.connection import KafkaConnection

UNCOUNTED: Final = 4096
"""Requests up to this size are gathered without asking: a connection costs about as much itself."""
_COMMON: Final = 1024 * 1024
_HUGE_SHARE: Final = 0.75
_PATIENCE_MS: Final = 30_000
_CHECK_SECONDS: Final = 1.0
_SHARE: Final = 4
_LEAST_ROOM: Final = 64 * 1024


class RequestMemory:
    """The buffers of requests that are arriving; a limit of -1 is none."""

    def __init__(self, limit: int, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._limit = limit
        self._clock = clock
        self._loop = loop
        self._holders: dict[KafkaConnection, tuple[int, int]] = {}
        self._waiting: dict[KafkaConnection, int] = {}
        self._huge = 0
        self._check: asyncio.TimerHandle | None = None
        self.held = 0
        """Bytes that connections hold now."""

    @property
    def waiting(self) -> int:
        """How many connections wait for memory."""
        return len(self._waiting)

    def take(self, connection: KafkaConnection, size: int) -> bool:
        """Take memory for a request, or have `connection.granted` called when there is some."""
        if self._fits(size):
            self._hold(connection, size)
            return True
        self._waiting[connection] = size
        if self._check is None:
            self._check = self._loop.call_later(_CHECK_SECONDS, self._hurry)
        return False

    def give_back(self, connection: KafkaConnection) -> None:
        """Give back what a connection holds, or waits for."""
        self._waiting.pop(connection, None)
        size, _ = self._holders.pop(connection, (0, 0))
        self.held -= size
        if size > _COMMON:
            self._huge -= size
        for waiting, wanted in list(self._waiting.items()):
            if self._fits(wanted):
                del self._waiting[waiting]
                self._hold(waiting, wanted)
                self._loop.call_soon(waiting.granted)

    def _fits(self, size: int) -> bool:
        if self._limit < 0 or not self._holders:
            return True
        if size > _COMMON and self._huge and self._huge + size > self._limit * _HUGE_SHARE:
            return False
        return self.held + size <= self._limit

    def _hold(self, connection: KafkaConnection, size: int) -> None:
        self._holders[connection] = (size, self._clock.monotonic_ms())
        self.held += size
        if size > _COMMON:
            self._huge += size

    def _hurry(self) -> None:
        self._check = None
        if not self._waiting:
            return
        self._check = self._loop.call_later(_CHECK_SECONDS, self._hurry)
        before = self._clock.monotonic_ms() - _PATIENCE_MS
        for connection, (size, since_ms) in list(self._holders.items()):
            if since_ms < before:
                connection.close(
                    f"its request of {size} bytes took longer than {_PATIENCE_MS // 1000} s to arrive, "
                    "and others wait for the memory (queued.max.request.bytes)"
                )


class ResponseMemory:
    """The responses that wait to be read by their clients."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._holders: dict[KafkaConnection, tuple[int, int]] = {}
        self.held = 0
        """Bytes that wait now."""

    def room(self) -> int:
        """Return how large one more response may be: a share of what is left, and nothing past the limit."""
        left = self._limit - self.held
        if left > 0:
            return max(left // _SHARE, _LEAST_ROOM)
        before = self._clock.monotonic_ms() - _PATIENCE_MS
        for connection, (_, since_ms) in list(self._holders.items()):
            if since_ms < before:
                connection.abort(
                    f"it has not read its response for {_PATIENCE_MS // 1000} s, "
                    "and others wait for the memory (headwater.fetch.memory.bytes)"
                )
        return 0

    def hold(self, connection: KafkaConnection, size: int) -> None:
        """Count a response that its client has not read."""
        self._holders[connection] = (size, self._clock.monotonic_ms())
        self.held += size

    def release(self, connection: KafkaConnection) -> None:
        """Count it no more."""
        self.held -= self._holders.pop(connection, (0, 0))[0]
