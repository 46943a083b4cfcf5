"""Deduplication by key within a time: of events that mean the same, the first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Any, Final

from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack

__all__ = ["Deduplicate"]

_HEAD: Final = 3

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Deduplicate(Logic):
    """Keyed by what makes events the same.

    Rows are (event time, partition, offset, *values), results (*values). An event is a duplicate where one that was
    let through lies less than `within` from it in event time; exactly `within` apart are two. A chain of duplicates
    does not prolong itself: what counts is the distance to the one that was let through. Events with a null in their
    key are never duplicates.

    By default an event is let through as it comes: the first to come is the first, also where one that comes later
    is older. With `ordered`, events wait until the watermark has passed them and the oldest is the first (of the same
    time the one with the lowest partition and offset): the same results for every order of arrival and all batches.

    What was let through is remembered until the watermark is `within` past it. No event that comes then is a
    duplicate of it, unless it is late by as much as `corrections`, for which it is kept so much longer.
    """

    within: int
    ordered: bool = False
    corrections: int = 0

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        """Let the firsts through."""
        if None in key:
            return Step(None, [row[_HEAD:] for row in sorted(rows, key=_order)])
        passed, waiting = ([], []) if state is None else unpack(state)
        if self.ordered:
            waiting = sorted([*waiting, *map(list, rows)], key=_order)
            ready = bisect_left(waiting, watermark, key=lambda row: row[0])
            events, waiting = waiting[:ready], waiting[ready:]
        else:
            events = sorted(rows, key=_order)
        out = []
        for event in events:
            if self._is_first(event[0], passed):
                insort(passed, event[0])
                out.append(tuple(event[_HEAD:]))
        expired = bisect_right(passed, watermark - self.within - self.corrections)
        del passed[:expired]
        if not passed and not waiting:
            return Step(None, out)
        if state is None or rows or out or expired:
            state = pack([passed, waiting])
        # Once the watermark is past the last moment in which an event would be a duplicate.
        times = [passed[0] + self.within + self.corrections - 1] if passed else []
        times += [waiting[0][0]] if waiting else []
        return Step(state, out, min(times))

    def _is_first(self, time: int, passed: list[int]) -> bool:
        place = bisect_left(passed, time)
        near = passed[max(place - 1, 0) : place + 1]
        return all(abs(time - other) >= self.within for other in near)


def _order(row: Row | list[Any]) -> tuple[Any, ...]:
    return tuple(row[:_HEAD])
