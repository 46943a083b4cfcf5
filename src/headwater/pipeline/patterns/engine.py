"""`match` for one key: rows wait until the watermark has passed them, then meet the partial matches in order.

A row is (time in µs, partition, offset, mask, values…): its time, its place in the log, which decides between
rows of the same time, the symbols that hold for it by themselves, the first of the pattern in the lowest bit, and
the columns that conditions and measures name. Since rows are taken in that order, whatever the order in which they
came, the results are the same for every arrival order within the lateness and every cut into batches.

A result is (dropped, key…, measures…). `dropped` is 0 in a match; a row in which it is not says how many partial
matches were given up since the last one because there were more than the limit, and has nothing else but the key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack
from headwater.pipeline.patterns.automaton import compile_pattern
from headwater.pipeline.patterns.conditions import Measures, Program, compile_conditions, compile_measures
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.groups import Groups
from headwater.pipeline.patterns.runs import Runs
from headwater.pipeline.patterns.skip import SkipTo, parse_skip
from headwater.pipeline.patterns.table import Table
from headwater.pipeline.patterns.values import COLUMNS, Memory, Row, Value

__all__ = ["DEFAULT_LIMIT", "DEFAULT_MEASURES", "Match"]

DEFAULT_LIMIT: Final = 10_000
DEFAULT_MEASURES: Final = {"start": "start()", "end": "end()", "rows": "count(*)"}
_ORDER: Final = itemgetter(0, 1, 2)
_TIME: Final = itemgetter(0)


class Match(Logic):
    """The logic of `match`: what becomes of a key's rows, without Spark and without a clock.

    `columns` are the values in a row, in order. `conditions` holds, by symbol, what Spark cannot evaluate, as text;
    both it and the symbol's bit must hold. `within` is in µs, from the first row of a match to its last, inclusive.
    """

    def __init__(
        self,
        pattern: str,
        columns: Sequence[str] = (),
        *,
        conditions: Mapping[str, str] | None = None,
        within: int | None = None,
        measures: Mapping[str, str] | None = None,
        skip: str = "past last row",
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._declared = (pattern, tuple(columns), dict(conditions or {}), within, measures, skip, limit)
        self._compile()

    def _compile(self) -> None:
        pattern, columns, conditions, within, measures, skip, limit = self._declared
        if within is not None and within < 0:
            raise PatternError(f"within={within} µs is negative; give a duration, as in within='10 minutes'")
        if limit < 1:
            raise PatternError(f"limit={limit} allows no partial match; give at least 1")
        self._automaton = compile_pattern(pattern)
        self.symbols = self._automaton.symbols
        """The symbols of the pattern, in the order of their bits."""
        self._skip = parse_skip(skip, self.symbols)
        self._within, self._limit = within, limit
        self._program: Program = compile_conditions(conditions, self.symbols, columns)
        self._measures = compile_measures(measures or DEFAULT_MEASURES, self.symbols, columns)
        self.measures = tuple(self._measures.names)
        """The names of the results behind `dropped` and the key."""
        plain = (
            self._program.tests is None
            and not self._automaton.has_holds
            and self._skip.to is not SkipTo.NO_SKIP
        )
        self._table = Table(self._automaton) if plain else None

    def __getstate__(self) -> Any:
        return self._declared

    def __setstate__(self, declared: Any) -> None:
        self._declared = declared
        self._compile()

    def types(self, columns: Mapping[str, str]) -> tuple[str, ...]:
        """Return the types of the measures, by the names of Spark's, for columns of these types.

        It raises `PatternError` where a condition or measure does not fit them. Times and what is computed from them
        alone are in µs in the engine: the caller turns them into timestamps where a type says so.
        """
        self._program.check(columns)
        return self._measures.types(columns)

    def step(
        self, key: tuple[Any, ...], state: bytes | None, rows: list[tuple[Any, ...]], watermark: int
    ) -> Step:
        """Take a key's new rows, and return the matches that the watermark makes final.

        A key of which a part is null gets no results: null is not equal to itself, so its rows belong together
        no more than those of different keys.
        """
        if None in key:
            return Step(None, [])
        passed, number, before, waiting, dumped = unpack(state) if state is not None else _FRESH
        if passed > watermark:
            watermark = passed
        waiting = (
            [*waiting, *rows] if state is None else [*waiting, *[row for row in rows if row[0] >= passed]]
        )
        waiting.sort(key=_ORDER)
        cut = _cut(waiting, watermark)
        out: list[tuple[Any, ...]] = []
        if not cut and dumped is None:
            return self._keep(watermark, number, before, waiting, None, None, out)
        report = _Report(self._measures, key, number, out)
        live = self._live(report)
        if dumped is not None:
            live.load(dumped)
        if cut:
            ready, waiting = waiting[:cut], waiting[cut:]
            ready, before = self._prepared(ready, before)
            live.feed(ready)
        live.expire(watermark)
        live.shed()
        if live.dropped:
            out.append((live.dropped, *key, *[None] * len(self.measures)))
        return self._keep(watermark, report.number, before, waiting, live.dump(), live.due, out)

    def _live(self, report: _Report) -> Groups | Runs:
        if self._table is not None:
            by_symbol = self._measures.by_symbol
            return Groups(self._table, self._skip, self._within, self._limit, report, by_symbol=by_symbol)
        return Runs(
            self._automaton, self._program.conditions(), self._skip, self._within, self._limit, report
        )

    def _prepared(self, rows: list[Row], before: Any) -> tuple[list[Row], Any]:
        """Return rows with values of the row before, and with the symbols ruled out by conditions on both."""
        places, local = self._program.before, self._program.local
        if not places and not local:
            return rows, before
        prepared: list[Row] = []
        for row in rows:
            if places:
                row = (*row, *(before or [None] * len(places)))
                before = [row[place] for place in places]
            mask = row[3]
            for symbol, test in local:
                if mask >> symbol & 1 and not test(row, ()):
                    mask ^= 1 << symbol
            prepared.append(row if mask == row[3] else (*row[:3], mask, *row[COLUMNS:]))
        return prepared, before

    def _keep(
        self,
        watermark: int,
        number: int,
        before: Any,
        waiting: list[Row],
        dumped: Any,
        due: int | None,
        out: list[tuple[Any, ...]],
    ) -> Step:
        if not self._measures.numbered:
            number = 0
        if not waiting and dumped is None and not number and before is None:
            return Step(None, out)
        if waiting and (due is None or waiting[0][0] < due):
            due = waiting[0][0]
        return Step(pack([watermark, number, before, waiting, dumped]), out, due)


_FRESH: Final = (-(2**63), 0, None, (), None)


def _cut(rows: list[Row], watermark: int) -> int:
    """Return how many of the sorted rows the watermark has passed."""
    if not rows or rows[-1][0] < watermark:
        return len(rows)
    return bisect_left(rows, watermark, key=_TIME)


class _Report:
    """Turns the rows of matches into results."""

    __slots__ = ("_key", "_measures", "_out", "number")

    def __init__(
        self, measures: Measures, key: tuple[Any, ...], number: int, out: list[tuple[Any, ...]]
    ) -> None:
        self._measures = measures
        self._key = key
        self._out = out
        self.number = number

    def __call__(self, rows: list[tuple[Row, int]]) -> None:
        self.number += 1
        last = rows[-1][0]
        memory = (*self._measures.slots.fold(rows), self.number)
        self._out.append((0, *self._key, *[_safely(value, last, memory) for value in self._measures.values]))


def _safely(value: Value, row: Row, memory: Memory) -> Any:
    try:
        return value(row, memory)
    except (TypeError, OverflowError):
        return None
