"""A `Query` as SQL over rows that are JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from headwater.views.columns import NUMBER, comparable, number, parts
from headwater.views.store import Condition, Query

__all__ = ["literal_path", "select"]

Parameter = str | int | float

_RANGES = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}

_AS_OF = """
(SELECT view, key, row, token FROM rows WHERE view = {view} AND at <= ? UNION ALL
SELECT view, key, row, token FROM history WHERE view = {view} AND since <= ? AND until > ?)
"""


def select(view: int, query: Query, indexes: Sequence[str]) -> tuple[str, list[Parameter]]:
    """Return a statement and its parameters, which gives keys, rows and tokens."""
    parameters: list[Parameter] = []
    table = "rows"
    fitting = [column for column in _columns(query) if column in indexes]
    if fitting:
        # Without figures of its own SQLite prefers the primary key, and looks at every row of the view.
        table += f' INDEXED BY "field {view} {fitting[0]}"'
    if query.at is not None:
        table = _AS_OF.format(view=view)
        parameters += [query.at] * 3
    # The number of the view is in the text, where SQLite looks for it when it chooses an index.
    sql = [f"SELECT key, row, token FROM {table} WHERE view = {view}"]
    if query.after is not None:
        condition, values = _behind(query, query.after, indexes)
        sql.append(f"AND {condition}")
        parameters += values
    if query.until is not None:
        sql.append("AND token <= ?")
        parameters.append(query.until)
    for column, value in query.where.items():
        path, more = _path(column, indexes)
        condition, values = _equals(f"row, {path}", more, value)
        sql.append(f"AND {condition}")
        parameters += values
    for each in query.conditions:
        path, more = _path(each.column, indexes)
        condition, values = _fits(f"row, {path}", more, each)
        sql.append(f"AND {condition}")
        parameters += values
    direction = "DESC" if query.descending else "ASC"
    if query.order is not None:
        path, more = _path(query.order, indexes)
        sql.append(f"ORDER BY json_extract(row, {path}) {direction}, key LIMIT ?")
        parameters += more
    else:
        sql.append(f"ORDER BY key {direction} LIMIT ?")
    parameters.append(query.limit)
    return " ".join(sql), parameters


def _columns(query: Query) -> list[str | None]:
    return [*query.where, *(condition.column for condition in query.conditions), query.order]


def _behind(query: Query, after: str, indexes: Sequence[str]) -> tuple[str, list[Parameter]]:
    """Return the condition that a row comes behind the one that a page ended with."""
    sign = "<" if query.descending else ">"
    if query.order is None:
        return f"key {sign} ?", [after]
    path, more = _path(query.order, indexes)
    value, at = f"json_extract(row, {path})", query.after_value
    if at is None:  # which comes first, or last where values descend
        same = f"({value} IS NULL AND key > ?)"
        return (same, [*more, after]) if query.descending else (
            f"({same} OR {value} IS NOT NULL)", [*more, after, *more]
        )  # fmt: skip
    if isinstance(at, Decimal):
        at = float(at)
    elif not isinstance(at, str):
        at = comparable(at)
    condition = f"{value} {sign} ? OR ({value} = ? AND key > ?)"
    if query.descending:
        return f"({condition} OR {value} IS NULL)", [*more, at, *more, at, after, *more]
    return f"({condition})", [*more, at, *more, at, after]


def _fits(at: str, path: list[Parameter], condition: Condition) -> tuple[str, list[Parameter]]:
    """Return the condition that a column is within a range, or one of several values."""
    if condition.compare == "in":
        each = [_equals(at, path, value) for value in condition.values]
        texts = " OR ".join(text for text, _ in each) or "false"
        return f"({texts})", [parameter for _, values in each for parameter in values]
    sign, [value] = _RANGES[condition.compare], condition.values
    texts = f"(json_extract({at}) {sign} ? AND json_type({at}) = 'text')"
    if not NUMBER.fullmatch(value):
        return texts, [*path, value, *path]
    numbers = f"(json_extract({at}) {sign} ? AND json_type({at}) IN ('integer', 'real'))"
    return f"({numbers} OR {texts})", [*path, number(value), *path, *path, value, *path]


def _equals(at: str, path: list[Parameter], value: str) -> tuple[str, list[Parameter]]:
    """Return the condition that a column is `value`, which came as text whatever the column holds."""
    match value:
        case "null":
            return f"json_extract({at}) IS NULL", path
        case "true" | "false":
            condition = f"(json_extract({at}) = ? AND json_type({at}) = ?)"
            return condition, [*path, int(value == "true"), *path, value]
        case _ if NUMBER.fullmatch(value):
            condition = f"(json_extract({at}) IN (?, ?) AND json_type({at}) NOT IN ('true', 'false'))"
            return condition, [*path, value, number(value), *path]
        case _:
            return f"json_extract({at}) = ?", [*path, value]


def _path(column: str, indexes: Sequence[str]) -> tuple[str, list[Parameter]]:
    """Return the JSON path of a column: as a parameter, or as text where there is an index by that text."""
    if column in indexes:
        return literal_path(column), []
    return "?", [_json_path(column)]


def literal_path(column: str) -> str:
    """Return the JSON path of a column as it stands in the text of a statement."""
    return "'" + _json_path(column).replace("'", "''") + "'"


def _json_path(column: str) -> str:
    return "$" + "".join(f'."{part}"' for part in parts(column))
