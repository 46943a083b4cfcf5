"""The conditions and measures of a pattern, compiled.

A condition that names nothing but columns of its own row, or of the row before it, is decided once for each row,
ahead of the automaton. Only the others make partial matches differ, and are tested for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.pipeline.patterns import expressions
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.expressions import Aggregate, Call, Column, Expression, Literal
from headwater.pipeline.patterns.runs import Conditions
from headwater.pipeline.patterns.types import type_of
from headwater.pipeline.patterns.values import COLUMNS, Memory, Row, Slots, Value, bind, holds, time_places

__all__ = ["Measures", "Program", "compile_conditions", "compile_measures", "needed_columns"]

Test = Callable[[Row, Memory], bool]
_NO_CONDITION = frozenset({"+", "-", "*", "/", "%", "abs", "lower", "upper"})


@dataclass(frozen=True)
class Program:
    """What is asked of rows: `local` once for each, `tests` for each partial match, None if nobody asks."""

    local: tuple[tuple[int, Test], ...]
    before: tuple[int, ...]
    """Where the values stand that the next row needs."""
    tests: tuple[Test | None, ...] | None
    slots: Slots
    trees: Mapping[str, Expression]

    def check(self, columns: Mapping[str, str]) -> None:
        """Raise `PatternError` if a condition does not fit the types of the columns."""
        for name, tree in self.trees.items():
            if _typed(f"the condition of {name}", tree, columns) not in ("boolean", "void"):
                raise PatternError(
                    f"the condition of {name} is a value and no condition; compare it, as in … > 0"
                )

    def conditions(self) -> Conditions:
        """Return what runs need to know."""
        nothing = (None,) * self.slots.symbols
        return Conditions(self.tests or nothing, tuple(self.slots.takers()), self.slots.empty)


@dataclass(frozen=True)
class Measures:
    """What is reported of a match."""

    names: tuple[str, ...]
    values: tuple[Value, ...]
    trees: tuple[Expression, ...]
    slots: Slots
    numbered: bool
    by_symbol: bool
    """Whether it matters which row was taken for which symbol."""

    def types(self, columns: Mapping[str, str]) -> tuple[str, ...]:
        """Return their types by those of the columns, or raise `PatternError`."""
        return tuple(
            [
                _typed(f"measure {name}", tree, columns)
                for name, tree in zip(self.names, self.trees, strict=True)
            ]
        )


def compile_conditions(
    conditions: Mapping[str, str], symbols: tuple[str, ...], columns: tuple[str, ...]
) -> Program:
    """Return the conditions of symbols, by the symbols' numbers, or raise `PatternError`."""
    unknown = [name for name in conditions if name not in symbols]
    if unknown:
        raise PatternError(
            f"define= has {', '.join(unknown)}, which the pattern has not; its symbols are {', '.join(symbols)}"
        )
    trees = {name: _own(_condition(name, text, symbols, columns), name) for name, text in conditions.items()}
    places = time_places(columns)
    names = list(dict.fromkeys(name for tree in trees.values() for name in _before(tree)))
    before = {name: COLUMNS + len(columns) + number for number, name in enumerate(names)}
    slots = Slots(symbols, places)
    local: list[tuple[int, Test]] = []
    tests: list[Test | None] = [None] * len(symbols)
    for name, tree in trees.items():
        test = holds(bind(tree, slots, places, before))
        if _aggregates(tree):
            tests[symbols.index(name)] = test
        else:
            local.append((symbols.index(name), test))
    return Program(
        tuple(local),
        tuple([places[name] for name in names]),
        tuple(tests) if any(tests) else None,
        slots,
        trees,
    )


