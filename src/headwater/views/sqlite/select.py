"""A `Query` as SQL over rows that are JSON objects."""

from __future__ import annotations

import re

from headwater.views.errors import ViewError
from headwater.views.store import Query

__all__ = ["select"]

Parameter = str | int | float

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


def select(view: int, query: Query) -> tuple[str, list[Parameter]]:
    """Return a statement and its parameters, which gives keys, rows and tokens."""
    sql = ["SELECT key, row, token FROM rows WHERE view = ?"]
    parameters: list[Parameter] = [view]
    if query.after is not None:
        sql.append(f"AND key {'<' if query.descending else '>'} ?")
        parameters.append(query.after)
    if query.until is not None:
        sql.append("AND token <= ?")
        parameters.append(query.until)
    for column, value in query.where.items():
        condition, more = _equals(_path(column), value)
        sql.append(f"AND {condition}")
        parameters += more
    direction = "DESC" if query.descending else "ASC"
    if query.order is not None:
        sql.append(f"ORDER BY json_extract(row, ?) {direction}, key LIMIT ?")
        parameters.append(_path(query.order))
    else:
        sql.append(f"ORDER BY key {direction} LIMIT ?")
    parameters.append(query.limit)
    return " ".join(sql), parameters


def _equals(path: str, value: str) -> tuple[str, list[Parameter]]:
    """Return the condition that a column is `value`, which came as text whatever the column holds."""
    match value:
        case "null":
            return "json_extract(row, ?) IS NULL", [path]
        case "true" | "false":
            return "json_type(row, ?) = ?", [path, value]
        case _ if _NUMBER.fullmatch(value):
            text = "(json_type(row, ?) = 'text' AND json_extract(row, ?) = ?)"
            number = "(json_type(row, ?) IN ('integer', 'real') AND json_extract(row, ?) = ?)"
            return f"({text} OR {number})", [path, path, value, path, path, float(value)]
        case _:
            return "json_extract(row, ?) = ?", [path, value]


def _path(column: str) -> str:
    """Return the JSON path of a column; dots go into a structure, like `window.start`."""
    if '"' in column or not all(column.split(".")):
        raise ViewError(f"{column!r} is no name of a column")
    return "$" + "".join(f'."{part}"' for part in column.split("."))
