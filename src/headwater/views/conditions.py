"""What a query's filter asks of a row, for those who look at rows one by one: Redis, and live feeds.

SQLite and Postgres answer the same in SQL; the contract suite of the stores holds them to it.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from headwater.views.columns import NUMBER, comparable, number, parts
from headwater.views.store import Condition, Query

__all__ = ["cursor_value", "find", "is_behind", "matches", "sort_key", "value_of"]

_RANGES: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


def value_of(row: str | bytes, column: str) -> Any:
    """Return the value of a column in a row; None where there is none."""
    return find(json.loads(row), column)


def find(columns: Any, column: str) -> Any:
    """Return the value of a column in what was read of a row."""
    for name in parts(column):
        columns = columns.get(name) if isinstance(columns, Mapping) else None
    return columns


def sort_key(value: Any) -> tuple[int, float, str]:
    """Return what a value is ordered by: rows without one, numbers, texts."""
    match value:
        case None:
            return 0, 0.0, ""
        case bool() | int() | float() | Decimal():
            try:
                return 1, float(value), ""
            except OverflowError:
                return 1, float("inf") if value > 0 else float("-inf"), ""
        case str():
            return 2, 0.0, value
        case _:
            return 2, 0.0, json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def cursor_value(row: str, column: str) -> str | int | Decimal | None:
    """Return the value that a page ordered by a column ends with, to go on behind it, with all its digits."""
    match find(json.loads(row, parse_float=Decimal), column):
        case None:
            return None
        case bool() | int() as value:
            return int(value)
        case Decimal() as value:
            return value
        case value:
            return sort_key(value_of(row, column))[2]


def matches(columns: Any, query: Query) -> bool:
    """Tell whether what was read of a row is what a query's filter asks for."""
    return all(_equals(find(columns, column), text) for column, text in query.where.items()) and all(
        _fits(find(columns, condition.column), condition) for condition in query.conditions
    )


def is_behind(value: Any, key: str, query: Query) -> bool:
    """Tell whether an ordered query that goes on behind a row comes to this one."""
    assert query.after is not None
    here, there = sort_key(value), sort_key(query.after_value)
    if here == there:
        return key.encode() > query.after.encode()  # equal ones come by key, also where values descend
    return here < there if query.descending else here > there


def _fits(value: Any, condition: Condition) -> bool:
    if condition.compare == "in":
        return any(_equals(value, text) for text in condition.values)
    compare, [text] = _RANGES[condition.compare], condition.values
    match value:
        case bool():
            return False
        case int() | float():
            return NUMBER.fullmatch(text) is not None and compare(comparable(value), number(text))
        case str():
            return compare(value, text)
        case _:
            return False


def _equals(value: Any, text: str) -> bool:
    match value:
        case None:
            return text == "null"
        case bool():
            return text == ("true" if value else "false")
        case int() | float():
            return NUMBER.fullmatch(text) is not None and number(text) == comparable(value)
        case str():
            return value == text and text not in ("null", "true", "false")
        case _:
            return sort_key(value)[2] == text
