"""A clock that stands still until it is told to move."""

from __future__ import annotations


class ManualClock:
    """A clock for tests: wall and monotonic time move only by `advance` and `jump`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Return the wall time that was set."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Return the sum of all advances."""
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let time pass on both clocks."""
        if ms < 0:
            raise ValueError("time passes forwards; use jump() to set the wall clock back")
        self._wall_ms += ms
        self._monotonic_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forwards or back, as an operator or NTP would."""
        self._wall_ms += ms
