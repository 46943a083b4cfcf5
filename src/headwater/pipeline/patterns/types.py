"""The types of conditions and measures, from those of the stream's columns, by Spark's names.

What reaches the engine is plain: times as microseconds, decimals as doubles. Here they keep their meaning, so that a
text compared with a number is refused when the pattern is declared, and a measure that is a time comes out as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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

__all__ = ["type_of"]

_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_REAL: Final = frozenset({"float", "double"})
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})
_VOID: Final = "void"


def type_of(expression: Expression, columns: Mapping[str, str]) -> str:
    """Return the type of an expression, or raise `PatternError` if its parts do not fit each other.

    >>> type_of(Call("/", (Aggregate("sum", "A", "x"), Literal(2))), {"x": "int"})
    'double'
    """
    match expression:
        case Literal(value):
            names = {bool: "boolean", int: "bigint", float: "double", str: "string", type(None): _VOID}
            return names[type(value)]
        case Column(name):
            return _column(name, columns)
        case Aggregate(function, _, column):
            return _aggregate(function, column, columns)
        case Call("match_number"):
            return "bigint"
        case Call(name, arguments):
            return _call(name, [type_of(each, columns) for each in arguments])


def _column(name: str, columns: Mapping[str, str]) -> str:
    return {TIME: "timestamp", CLASSIFIER: "string"}.get(name) or columns[name]


def _aggregate(function: str, column: str | None, columns: Mapping[str, str]) -> str:
    if function == "count" or column is None:
        return "bigint"
    kind = _column(column, columns)
    if function == "collect":
        return f"array<{kind}>"
    if function in ("sum", "avg"):
        if not _is_number(kind):
            raise PatternError(
                f"{function} takes numbers, and {column} is a {kind}; cast it in the stream before"
            )
        return "bigint" if function == "sum" and kind in _WHOLE else "double"
    if function in ("min", "max") and _family(kind) is None:
        raise PatternError(f"{function} takes values with an order, and {column} is a {kind}")
    return kind


def _call(name: str, types: list[str]) -> str:
    if name in ("and", "or", "not"):
        for each in types:
            _demand(each in ("boolean", _VOID), name, types, "conditions")
        return "boolean"
    if name in ("is null", "is not null"):
        return "boolean"
    if name in ("=", "<>", "<", "<=", ">", ">=", "in"):
        families = {_family(each) for each in types if each != _VOID}
        _demand(len(families) <= 1 and None not in families, name, types, "values of one kind")
        return "boolean"
    if name == "coalesce":
        known = [each for each in types if each != _VOID] or [_VOID]
        _demand(len({_family(each) for each in known}) == 1, name, types, "values of one kind")
        return "double" if any(_is_number(each) and each not in _WHOLE for each in known) else known[0]
    if name in ("lower", "upper"):
        _demand(types[0] in ("string", _VOID), name, types, "text")
        return "string"
    return _arithmetic(name, types)


def _arithmetic(name: str, types: list[str]) -> str:
    left, right = types[0], types[-1]
    if name in ("+", "-") and left in _TIMES:
        if name == "-" and right in _TIMES:
            return "bigint"
        _demand(right in _WHOLE, name, types, "two times, or a time and a duration as in 5 minutes,")
        return left
    for each in types:
        _demand(_is_number(each) or each == _VOID, name, types, "numbers")
    if name == "/" or any(each not in _WHOLE for each in types):
        return "double"
    return "bigint"


def _is_number(kind: str) -> bool:
    return kind in _WHOLE or kind in _REAL or kind.startswith("decimal")


def _family(kind: str) -> str | None:
    """Return what a type can be compared with; None has no order that Spark and Python share."""
    if _is_number(kind):
        return "number"
    if kind in _TIMES:
        return "time"
    return kind if kind in ("string", "boolean", "date", "binary") else None


def _demand(fits: bool, name: str, types: list[str], what: str) -> None:
    if not fits:
        raise PatternError(
            f"{name!r} takes {what} and was given {' and '.join(types)}; cast them in the stream before"
        )
