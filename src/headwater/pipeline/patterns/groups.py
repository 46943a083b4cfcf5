"""The partial matches of a key by the table: starts in the same state move together.

Each row at which a match may begin is a *start*. Starts that are in the same state of the table, and whose best
match so far ends at the same row, share everything that is to come, so they are one group: a row costs a look-up
for each group, however many starts there are. Rows are kept from the first live start on, without those that no
group took or lost a thread by.

Without `within`, and where the search goes on past the last row, the first start of a group stands for all: what
completes a later one completes it too, and the later one lies inside. (Unless a match that is not final yet ends
between the two, which would rule out the first alone.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from headwater.pipeline.patterns import partial
from headwater.pipeline.patterns.compaction import needed_rows
from headwater.pipeline.patterns.skip import Skip, SkipTo
from headwater.pipeline.patterns.table import State, Table
from headwater.pipeline.patterns.values import Row

__all__ = ["Groups"]

Starts = deque[int]
_MANY = 64
_FEW: Final = 32  # looking through rows costs rows times starts


class Groups:
    """What is under way for one key."""

    def __init__(
        self,
        table: Table,
        skip: Skip,
        within: int | None,
        limit: int,
        report: Callable[[list[tuple[Row, int]]], None],
        *,
        by_symbol: bool,
    ) -> None:
        self._table = table
        self._skip = skip
        self._within = within
        self._limit = limit
        self._report = report
        # All rows from the first to the last are the match, and nobody asks what they were taken for.
        self._whole = not (by_symbol or table.has_gaps or skip.symbol >= 0)
        self._alone = within is None and skip.to is SkipTo.PAST_LAST_ROW
        self._rows: list[Row] = []
        self._base = 0  # the number of the first row that is kept
        self._live: dict[tuple[State, int], Starts] = {}
        self._done: list[tuple[int, Starts]] = []
        self._count = 0
        self._compacted = 0  # how many rows were left when they were last looked through
        self._deadline = partial.NEVER
        self.dropped = 0

    @property
    def due(self) -> int | None:
        """The time after which something expires."""
        return None if self._deadline == partial.NEVER else self._deadline

    def feed(self, rows: list[Row]) -> None:
        """Take rows in the order of their times."""
        table, within, limit = self._table, self._within, self._limit
        start, start_moves, move = table.start, table.start.moves, table.move
        live = self._live
        for row in rows:
            mask = row[3]
            begins = (start_moves.get(mask) or move(start, mask))[2]
            if not live:
                if not begins:
                    continue
            elif row[0] > self._deadline:
                self.expire(row[0])
                live = self._live
            end = self._base + len(self._rows)
            if begins:
                live[start, -1] = deque((end,))
                self._count += 1
                if within is not None and row[0] + within < self._deadline:
                    self._deadline = row[0] + within
            new: dict[tuple[State, int], Starts] = {}
            kept = False
            for (state, best), starts in live.items():
                following, accepted, bound = state.moves.get(mask) or move(state, mask)
                if accepted:
                    best = end
                # A row that was not taken may still have ended a thread, so it is part of the way to a match.
                if bound or (following is not state and following is not None):
                    kept = True
                if following is None:
                    if best >= 0:
                        self._done.append((best, starts))
                    else:
                        self._count -= len(starts)
                elif (key := (following, best)) in new:
                    new[key] = self._merge(new[key], starts)
                else:
                    new[key] = starts
            self._live = live = new
            if kept:
                self._rows.append(row)
            if self._done:
                self._resolve()
                live = self._live
            if self._count > limit:
                self._drop()
                live = self._live
            if not self._count:
                self._forget()

    def _merge(self, one: Starts, other: Starts) -> Starts:
        if one[0] > other[0]:
            one, other = other, one
        if one[-1] > other[0]:
            return deque(sorted([*one, *other]))
        if self._alone and not self._ends_between(one[-1], other[-1]):
            self._count -= len(other)
        else:
            one.extend(other)
        return one

    def _ends_between(self, first: int, last: int) -> bool:
        """Tell whether a match that may yet be reported would rule out a start at `first` but none at `last`."""
        bests = [best for _, best in self._live] + [best for best, _ in self._done]
        return any(first <= best < last for best in bests)

    def expire(self, now: int) -> None:
        """End the partial matches that no row from `now` on can complete."""
        if self._within is None or now <= self._deadline:
            return
        reached = now - self._within
        self._deadline = partial.NEVER
        for key, starts in list(self._live.items()):
            over: Starts = deque()
            while starts and self._time(starts[0]) < reached:
                over.append(starts.popleft())
            if over and key[1] >= 0:
                self._done.append((key[1], over))
            else:
                self._count -= len(over)
            if starts:
                self._deadline = min(self._deadline, self._time(starts[0]) + self._within)
            else:
                del self._live[key]
        self._resolve()
        if not self._count:
            self._forget()

    def _time(self, start: int) -> int:
        time: int = self._rows[start - self._base][0]
        return time

    def _resolve(self) -> None:
        """Report the matches that nothing before them can change any more, in the order of their starts."""
        while self._done:
            best, starts = min(self._done, key=lambda each: each[1][0])
            if self._skip.to is not SkipTo.NEXT_ROW and any(
                each[0] < starts[0] for each in self._live.values()
            ):
                return
            self._emit(starts[0], best)

    def _emit(self, start: int, end: int) -> None:
        rows = self._rows[start - self._base : end + 1 - self._base]
        if self._whole:
            path = [(start, 0), (end, 0)]
            self._report([(row, 0) for row in rows])
        else:
            path = self._table.path(rows, start)
            self._report([(rows[number - start], symbol) for number, symbol in path])
        resume = self._skip.resume(path)
        self._done = [each for each in self._done if self._cut(each[1], start, resume)]
        if self._skip.to is not SkipTo.NEXT_ROW:
            self._live = {key: each for key, each in self._live.items() if self._cut(each, start, resume)}

    def _cut(self, starts: Starts, first: int, resume: int) -> bool:
        """Drop the starts from `first` up to `resume`, and return whether any are left."""
        while starts and first <= starts[0] < resume:
            starts.popleft()
            self._count -= 1
        return bool(starts)

    def _drop(self) -> None:
        """Give up the partial matches that began first."""
        while self._count > self._limit and self._live:
            key, starts = min(self._live.items(), key=lambda each: each[1][0])
            self._give_up(key, deque((starts[0],)))
            self._resolve()

    def shed(self) -> None:
        """Give up the partial matches that began before the last `MOST_ROWS` rows that are kept."""
        first = self._base + len(self._rows) - partial.MOST_ROWS
        if first <= self._base:
            return
        for (state, best), starts in list(self._live.items()):
            over = deque([start for start in starts if start < first])
            if over:
                self._give_up((state, best), over)
        self._resolve()

    def _give_up(self, key: tuple[State, int], over: Starts) -> None:
        """Drop the first starts of a group; those that have a match already end with it."""
        starts = self._live[key]
        for _ in over:
            starts.popleft()
        self.dropped += len(over)
        if key[1] >= 0:
            self._done.append((key[1], over))
        else:
            self._count -= len(over)
        if not starts:
            del self._live[key]

    def _forget(self) -> None:
        self._base += len(self._rows)
        self._rows.clear()
        self._deadline = partial.NEVER
        self._compacted = 0

    def dump(self) -> Any:
        """Return what must be kept, as plain values, or None if nothing is under way."""
        if not self._count:
            return None
        everyone = [*self._live.values(), *[starts for _, starts in self._done]]
        first = min(starts[0] for starts in everyone)
        rows = list(enumerate(self._rows[first - self._base :], first))
        if self._table.has_gaps and self._count <= _FEW and len(rows) > _MANY + 2 * self._compacted:
            rows = self._compact(rows)
            self._compacted = len(rows)
        place = {number: at for at, (number, _) in enumerate(rows)}
        live = [
            [state.threads, place.get(best, -1), [place[start] for start in starts]]
            for (state, best), starts in self._live.items()
        ]
        done = [[place[best], [place[start] for start in starts]] for best, starts in self._done]
        return [[row for _, row in rows], live, done, self._compacted]

    def _compact(self, rows: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
        starts = [(start, partial.NEVER) for starts in self._live.values() for start in starts]
        starts += [(start, best) for best, starts in self._done for start in starts]
        needed = needed_rows(self._table, rows, starts)
        return [each for each in rows if each[0] in needed]

    def load(self, dumped: Any) -> None:
        """Go on from what `dump` gave."""
        self._rows, live, done, self._compacted = dumped
        for threads, best, starts in live:
            state = self._table.state(tuple([(at, never) for at, never in threads]))
            self._live[state, best] = deque(starts)
            self._count += len(starts)
        for best, starts in done:
            self._done.append((best, deque(starts)))
            self._count += len(starts)
        if self._within is not None and self._live:
            first = min(starts[0] for starts in self._live.values())
            self._deadline = self._time(first) + self._within
