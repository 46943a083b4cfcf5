"""Event time of a topic: the watermark over its partitions, and which of them do not count.

The watermark is the lowest, over the partitions, of the highest event time seen in each, minus the declared
lateness. A partition that has brought nothing for the idle time does not count; when all are idle, those that
were the last to bring something still do. It never goes back. `now` comes from the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

__all__ = ["Activity", "holding", "later", "watermark"]


def watermark(
    highs: Mapping[int, int], counted: Iterable[int], lateness_ms: int, before: int | None
) -> int | None:
    """Return the watermark, given the highest event time of each partition and which of them count.

    >>> watermark({0: 50_000, 1: 20_000}, [0, 1], 5_000, before=None)
    15000
    >>> watermark({0: 50_000, 1: 20_000}, [0], 5_000, before=15_000)
    45000
    """
    counting = list(counted)
    if not counting or any(partition not in highs for partition in counting):
        return before
    reached = min(highs[partition] for partition in counting) - lateness_ms
    return later(before, reached)


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two times, of which either may be unknown."""
    return max((time for time in (one, other) if time is not None), default=None)


def holding(highs: Mapping[int, int], counted: Iterable[int]) -> int | None:
    """Return the partition that holds the watermark back, or None where none counts.

    >>> holding({0: 50_000, 1: 20_000}, [0, 1])
    1
    """
    return min(counted, key=lambda partition: (highs.get(partition, -(2**63)), partition), default=None)


class Activity:
    """When each partition last brought something new, by the driver's clock."""

    def __init__(self, idle_ms: int) -> None:
        self._idle_ms = idle_ms
        self._ends: dict[int, int] = {}
        self._grew: dict[int, int] = {}

    def observe(self, ends: Mapping[int, int], now_ms: int) -> None:
        """Take note of where the partitions end now."""
        for partition, end in ends.items():
            if self._ends.get(partition) != end:
                self._ends[partition] = end
                self._grew[partition] = now_ms

    def begin(self, ends: Mapping[int, int], quiet_ms: Mapping[int, int], now_ms: int) -> None:
        """Take note of where the partitions end, and for how long they have been so, where that is known."""
        self._ends = dict(ends)
        self._grew = {partition: now_ms - quiet_ms.get(partition, 0) for partition in ends}

    def active(self, read: Mapping[int, int], now_ms: int) -> list[int]:
        """Return the partitions that are not idle: with something left to read, or something new lately."""
        return [
            partition
            for partition, end in sorted(self._ends.items())
            if read.get(partition, 0) < end or now_ms - self._grew[partition] < self._idle_ms
        ]

    def idle(self, read: Mapping[int, int], now_ms: int) -> bool:
        """Tell whether all partitions are idle; as long as none has been looked at, nobody knows."""
        return bool(self._ends) and not self.active(read, now_ms)

    def counted(self, read: Mapping[int, int], timed: Collection[int], now_ms: int) -> list[int]:
        """Return the partitions that the watermark goes by; an event time is known of those that are `timed`.

        They are those that are not idle. When all are, they are the `timed` ones that were active last: what
        they would be had the others fallen idle before them, one by one. A partition that never had a record
        may otherwise be the last of them, and time would not get past it.
        """
        active = self.active(read, now_ms)
        if active:
            return active
        known = {partition: grew for partition, grew in self._grew.items() if partition in timed}
        return [partition for partition, grew in sorted(known.items()) if grew == max(known.values())]

    def next_idle_in(self, now_ms: int) -> int | None:
        """Return in how many ms the next partition becomes idle, unless it brings something."""
        left = [grew + self._idle_ms - now_ms for grew in self._grew.values()]
        return min((ms for ms in left if ms > 0), default=None)
