"""Retention: up to which offset a log may be deleted, by the age of its records and by its size.

A segment goes as a whole, oldest first: by time when its newest record is older than `retention.ms`, by size
when the log without it still holds `retention.bytes`. Records with timestamps in the future keep their segment,
as in Kafka. Only what readers may see is deleted, and the growing segment stays unless it has expired as a whole.

Time is what deletes here, and wall clocks jump. `SteadyTime` decides which time is believed:

- a clock that was set **back** is believed at once: that deletes less;
- a clock that was set **forward**, by more than a minute beyond what passed on the monotonic clock, is not
  believed until it has stayed there for an hour. Meanwhile time goes on from where it was.

The last believed time outlives the process, so a machine that boots with a clock far ahead deletes nothing in
its first hour either. After a real pause of more than an hour that is all it costs: an hour's delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.core.clock import Clock
from headwater.log.config import LogConfig

TOLERANCE_MS = 60 * 1000
PATIENCE_MS = 3600 * 1000
PAUSE_MS = 3600 * 1000
"""How long a broker may have been away for its clock to be believed at once."""


class SteadyTime:
    """The time that deletion goes by."""

    def __init__(self, clock: Clock, believed_ms: int | None = None) -> None:
        self._clock = clock
        self._believed_ms = clock.wall_ms()
        if believed_ms is not None and self._believed_ms - believed_ms > PAUSE_MS:
            self._believed_ms = believed_ms
        self._seen_ms = clock.monotonic_ms()
        self._doubt_since: int | None = None

    @property
    def doubted(self) -> bool:
        """Whether the wall clock says something that is not believed yet."""
        return self._doubt_since is not None

    def now_ms(self) -> int:
        """Return the time that is believed now."""
        wall, monotonic = self._clock.wall_ms(), self._clock.monotonic_ms()
        expected = self._believed_ms + monotonic - self._seen_ms
        self._seen_ms = monotonic
        if wall <= expected + TOLERANCE_MS:
            self._believed_ms, self._doubt_since = wall, None
        elif self._doubt_since is None:
            self._believed_ms, self._doubt_since = expected, monotonic
        elif monotonic - self._doubt_since >= PATIENCE_MS:
            self._believed_ms, self._doubt_since = wall, None
        else:
            self._believed_ms = expected
        return self._believed_ms


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A segment as far as retention looks at it."""

    next_offset: int
    size: int
    newest_ms: int
    """The largest timestamp of its records, or when it was last written where they have none."""


def expired(segments: Sequence[SegmentAge], config: LogConfig, now_ms: int) -> int:
    """Return how many of the oldest segments have expired by time; it may be all of them."""
    if not config.deleted or config.retention_ms < 0:
        return 0
    for i, segment in enumerate(segments):
        if now_ms - segment.newest_ms <= config.retention_ms:
            return i
    return len(segments)


def oversized(segments: Sequence[SegmentAge], config: LogConfig) -> int:
    """Return how many of the oldest segments are more than the log may hold; never the growing one."""
    if not config.deleted or config.retention_bytes < 0:
        return 0
    spare = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments[:-1]:
        spare -= segment.size
        if spare < 0:
            break
        count += 1
    return count
