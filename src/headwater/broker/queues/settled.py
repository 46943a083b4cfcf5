"""Which messages of a log are done with: all before a head, and ranges after it.

Acknowledgements come nearly in order, so the ranges are as few as the messages that some consumer holds on to.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["Settled", "decode_ranges", "encode_ranges", "ranges_of"]

_RANGE = struct.Struct(">QQ")


class Settled:
    """Offsets that are settled; each is settled once and stays so."""

    __slots__ = ("_starts", "_stops", "head")

    def __init__(self, head: int = 0) -> None:
        self.head = head
        """All offsets before it are settled."""
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, offset: int) -> None:
        """Settle one offset."""
        if offset == self.head and not self._starts:
            self.head = offset + 1
        else:
            self.add_range(offset, offset + 1)

    def add_range(self, start: int, stop: int) -> None:
        """Settle the offsets from `start` to before `stop`; some may be settled already."""
        start = max(start, self.head)
        if start >= stop:
            return
        starts, stops = self._starts, self._stops
        first = bisect_left(stops, start)
        last = bisect_right(starts, stop)
        if first < last:
            start, stop = min(start, starts[first]), max(stop, stops[last - 1])
        starts[first:last], stops[first:last] = [start], [stop]
        if starts[0] <= self.head:
            self.head = stops[0]
            del starts[0], stops[0]

    def __contains__(self, offset: int) -> bool:
        if offset < self.head:
            return True
        i = bisect_right(self._starts, offset) - 1
        return i >= 0 and offset < self._stops[i]

    def after(self, offset: int) -> int:
        """Return the first offset, from this one on, that is not settled."""
        if offset < self.head:
            return self.head
        i = bisect_right(self._starts, offset) - 1
        return self._stops[i] if i >= 0 and offset < self._stops[i] else offset

    def unsettled(self, start: int, stop: int) -> int:
        """Return how many offsets from `start` to before `stop` are not settled."""
        start = max(start, self.head)
        if start >= stop:
            return 0
        count = stop - start
        for begin, end in zip(self._starts, self._stops, strict=True):
            count -= max(0, min(end, stop) - max(begin, start))
        return count

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield what is settled after the head, in order."""
        return zip(self._starts, self._stops, strict=True)

    @property
    def end(self) -> int:
        """The offset from which on nothing is settled."""
        return self._stops[-1] if self._stops else self.head

    def clip(self, end: int) -> bool:
        """Unsettle all offsets from `end` on, which are to be given to other messages; false if none was."""
        if self.end <= end:
            return False
        self.head = min(self.head, end)
        keep = bisect_left(self._starts, end)
        del self._starts[keep:], self._stops[keep:]
        if self._stops:
            self._stops[-1] = min(self._stops[-1], end)
        return True


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges that offsets make, in order.

    >>> ranges_of([3, 1, 2, 7])
    [(1, 4), (7, 8)]
    """
    ranges: list[tuple[int, int]] = []
    start = stop = -1
    for offset in sorted(offsets):
        if offset == stop:
            stop += 1
        else:
            if stop >= 0:
                ranges.append((start, stop))
            start, stop = offset, offset + 1
    if stop >= 0:
        ranges.append((start, stop))
    return ranges


def encode_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """Return ranges as bytes."""
    return b"".join(_RANGE.pack(*pair) for pair in ranges)


def decode_ranges(data: bytes) -> list[tuple[int, int]]:
    """Return the ranges in bytes."""
    return list(_RANGE.iter_unpack(data))
