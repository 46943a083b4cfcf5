"""Expressions as functions of a row and of what a partial match remembers of its rows.

What conditions ask of earlier rows is kept as one tuple, a *memory*: a slot for each aggregate that any of them
names. Taking a row for a symbol makes a new one, in time that does not grow with the match. The row that is tested
counts as a row of the symbol that it is tested for, as in SQL, so `last(A.x)` in the condition of A is its own x.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.expressions import (
    CLASSIFIER,
    TIME,
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
)

__all__ = ["COLUMNS", "Memory", "Row", "Slots", "Value", "bind", "holds", "time_places"]

Row = Sequence[Any]
"""Time in µs, partition, offset, mask of the symbols that hold, then the values of the columns."""
COLUMNS: Final = 4
"""Where the values begin in a row."""
Memory = tuple[Any, ...]
Value = Callable[[Row, Memory], Any]

_MOST: Final = 2**63


def _add(old: Any, value: Any) -> Any:
    total = value if old is None else old + value
    # State and results are 64 bits wide.
    return float(total) if isinstance(total, int) and not -_MOST <= total < _MOST else total


def _sum(values: list[Any]) -> Any:
    total = None
    for value in values:
        total = _add(total, value)
    return total


_STEPS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": _add,
    "count": lambda old, _: old + 1,
    "min": lambda old, value: value if old is None or value < old else old,
    "max": lambda old, value: value if old is None or value > old else old,
}
_FOLDS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "sum": _sum,
    "count": len,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
}


class Slots:
    """The aggregates that expressions name, each with its place in a memory."""

    def __init__(self, symbols: tuple[str, ...], places: dict[str, int]) -> None:
        self._symbols = symbols
        self._places = places
        self._slots: dict[Aggregate, int] = {}

    @property
    def symbols(self) -> int:
        """How many symbols there are."""
        return len(self._symbols)

    def place(self, aggregate: Aggregate) -> int:
        """Return where an aggregate stands, and make room for it if it has none."""
        return self._slots.setdefault(aggregate, len(self._slots))

    @property
    def empty(self) -> Memory:
        """What is remembered before the first row."""
        return tuple([_empty(slot) for slot in self._slots])

    def takers(self) -> list[Callable[[Memory, Row], Memory] | None]:
        """Return for each symbol how a memory changes with a row that is taken for it, None if it does not."""
        return [self._taker(number, name) for number, name in enumerate(self._symbols)]

    def _taker(self, number: int, symbol: str) -> Callable[[Memory, Row], Memory] | None:
        changes = [
            (place, self.reader(slot, number), _step(slot), slot.function in ("first", "last"))
            for slot, place in self._slots.items()
            if slot.symbol in (None, symbol)
        ]
        if not changes:
            return None

        def take(memory: Memory, row: Row) -> Memory:
            new = list(memory)
            for place, read, step, nulls in changes:
                value = read(row)
                if nulls or value is not None:
                    new[place] = step(new[place], value)
            return tuple(new)

        return take

    def reader(self, slot: Aggregate, number: int) -> Callable[[Row], Any]:
        """Return how to read what an aggregate is over from a row that was taken for the symbol `number`."""
        if slot.column is None:
            return lambda _: 1
        if slot.column == CLASSIFIER:
            name = self._symbols[number]
            return lambda _: name
        return operator.itemgetter(self._places[slot.column])

    def fold(self, rows: list[tuple[Row, int]]) -> Memory:
        """Return what is remembered of a whole match: rows, each with the number of its symbol."""
        return tuple([self._fold(slot, rows) for slot in self._slots])

    def _fold(self, slot: Aggregate, rows: list[tuple[Row, int]]) -> Any:
        if slot.symbol is not None:
            number = self._symbols.index(slot.symbol)
            rows = [each for each in rows if each[1] == number]
        if slot.column is None:
            return len(rows)
        if slot.function in ("first", "last"):
            rows = rows[: slot.back + 1] if slot.function == "first" else rows[-slot.back - 1 :]
        if slot.column == CLASSIFIER:
            values: list[Any] = [self._symbols[symbol] for _, symbol in rows]
        else:
            place = self._places[slot.column]
            values = [row[place] for row, _ in rows]
        if slot.function in ("first", "last"):
            return tuple(values)
        if slot.function == "collect":
            return values
        return _FOLDS[slot.function]([value for value in values if value is not None])


def _empty(slot: Aggregate) -> Any:
    return 0 if slot.function == "count" else () if slot.function in ("first", "last") else None


def _step(slot: Aggregate) -> Callable[[Any, Any], Any]:
    size = slot.back + 1
    if slot.function == "first":
        return lambda old, value: old if len(old) == size else (*old, value)
    if slot.function == "last":
        return lambda old, value: (*old[-slot.back :], value) if slot.back else (value,)
    return _STEPS[slot.function]


def holds(condition: Value) -> Callable[[Row, Memory], bool]:
    """Return a condition as a plain test: unknown, and values that cannot be compared, are no."""

    def test(row: Row, memory: Memory) -> bool:
        try:
            return condition(row, memory) is True
        except (TypeError, OverflowError):
            return False

    return test


def bind(expression: Expression, slots: Slots, places: dict[str, int], before: dict[str, int]) -> Value:
    """Return an expression as a function.

    `places` says where a column stands in a row, `before` where that of the row before does.
    """
    match expression:
        case Literal(value):
            return lambda _row, _memory: value
        case Column(name, previous):
            place = (before if previous else places)[name]
            return lambda row, _memory: row[place]
        case Aggregate():
            return _aggregate(expression, slots)
        case Call("match_number"):
            return lambda _row, memory: memory[-1]
        case Call(name, arguments):
            return _call(name, [bind(each, slots, places, before) for each in arguments])


def _aggregate(slot: Aggregate, slots: Slots) -> Value:
    if slot.function == "avg":
        total = slots.place(Aggregate("sum", slot.symbol, slot.column))
        count = slots.place(Aggregate("count", slot.symbol, slot.column))
        return lambda _row, memory: memory[total] / memory[count] if memory[count] else None
    place, back = slots.place(slot), slot.back
    if slot.function == "first":
        return lambda _row, memory: memory[place][back] if len(memory[place]) > back else None
    if slot.function == "last":
        return lambda _row, memory: memory[place][-back - 1] if len(memory[place]) > back else None
    return lambda _row, memory: memory[place]


_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else None,
    "%": lambda left, right: _remainder(left, right) if right else None,
}
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {"abs": abs, "lower": str.lower, "upper": str.upper}


def _remainder(left: Any, right: Any) -> Any:
    """Return the remainder with the sign of the left side, as SQL and Spark do."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _call(name: str, arguments: list[Value]) -> Value:
    if name in ("and", "or"):
        return _logical(*arguments, decides=name == "or")
    if name in _BINARY:
        return _binary(_BINARY[name], *arguments)
    first = arguments[0]
    if name == "not":
        return lambda row, memory: None if (value := first(row, memory)) is None else not value
    if name == "is null":
        return lambda row, memory: first(row, memory) is None
    if name == "is not null":
        return lambda row, memory: first(row, memory) is not None
    if name == "in":
        return _logical_in(first, arguments[1:])
    if name == "coalesce":
        return lambda row, memory: next(
            (value for each in arguments if (value := each(row, memory)) is not None), None
        )
    if name in _UNARY:
        function = _UNARY[name]
        return lambda row, memory: None if (value := first(row, memory)) is None else function(value)
    raise PatternError(f"there is no function {name!r}")


def _binary(function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    def compute(row: Row, memory: Memory) -> Any:
        one, other = left(row, memory), right(row, memory)
        return None if one is None or other is None else function(one, other)

    return compute


def _logical(left: Value, right: Value, *, decides: bool) -> Value:
    """Return `and` or `or` of three values: true, false and unknown."""

    def compute(row: Row, memory: Memory) -> Any:
        one = left(row, memory)
        if one is decides:
            return decides
        other = right(row, memory)
        if other is decides:
            return decides
        return None if one is None or other is None else not decides

    return compute


def _logical_in(value: Value, options: list[Value]) -> Value:
    def compute(row: Row, memory: Memory) -> Any:
        one = value(row, memory)
        if one is None:
            return None
        found = [option(row, memory) for option in options]
        return True if one in found else None if None in found else False

    return compute


def time_places(columns: Sequence[str]) -> dict[str, int]:
    """Return where each column, and the time, stand in a row."""
    return {TIME: 0, **{name: COLUMNS + number for number, name in enumerate(columns)}}
