"""A `Query` as Postgres' SQL over rows that are JSON objects.

A column's value is compared by three expressions: its rank (nothing, numbers, texts), its number, and the first
500 characters of its text, for a longer one does not fit into an index. `headwater.rank`, `number` and `prefix`
are functions in SQL, which Postgres puts in place, in an index as in a query: so it finds one for the other.
"""

from __future__ import annotations

from decimal import Decimal

from headwater.core.json_types import exact
from headwater.views.columns import NUMBER, parts
from headwater.views.store import Condition, Query

__all__ = ["index_expressions", "select", "storable"]

Parameter = str | int | float | Decimal

_MOST_DIGITS = 1000
_LARGEST = Decimal(f"1e{_MOST_DIGITS}")
_RANGES = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}

_AS_OF = """
(SELECT key, row, token FROM headwater.rows_{view} WHERE at <= %s UNION ALL
SELECT key, row, token FROM headwater.history WHERE view = {view} AND since <= %s AND until > %s) AS found
"""


def select(view: int, query: Query) -> tuple[str, list[Parameter]]:
    """Return a statement and its parameters, which gives keys, rows and tokens."""
    parameters: list[Parameter] = []
    table = f"headwater.rows_{view}"
    if query.at is not None:
        table = _AS_OF.format(view=view)
        parameters += [query.at] * 3
    sql = [f"SELECT key, row::text, token FROM {table} WHERE true"]
    if query.after is not None:
        condition, values = _behind(query, storable(query.after))
        sql.append(f"AND {condition}")
        parameters += values
    if query.until is not None:
        sql.append("AND token <= %s")
        parameters.append(query.until)
    for column, text in query.where.items():
        condition, values = _equals(column, text)
        sql.append(f"AND {condition}")
        parameters += values
    for each in query.conditions:
        condition, values = _fits(each)
        sql.append(f"AND {condition}")
        parameters += values
    direction = "DESC" if query.descending else "ASC"
    if query.order is not None:
        orders, names = index_expressions(query.order, direction)
        sql.append(f"ORDER BY {orders}, key LIMIT %s")
        parameters += names
    else:
        sql.append(f"ORDER BY key {direction} LIMIT %s")
    parameters.append(query.limit)
    return " ".join(sql), parameters


def index_expressions(column: str, direction: str = "ASC") -> tuple[str, list[Parameter]]:
    """Return the expressions that a column is indexed and ordered by, and their parameters."""
    value, names = _value(column)
    expressions = ", ".join(f"{each} {direction}" for each in _expressions(value))
    return expressions, names * 3


def storable(text: str) -> str:
    """Return a text without the character NUL, which Postgres cannot hold."""
    return text.replace("\0", "\ufffd")


def _expressions(value: str) -> tuple[str, str, str]:
    return (
        f"headwater.rank({value})",
        f"headwater.number({value})",
        f'headwater.prefix({value}) COLLATE "C"',
    )


def _behind(query: Query, after: str) -> tuple[str, list[Parameter]]:
    """Return the condition that a row comes behind the one that a page ended with."""
    sign = "<" if query.descending else ">"
    if query.order is None:
        return f"key {sign} %s", [after]
    value, names = _value(query.order)
    rank, number, prefix = _expressions(value)
    match query.after_value:
        case None:
            same, within, at = 0, "key > %s", []
        case int() | float() | Decimal() as given:
            same, within = 1, f"({number} {sign} %s OR ({number} = %s AND key > %s))"
            at = [*names, _decimal(str(given)), *names, _decimal(str(given))]
        case text:
            same, within = 2, f"({prefix} {sign} left(%s, 500) OR ({prefix} = left(%s, 500) AND key > %s))"
            at = [*names, storable(text), *names, storable(text)]
    condition = f"({rank} {sign} {same} OR ({rank} = {same} AND {within}))"
    return condition, [*names * 2, *at, after]


def _fits(condition: Condition) -> tuple[str, list[Parameter]]:
    """Return the condition that a column is within a range, or one of several values."""
    if condition.compare == "in":
        each = [_equals(condition.column, value) for value in condition.values]
        texts = " OR ".join(text for text, _ in each) or "false"
        return f"({texts})", [parameter for _, values in each for parameter in values]
    sign, [given] = _RANGES[condition.compare], condition.values
    value, names = _value(condition.column)
    rank, number, _ = _expressions(value)
    texts = f"({rank} = 2 AND json_typeof({value}) = 'string' AND {value} #>> '{{}}' COLLATE \"C\" {sign} %s)"
    of_text: list[Parameter] = [*names * 3, storable(given)]
    if not NUMBER.fullmatch(given):
        return texts, of_text
    numbers = f"({rank} = 1 AND {number} {sign} %s AND json_typeof({value}) = 'number')"
    return f"({numbers} OR {texts})", [*names * 2, _decimal(given), *names, *of_text]


def _equals(column: str, text: str) -> tuple[str, list[Parameter]]:
    """Return the condition that a column is `text`, which came as text whatever the column holds."""
    value, names = _value(column)
    rank, number, prefix = _expressions(value)
    is_text = f"({rank} = 2 AND {number} IS NULL AND {prefix} = left(%s, 500) AND {value} #>> '{{}}' = %s)"
    of_text = [*names * 3, storable(text), *names, storable(text)]
    match text:
        case "null":
            return f"{rank} = 0", names
        case "true" | "false":
            condition = f"({rank} = 1 AND {number} = %s AND json_typeof({value}) = 'boolean')"
            return condition, [*names * 2, int(text == "true"), *names]
        case _ if NUMBER.fullmatch(text):
            is_number = f"({rank} = 1 AND {number} = %s AND json_typeof({value}) = 'number')"
            return f"({is_text} OR {is_number})", [*of_text, *names * 2, _decimal(text), *names]
        case _:
            return is_text, of_text


def _decimal(text: str) -> Decimal:
    """Return a number that Postgres takes: to those in rows, one of a thousand digits is as good as a longer one."""
    number = exact(text)
    if number.is_finite() and abs(number.adjusted()) < _MOST_DIGITS:
        return number
    return Decimal(0) if number.adjusted() < 0 else _LARGEST.copy_sign(number)


def _value(column: str) -> tuple[str, list[Parameter]]:
    """Return the expression of a column's value, and the names in it."""
    names = parts(column)
    return f"(row{' -> %s' * len(names)})", list(names)
