"""The language of conditions and measures: SQL's expressions over a row and the rows matched before it.

    price > last(A.price)                  columns of the row; first and last values of a symbol
    amount > 2 * avg(A.amount) and status <> 'test'
    at - first(A.at) <= 5 minutes          times and durations are in microseconds
    price < prev(price)                    the row before this one, matched or not

    or, and, not, = <> != < <= > >=, is [not] null, [not] in (…), [not] between … and …, + - * / %
    numbers, 'text', true, false, null, 5 minutes; columns, `odd names` in backquotes, A.column
    first last sum count avg min max collect prev; start() end() classifier() match_number()
    abs coalesce lower upper

`A.price` alone is last(A.price), as in SQL. An aggregate without a symbol is over all rows of the match. Nulls are
as in SQL: a comparison with null is unknown, and a condition that is unknown does not hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from headwater.app.durations import milliseconds
from headwater.core.errors import SettingError
from headwater.pipeline.patterns.errors import PatternError

__all__ = ["CLASSIFIER", "TIME", "Aggregate", "Call", "Column", "Expression", "Literal", "parse"]

TIME: Final = "\0time"
"""Stands for the row's time where a column's name does."""
CLASSIFIER: Final = "\0classifier"
"""Stands for the symbol that a row was taken for."""
AGGREGATES: Final = ("first", "last", "sum", "count", "avg", "min", "max", "collect")
SCALARS: Final = {"abs": 1, "lower": 1, "upper": 1, "coalesce": None}
PLAIN: Final = {"start": ("first", TIME), "end": ("last", TIME), "classifier": ("last", CLASSIFIER)}
_WORDS: Final = frozenset({"and", "or", "not", "is", "in", "between", "null", "true", "false"})
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>'(?:[^']|'')*')|`(?P<odd>[^`]+)`
    |(?P<name>[A-Za-z_]\w*)|(?P<mark><=|>=|<>|!=|==|[-+*/%=<>().,]))""",
    re.VERBOSE,
)
_LONGEST: Final = 10_000
_DEEPEST: Final = 50


@dataclass(frozen=True)
class Literal:
    """A value that is written down."""

    value: Any


@dataclass(frozen=True)
class Column:
    """A column of the row that is looked at, or with `before` of the row before it."""

    name: str
    before: bool = False


@dataclass(frozen=True)
class Aggregate:
    """A function over the rows of a symbol, or of the whole match; `column` None counts rows."""

    function: str
    symbol: str | None
    column: str | None
    back: int = 0


