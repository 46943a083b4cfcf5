"""Time as an argument: code that needs it takes a clock, so that a test can hold it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch; it may jump in either direction."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment; it never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since boot or the like."""
        return time.monotonic_ns() // 1_000_000
