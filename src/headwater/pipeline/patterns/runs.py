"""The partial matches of a key one by one, where what a row does depends on the rows before it.

That is so with conditions on earlier rows, with a negation that time completes, and where every match is wanted.
A *run* is a place in the automaton, the rows taken so far (a chain whose beginnings runs share), and a memory for
the conditions. The runs from one start are in order of preference. Of two with the same place and memory only the
preferred one is kept, unless every match is wanted: both would go on alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headwater.pipeline.patterns import partial
from headwater.pipeline.patterns.automaton import ACCEPT, Automaton, Gap, Hold, Take
from headwater.pipeline.patterns.partial import NEVER, Chain, Run, Start, Taken, tuples
from headwater.pipeline.patterns.skip import Skip, SkipTo
from headwater.pipeline.patterns.values import Memory, Row

__all__ = ["Conditions", "Runs"]


class Conditions(NamedTuple):
    """What symbols ask of the rows before: tests by symbol, and how each symbol changes a memory."""

    tests: tuple[Callable[[Row, Memory], bool] | None, ...]
    takers: tuple[Callable[[Memory, Row], Memory] | None, ...]
    empty: Memory


class Runs:
    """What is under way for one key."""

    def __init__(
        self,
        automaton: Automaton,
        conditions: Conditions,
        skip: Skip,
        within: int | None,
        limit: int,
        report: Callable[[list[tuple[Row, int]]], None],
    ) -> None:
        self._automaton = automaton
        self._conditions = conditions
        self._skip = skip
        self._within = within
        self._limit = limit
        self._report = report
        self._every = skip.to is SkipTo.NO_SKIP
        self._starts: list[Start] = []
        self._next = 0  # the number of the next row
        self._deadline = NEVER
        self._firsts = 0  # the symbols that a match can begin with
        for place, _ in automaton.start:
            take = automaton.places[place]
            if isinstance(take, Take):
                self._firsts |= 1 << take.symbol
        self._reported: set[tuple[tuple[int, int], ...]] = set()
        self.dropped = 0

    @property
    def due(self) -> int | None:
        """The time after which something expires, or completes."""
        return None if self._deadline == NEVER else self._deadline

    def feed(self, rows: list[Row]) -> None:
        """Take rows in the order of their times."""
        for row in rows:
            if row[0] > self._deadline:
                self.expire(row[0])
            if self._starts or row[3] & self._firsts:
                self._take(row)

    def _take(self, row: Row) -> None:
        self._reported.clear()
        finished = False
        for start in self._starts:
            if start.runs:
                runs, start.runs = start.runs, []
                self._advance(start, runs, row)
                finished = finished or not start.runs
        if row[3] & self._firsts:
            start = Start(self._next, row[0])
            empty = self._conditions.empty
            firsts = [Run(place, never, None, empty, NEVER) for place, never in self._automaton.start]
            self._advance(start, firsts, row)
            if start.runs or start.best is not None:
                self._starts.append(start)
                finished = finished or not start.runs
                if self._within is not None and start.runs:
                    self._deadline = min(self._deadline, row[0] + self._within)
        self._next += 1
        if finished:
            self._resolve()
        if sum(len(start.runs) for start in self._starts) > self._limit:
            self._drop()

    def _advance(self, start: Start, runs: list[Run], row: Row) -> None:
        """Take a row into the runs of a start; a match that ends cuts off what is less preferred."""
        seen: set[Any] = set()
        for run in runs:
            mask, place = row[3], self._automaton.places[run.place]
            if run.never and self._is_any(run.never, run.memory, row):
                continue
            if isinstance(place, Take):
                if mask >> place.symbol & 1:
                    memory = self._test(place.symbol, run.memory, row)
                    if memory is not None and self._enter(start, place, run, memory, row, seen):
                        return
            elif isinstance(place, Hold):
                if not self._is_any(place.never, run.memory, row):
                    self._add(start, run._replace(never=0), seen)
            elif isinstance(place, Gap) and not (place.never and self._is_any(place.never, run.memory, row)):
                took = False
                for at, never in self._automaton.after[place.then]:
                    take = self._automaton.places[at]
                    if not isinstance(take, Take) or not mask >> take.symbol & 1:
                        continue
                    if never and self._is_any(never, run.memory, row):
                        continue
                    memory = self._test(take.symbol, run.memory, row)
                    if memory is not None:
                        took = True
                        if self._enter(start, take, run, memory, row, seen):
                            return
                if place.any or not (took or self._leaves(place, run.memory, row)):
                    self._add(start, run._replace(never=0), seen)

    def _leaves(self, gap: Gap, memory: Memory, row: Row) -> bool:
        """Tell whether a row that a round would leave out fits what comes after the repetition."""
        if self._every:
            return False
        for at, never in self._automaton.leaving.get(gap.leave, ()):
            take = self._automaton.places[at]
            if not isinstance(take, Take) or not row[3] >> take.symbol & 1:
                continue
            fits = self._test(take.symbol, memory, row) is not None
            if fits and not (never and self._is_any(never, memory, row)):
                return True
        return False

    def _enter(self, start: Start, take: Take, run: Run, memory: Memory, row: Row, seen: set[Any]) -> bool:
        """Go on behind a row that was taken; return whether a match ends there, and with it this start's search."""
        taken = Taken(self._next, row, take.symbol, run.taken)
        for at, never in self._automaton.after[take.then]:
            if at == ACCEPT:
                if not self._every:
                    start.best = taken
                    return True
                self._emit(taken)
                continue
            place, until = self._automaton.places[at], NEVER
            if isinstance(place, Hold):
                until = row[0] + place.micros
                self._deadline = min(self._deadline, until)
            self._add(start, Run(at, never, taken, memory, until), seen)
        return False

    def _add(self, start: Start, run: Run, seen: set[Any]) -> None:
        if not self._every:
            alike = (run.place, run.never, run.memory, run.until)
            if alike in seen:
                return
            seen.add(alike)
        start.runs.append(run)

    def _test(self, symbol: int, memory: Memory, row: Row) -> Memory | None:
        """Return the memory with the row taken for a symbol that holds by itself, None if its condition says no."""
        take, test = self._conditions.takers[symbol], self._conditions.tests[symbol]
        if take is not None:
            memory = take(memory, row)
        return memory if test is None or test(row, memory) else None

    def _is_any(self, never: int, memory: Memory, row: Row) -> bool:
        found = row[3] & never
        while found:
            lowest = found & -found
            if self._test(lowest.bit_length() - 1, memory, row) is not None:
                return True
            found ^= lowest
        return False

    def expire(self, now: int) -> None:
        """End what no row from `now` on can complete, and complete what waited for time to pass."""
        if now <= self._deadline:
            return
        self._reported.clear()
        self._deadline = NEVER
        ended: list[tuple[int, int, int, Taken]] = []
        for start in self._starts:
            self._expire(start, now, ended)
        # In the order in which time completed them, so that it is the same however time was cut into batches.
        for _, _, _, taken in sorted(ended, key=lambda each: each[:3]):
            self._emit(taken)
        self._resolve()

    def _expire(self, start: Start, now: int, ended: list[tuple[int, int, int, Taken]]) -> None:
        over = NEVER if self._within is None else start.time + self._within
        latest = 0
        runs, start.runs = start.runs, []
        for number, run in enumerate(runs):
            until = over if run.until == NEVER else run.until
            if until >= now:
                start.runs.append(run)
                self._deadline = min(self._deadline, until)
                continue
            latest = max(latest, until)
            if run.until < now and run.taken is not None:
                if not self._every:
                    start.best = run.taken
                    break
                ended.append((until, start.number, number, run.taken))
        if self._skip.to is SkipTo.NEXT_ROW and start.best is not None and not start.runs:
            ended.append((latest, start.number, 0, start.best))
            start.best = None

    def _resolve(self) -> None:
        """Report the matches that nothing before them can change any more, in the order of their starts."""
        waiting: list[Start] = []
        resume = 0
        for place, start in enumerate(self._starts):
            if start.number < resume:
                continue
            if start.runs:
                waiting.append(start)
                if self._skip.to not in (SkipTo.NEXT_ROW, SkipTo.NO_SKIP):
                    waiting += [each for each in self._starts[place + 1 :] if each.runs or each.best]
                    break
            elif start.best is not None:
                numbers = self._emit(start.best)
                if self._skip.to is not SkipTo.NEXT_ROW:
                    resume = self._skip.resume(numbers)
        self._starts = waiting

    def _emit(self, taken: Taken) -> list[tuple[int, int]]:
        path: list[Taken] = []
        node: Taken | None = taken
        while node is not None:
            path.append(node)
            node = node.before
        path.reverse()
        numbers = [(each.number, each.symbol) for each in path]
        if self._every:
            # Where a pattern is ambiguous, several runs may have taken the same rows alike.
            if tuple(numbers) in self._reported:
                return numbers
            self._reported.add(tuple(numbers))
        self._report([(each.row, each.symbol) for each in path])
        return numbers

    def _drop(self) -> None:
        """Give up the partial matches that began first; of a single start, those that are least preferred."""
        excess = sum(len(start.runs) for start in self._starts) - self._limit
        alive = [start for start in self._starts if start.runs]
        for start in alive[:-1]:
            if excess <= 0:
                break
            excess -= len(start.runs)
            self.dropped += len(start.runs)
            start.runs = []
        if excess > 0:
            self.dropped += excess
            del alive[-1].runs[self._limit :]
        self._resolve()

    def shed(self) -> None:
        """Give up the partial matches that began first while together they hold more than `MOST_ROWS` rows."""
        # A start holds at most the rows since it, for each of its runs.
        while (
            sum((self._next - start.number) * (len(start.runs) + 1) for start in self._starts)
            > partial.MOST_ROWS
        ):
            if self._held() <= partial.MOST_ROWS:
                return
            for start in self._starts[: (len(self._starts) + 1) // 2]:
                self.dropped += len(start.runs)
                start.runs = []
            self._resolve()

    def _held(self) -> int:
        chain = Chain()
        for start in self._starts:
            for taken in [start.best, *[run.taken for run in start.runs]]:
                chain.place(taken)
        return len(chain.taken)

    def dump(self) -> Any:
        """Return what must be kept, as plain values, or None if nothing is under way."""
        if not self._starts:
            return None
        chain = Chain()
        starts = [
            [
                start.number,
                start.time,
                chain.place(start.best),
                [[run.place, run.never, chain.place(run.taken), run.memory, run.until] for run in start.runs],
            ]
            for start in self._starts
        ]
        return [self._next, chain.rows, chain.taken, starts]

    def load(self, dumped: Any) -> None:
        """Go on from what `dump` gave."""
        self._next, rows, taken, starts = dumped
        chain: list[Taken | None] = [None]
        for number, row, symbol, before in taken:
            chain.append(Taken(number, rows[row], symbol, chain[before]))
        for number, time, best, runs in starts:
            start = Start(number, time)
            start.best = chain[best]
            start.runs = [
                Run(place, never, chain[node], tuples(memory), until)
                for place, never, node, memory, until in runs
            ]
            self._starts.append(start)
            over = NEVER if self._within is None else time + self._within
            untils = [over if run.until == NEVER else run.until for run in start.runs]
            self._deadline = min([self._deadline, *untils])
