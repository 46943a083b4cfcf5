"""Which messages of a log are done with, where they are settled in no order.

Delayed messages fall due in any order, which would leave as many ranges as there are messages. A byte for each
offset after the head takes less, and the same time however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.broker.queues.settled import Settled

__all__ = ["SettledBits"]

_CUT = 65536
"""How many settled offsets may stand before the head before they are cut off."""


class SettledBits(Settled):
    """Offsets that are settled, a byte for each."""

    __slots__ = ("_base", "_bits")

    def __init__(self) -> None:
        super().__init__()
        self._base = 0
        self._bits = bytearray()

    def add(self, offset: int) -> None:
        """Settle one offset."""
        self.add_range(offset, offset + 1)

    def add_range(self, start: int, stop: int) -> None:
        """Settle the offsets from `start` to before `stop`; some may be settled already."""
        start = max(start, self.head)
        if start >= stop:
            return
        if start == self.head and stop - self._base >= len(self._bits):
            self.head = self._base = stop
            self._bits.clear()
            return
        bits, first, last = self._bits, start - self._base, stop - self._base
        if last > len(bits):
            bits.extend(bytes(last - len(bits)))
        bits[first:last] = b"\1" * (last - first)
        if start == self.head:
            free = bits.find(0, last)
            self.head = self._base + (len(bits) if free < 0 else free)
            if self.head - self._base > _CUT:
                del bits[: self.head - self._base]
                self._base = self.head

    def __contains__(self, offset: int) -> bool:
        if offset < self.head:
            return True
        place = offset - self._base
        return place < len(self._bits) and self._bits[place] == 1

    def after(self, offset: int) -> int:
        """Return the first offset, from this one on, that is not settled."""
        place = max(offset, self.head) - self._base
        free = self._bits.find(0, place)
        return self._base + (max(place, len(self._bits)) if free < 0 else free)

    def unsettled(self, start: int, stop: int) -> int:
        """Return how many offsets from `start` to before `stop` are not settled."""
        start = max(start, self.head)
        if start >= stop:
            return 0
        return stop - start - self._bits.count(1, start - self._base, stop - self._base)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield what is settled after the head, in order."""
        bits, base = self._bits, self._base
        start = bits.find(1, self.head - base)
        while start >= 0:
            stop = bits.find(0, start)
            if stop < 0:
                stop = len(bits)
            yield base + start, base + stop
            start = bits.find(1, stop)

    @property
    def end(self) -> int:
        """The offset from which on nothing is settled."""
        return max(self.head, self._base + self._bits.rfind(1) + 1)

    def clip(self, end: int) -> bool:
        """Unsettle all offsets from `end` on, which are to be given to other messages; false if none was."""
        if self.end <= end:
            return False
        if end <= self._base:
            self.head = self._base = end
            self._bits.clear()
            return True
        del self._bits[end - self._base :]
        self.head = min(self.head, end)
        return True