@dataclass(frozen=True)
class Call:
    """An operator or a function of values."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Literal | Column | Aggregate | Call


def parse(text: str, symbols: tuple[str, ...], columns: tuple[str, ...]) -> Expression:
    """Return the tree of an expression, or raise `PatternError` with the place and the way out.

    >>> parse("price > last(A.price)", ("A",), ("price",)).arguments[1]
    Aggregate(function='last', symbol='A', column='price', back=0)
    """
    if not isinstance(text, str) or not text.strip():
        raise PatternError(f'{text!r} is no expression; write one as in "price > last(A.price)"')
    if len(text) > _LONGEST:
        raise PatternError(f"the expression has {len(text)} characters; {_LONGEST} are allowed")
    return _Parser(text, symbols, columns).whole()


def is_unit(name: str) -> bool:
    """Tell whether a name is a unit of time."""
    try:
        milliseconds(f"1 {name}")
    except SettingError:
        return False
    return True


class _Parser:
    def __init__(self, text: str, symbols: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self._text = text
        self._symbols = symbols
        self._columns = columns
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._or()
        kind, value, _ = self._peek
        if kind != "end":
            self._refuse(
                f"{value!r} cannot stand here; join two conditions with and / or, and write durations as 5 minutes"
            )
        return found

    def _split(self) -> list[tuple[str, str, int]]:
        tokens, position, end = [], 0, len(self._text.rstrip())
        while position < end:
            found = _TOKEN.match(self._text, position)
            if found is None or found.lastgroup is None:
                at = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                what = f"{self._text[at]!r} means nothing here; text stands in single quotes, as in 'paid'"
                raise PatternError.at(self._text, at, what)
            kind, value = found.lastgroup, found[found.lastgroup]
            if kind == "name" and value.lower() in _WORDS:
                kind, value = "word", value.lower()
            tokens.append((kind, value, found.start(found.lastgroup)))
            position = found.end()
        return [*tokens, ("end", "the end", len(self._text))]

    @property
    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._next]

    def _take(self, kind: str, *values: str) -> str | None:
        found, value, _ = self._peek
        if found == kind and (not values or value in values):
            self._next += 1
            return value
        return None

    def _expect(self, mark: str, what: str) -> None:
        if not self._take("mark", mark):
            self._refuse(f"{mark!r} is missing; write {what}")

    def _refuse(self, what: str, position: int | None = None) -> NoReturn:
        raise PatternError.at(self._text, self._peek[2] if position is None else position, what)

    def _or(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"the expression is nested more than {_DEEPEST} deep; write it flatter")
        left = self._and()
        while self._take("word", "or"):
            left = Call("or", (left, self._and()))
        self._depth -= 1
        return left

    def _and(self) -> Expression:
        left = self._not()
        while self._take("word", "and"):
            left = Call("and", (left, self._not()))
        return left

    def _not(self) -> Expression:
        times = 0
        while self._take("word", "not"):
            times += 1
        found = self._comparison()
        return Call("not", (found,)) if times % 2 else found

    def _comparison(self) -> Expression:
        left = self._sum()
        if operator := self._take("mark", "=", "==", "<>", "!=", "<", "<=", ">", ">="):
            return Call({"==": "=", "!=": "<>"}.get(operator, operator), (left, self._sum()))
        if self._take("word", "is"):
            negated = self._take("word", "not")
            if not self._take("word", "null"):
                self._refuse("only null can follow is; compare other values with =")
            return Call("is not null" if negated else "is null", (left,))
        negated = self._take("word", "not")
        if self._take("word", "in"):
            self._expect("(", "x in (1, 2)")
            found = Call("in", (left, *self._arguments()))
        elif self._take("word", "between"):
            low = self._sum()
            if not self._take("word", "and"):
                self._refuse("'and' is missing; write x between 1 and 2")
            found = Call("and", (Call(">=", (left, low)), Call("<=", (left, self._sum()))))
        elif negated:
            self._refuse("not stands before a condition, as in not (a = b), or in `x not in (1, 2)`")
        else:
            return left
        return Call("not", (found,)) if negated else found

    def _sum(self) -> Expression:
        left = self._product()
        while operator := self._take("mark", "+", "-"):
            left = Call(operator, (left, self._product()))
        return left

    def _product(self) -> Expression:
        left = self._unary()
        while operator := self._take("mark", "*", "/", "%"):
            left = Call(operator, (left, self._unary()))
        return left

    def _unary(self) -> Expression:
        negative = False
        while self._take("mark", "-"):
            negative = not negative
        found = self._primary()
        return Call("-", (Literal(0), found)) if negative else found

    def _primary(self) -> Expression:
        kind, value, position = self._peek
        if kind in ("end", "mark") and value != "(":
            self._refuse("a value must stand here: a column, a number, 'text' or a function")
        self._next += 1
        if kind == "number":
            return self._number(value, position)
        if kind == "text":
            return Literal(value[1:-1].replace("''", "'"))
        if kind == "word":
            if value not in ("true", "false", "null"):
                self._refuse(
                    f"{value} needs something before it; put a name like this in backquotes", position
                )
            return Literal({"true": True, "false": False, "null": None}[value])
        if kind == "mark":
            found = self._or()
            self._expect(")", "(a or b) and c")
            return found
        if kind == "name" and self._take("mark", "("):
            return self._call(value.lower(), position)
        return self._reference(value, position)

    def _number(self, text: str, position: int) -> Expression:
        """Return a number, or the microseconds of a duration if a unit follows."""
        if not (self._peek[0] == "name" and is_unit(self._peek[1])):
            return Literal(int(text) if text.isdigit() else float(text))
        while self._peek[0] == "number" or (self._peek[0] == "name" and is_unit(self._peek[1])):
            self._next += 1
        written = self._text[position : self._peek[2]].strip()
        try:
            return Literal(milliseconds(written) * 1000)
        except SettingError as error:
            self._refuse(str(error), position)

    def _reference(self, name: str, position: int) -> Expression:
        if self._take("mark", "."):
            return Aggregate("last", self._symbol(name, position), self._qualified(name))
        return Column(self._column(name, position))

    def _symbol(self, name: str, position: int) -> str:
        if name not in self._symbols:
            self._refuse(f"the pattern has no symbol {name!r}; it has {', '.join(self._symbols)}", position)
        return name

    def _qualified(self, symbol: str) -> str:
        kind, value, position = self._peek
        if kind not in ("name", "odd", "word"):
            self._refuse(f"a column must follow, as in {symbol}.price")
        self._next += 1
        return self._column(value, position)

    def _column(self, name: str, position: int) -> str:
        if name not in self._columns:
            known = ", ".join(self._columns) or "none"
            fix = f"; rows of it are counted by count({name})" if name in self._symbols else ""
            self._refuse(f"there is no column {name!r}{fix}; the columns are {known}", position)
        return name

    def _call(self, name: str, position: int) -> Expression:
        if name == "match_number" or name in PLAIN:
            self._expect(")", f"{name}()")
            return (
                Call(name, ()) if name == "match_number" else Aggregate(PLAIN[name][0], None, PLAIN[name][1])
            )
        if name in AGGREGATES or name == "prev":
            return self._aggregate(name)
        if name not in SCALARS:
            known = ", ".join([*AGGREGATES, "prev", *PLAIN, "match_number", *SCALARS])
            self._refuse(f"there is no function {name!r}; there are {known}", position)
        arguments = self._arguments()
        if SCALARS[name] not in (None, len(arguments)):
            self._refuse(f"{name} takes one value", position)
        return Call(name, arguments)

    def _aggregate(self, name: str) -> Expression:
        symbol, column = self._aggregated(name)
        back = 0
        if name in ("first", "last") and self._take("mark", ","):
            text = self._take("number")
            if text is None or not text.isdigit() or int(text) > 1000:
                self._refuse(f"how many rows further is a whole number, as in {name}(A.price, 1)")
            back = int(text)
        self._expect(")", f"{name}(A.price); compute other values as a column of the stream before")
        if name == "prev":
            if symbol is not None or column is None or column == CLASSIFIER:
                self._refuse("prev takes a column of the row before, as in prev(price)")
            return Column(column, before=True)
        return Aggregate(name, symbol, column, back)

    def _aggregated(self, name: str) -> tuple[str | None, str | None]:
        kind, value, position = self._peek
        if name == "count" and self._take("mark", "*"):
            return None, None
        if kind not in ("name", "odd"):
            self._refuse(f"{name} takes a column, as in {name}(A.price) or {name}(price)")
        self._next += 1
        if kind == "name" and value.lower() == "classifier" and self._take("mark", "("):
            self._expect(")", f"{name}(classifier())")
            return None, CLASSIFIER
        if self._take("mark", "."):
            return self._symbol(value, position), self._qualified(value)
        if name == "count" and value in self._symbols:
            return value, None
        return None, self._column(value, position)

    def _arguments(self) -> tuple[Expression, ...]:
        arguments = [self._or()]
        while self._take("mark", ","):
            arguments.append(self._or())
        self._expect(")", "f(a, b)")
        return tuple(arguments)
