"""A limit on what clients can make the broker log.

A client that reconnects with garbage in a loop, or repeats a refused request, would otherwise fill the
disk with lines that all say the same. Each peer has a few lines at once and then one every ten seconds,
which says how many were left out; all peers together have a limit too, so that many addresses do not help.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

from headwater.core.clock import Clock

_PEER_LINES = 10
_PEER_MS = 10_000
_ALL_LINES = 200
_ALL_MS = 100
_MAX_PEERS = 1000
_MAX_TEXT = 500


class _Bucket:
    """Lines that may be written: some at once, and one more each `refill_ms`."""

    __slots__ = ("_at_ms", "_lines", "_size", "refill_ms", "suppressed")

    def __init__(self, size: int, refill_ms: int, now_ms: int) -> None:
        self._size = self._lines = size
        self._at_ms = now_ms
        self.refill_ms = refill_ms
        self.suppressed = 0

    def take(self, now_ms: int) -> bool:
        """Take one line, if there is any."""
        earned = (now_ms - self._at_ms) // self.refill_ms
        if earned > 0:
            self._lines = min(self._size, self._lines + earned)
            self._at_ms += earned * self.refill_ms
        if not self._lines:
            return False
        self._lines -= 1
        return True


class LogLimit:
    """Logs for peers, within bounds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = _Bucket(_ALL_LINES, _ALL_MS, clock.monotonic_ms())
        self._peers: OrderedDict[str, _Bucket] = OrderedDict()

    def log(
        self, logger: logging.Logger, level: int, peer: str, message: str, *values: object, **fields: Any
    ) -> None:
        """Log a message that `peer` is the cause of, with the fields, or leave it out."""
        if not logger.isEnabledFor(level):
            return
        now_ms = self._clock.monotonic_ms()
        bucket = self._peers.get(peer)
        if bucket is None:
            bucket = self._peers[peer] = _Bucket(_PEER_LINES, _PEER_MS, now_ms)
            if len(self._peers) > _MAX_PEERS:
                self._peers.popitem(last=False)
        else:
            self._peers.move_to_end(peer)
        if not (bucket.take(now_ms) and self._all.take(now_ms)):
            bucket.suppressed += 1
            return
        extra = {"peer": peer} | {name: _short(value) for name, value in fields.items() if value is not None}
        if bucket.suppressed:
            extra["suppressed"], bucket.suppressed = bucket.suppressed, 0
        logger.log(level, message, *(_short(value) for value in values), extra=extra)


def _short(value: object) -> object:
    """Return a value that a client may have made long as one that fits on a line."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, Exception) else None
    return value if text is None else text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
