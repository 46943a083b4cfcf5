"""The order of a table's rows by their key, as the server has it.

A snapshot reads a table in the order of its key, so that one that was interrupted can say which rows it has read.
Whether a row that a change names is one of these takes a comparison by the server's rules. Those of numbers, times and
bytes are simple; text is compared by the server, which has hundreds of collations.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headwater.capture.change import Row
from headwater.capture.mysql.tables import Field, Table

__all__ = ["KeyOrder", "after", "literal"]

_ZONED = ("datetime", "timestamp")


def literal(field: Field, text: str, quote: Callable[[str], str]) -> str:
    """Return a value, given as JSON, as it stands in a statement."""
    value = json.loads(text, parse_float=str, parse_int=str)
    base = field.type.base
    if field.type.is_binary or field.charset == "binary":
        return f"x'{b64decode(value).hex()}'"
    if isinstance(value, bool):
        return "1" if value else "0"
    if base in _ZONED:
        return quote(value.replace("T", " ").removesuffix("Z"))
    if field.type.integer_size or base in ("decimal", "float", "double", "year", "bit"):
        return str(value)
    return quote(value)


def after(table: Table, key: tuple[str, ...], quote: Callable[[str], str]) -> str:
    """Return the condition of the rows behind a key."""
    by_name = {field.name: field for field in table.fields}
    columns = ["`" + name.replace("`", "``") + "`" for name in table.key]
    values = [literal(by_name[name], text, quote) for name, text in zip(table.key, key, strict=True)]
    parts = []
    for place in range(len(columns)):
        equal = [f"{columns[before]} = {values[before]}" for before in range(place)]
        parts.append("(" + " AND ".join([*equal, f"{columns[place]} > {values[place]}"]) + ")")
    # The first condition lets the server go to the place in the index.
    return f"{columns[0]} >= {values[0]} AND ({' OR '.join(parts)})"


class KeyOrder:
    """Compares keys; `ask` compares two texts of a column in the server, and returns -1, 0 or 1."""

    def __init__(self, ask: Callable[[Table, Field, str, str], int]) -> None:
        self._ask = ask

    def is_until(self, table: Table, row: Row, until: tuple[str, ...]) -> bool:
        """Tell whether a row's key is not behind another."""
        for place, bound in zip(table.key_indexes, until, strict=True):
            cell = row[place]
            if cell is None:
                return False
            text = cell.decode()
            if text == bound:
                continue
            order = self._compare(table, table.fields[place], text, bound)
            if order:
                return order < 0
        return True

    def _compare(self, table: Table, field: Field, text: str, other: str) -> int:
        make = _comparable(field)
        if make is None:
            return self._ask(table, field, text, other)
        one, two = make(text), make(other)
        return int(one > two) - int(one < two)


def _comparable(field: Field) -> Callable[[str], Any] | None:
    """Return what makes something of a value that Python orders as the server does."""
    type_ = field.type
    if type_.integer_size or type_.base in ("decimal", "year", "float", "double"):
        return lambda text: Decimal(text.strip('"'))
    if type_.base in ("date", *_ZONED):
        return json.loads
    if type_.is_binary:
        return lambda text: b64decode(json.loads(text))
    if type_.base == "enum":
        return lambda text: ("", *type_.members).index(json.loads(text))
    if type_.base == "bit":
        return lambda text: int(json.loads(text))
    return None