def compile_measures(
    measures: Mapping[str, str], symbols: tuple[str, ...], columns: tuple[str, ...]
) -> Measures:
    """Return what measures, by their names, are of a match, or raise `PatternError`."""
    places = time_places(columns)
    slots = Slots(symbols, places)
    values, trees, numbered = [], [], False
    for name, text in measures.items():
        tree = _named(f"measure {name}", text, symbols, columns)
        if _before(tree):
            raise PatternError(
                f"measure {name}: prev is for conditions; use first or last, as in last(price, 1)"
            )
        if bare := _bare(tree):
            raise PatternError(f"measure {name}: which row's {bare[0]}? write last({bare[0]}) or A.{bare[0]}")
        numbered = numbered or any(each == Call("match_number", ()) for each in _walk(tree))
        values.append(bind(tree, slots, places, {}))
        trees.append(tree)
    by_symbol = any(
        isinstance(each, Aggregate) and (each.symbol is not None or each.column == expressions.CLASSIFIER)
        for tree in trees
        for each in _walk(tree)
    )
    return Measures(tuple(measures), tuple(values), tuple(trees), slots, numbered, by_symbol)


def needed_columns(
    conditions: Mapping[str, str],
    measures: Mapping[str, str],
    symbols: tuple[str, ...],
    columns: tuple[str, ...],
) -> tuple[str, ...]:
    """Return those of the stream's columns that conditions and measures name, in the stream's order."""
    found = {
        each.column if isinstance(each, Aggregate) else each.name
        for text in [*conditions.values(), *measures.values()]
        for each in _walk(expressions.parse(text, symbols, columns))
        if isinstance(each, Aggregate | Column)
    }
    return tuple([name for name in columns if name in found])


def _typed(what: str, tree: Expression, columns: Mapping[str, str]) -> str:
    try:
        return type_of(tree, columns)
    except PatternError as error:
        raise PatternError(f"{what}: {error}") from None


def _named(what: str, text: str, symbols: tuple[str, ...], columns: tuple[str, ...]) -> Expression:
    try:
        return expressions.parse(text, symbols, columns)
    except PatternError as error:
        raise PatternError(f"{what}: {error}") from None


def _condition(name: str, text: str, symbols: tuple[str, ...], columns: tuple[str, ...]) -> Expression:
    tree = _named(f"the condition of {name}", text, symbols, columns)
    for each in _walk(tree):
        if isinstance(each, Aggregate) and each.function == "collect":
            raise PatternError(
                f"the condition of {name}: collect is for measures; compare with first, last or sum"
            )
        if each == Call("match_number", ()):
            raise PatternError(f"the condition of {name}: match_number() is for measures; leave it out")
    value = isinstance(tree, Literal) and not isinstance(tree.value, bool)
    number = isinstance(tree, Aggregate) and tree.function in ("sum", "count", "avg")
    if value or number or (isinstance(tree, Call) and tree.name in _NO_CONDITION):
        raise PatternError(
            f"the condition of {name}: {text!r} is a value and no condition; compare it, as in … > 0"
        )
    return tree


def _own(tree: Expression, symbol: str) -> Expression:
    """Return a condition in which the last row of the symbol itself is the row that is tested, as it is."""
    match tree:
        case Aggregate("last", of, column, 0) if of in (symbol, None) and column in _columns_of(tree):
            return Column(column)
        case Call(name, arguments):
            return Call(name, tuple([_own(each, symbol) for each in arguments]))
        case _:
            return tree


def _columns_of(tree: Aggregate) -> tuple[str, ...]:
    return (tree.column,) if tree.column is not None and tree.column != expressions.CLASSIFIER else ()


def _walk(tree: Expression) -> list[Expression]:
    below = tree.arguments if isinstance(tree, Call) else ()
    return [tree, *[each for argument in below for each in _walk(argument)]]


def _before(tree: Expression) -> list[str]:
    return [each.name for each in _walk(tree) if isinstance(each, Column) and each.before]


def _bare(tree: Expression) -> list[str]:
    return [each.name for each in _walk(tree) if isinstance(each, Column)]


def _aggregates(tree: Expression) -> bool:
    return any(isinstance(each, Aggregate) for each in _walk(tree))
