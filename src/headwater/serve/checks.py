"""Whether a JSON object fits a topic's schema, and where it does not.

What the check lets through, the pipeline's source reads, unless it is of more digits than a double has: columns that
the schema does not have are ignored there and here; a missing one is null, which is refused only where the schema says
NOT NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from headwater.app import schema as schemas
from headwater.core.json_types import Misfit
from headwater.derived.columns import converter_of

__all__ = ["MAX_UNREAD", "problem", "unread"]

MAX_UNREAD = 20
"""How many names that a schema does not have are told."""
_DECIMALS = (int, float, str)
_DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_WRITTEN: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    "boolean": (bool,),
}
"""What a value is written as in JSON; those of other types as strings."""


def problem(row: Mapping[str, Any], fields: Iterable[schemas.Field], within: str = "") -> str | None:
    """Return what is wrong with a row, naming the field; None when it fits.

    >>> problem({"amount": "much"}, schemas.parse("amount double"))
    'amount is text, and the schema says double'
    """
    for field in fields:
        found = _problem(row.get(field.name), field.type, f"{within}{field.name}", nullable=field.nullable)
        if found:
            return found
    return None


def unread(rows: Iterable[Mapping[str, Any]], fields: Iterable[schemas.Field]) -> list[str]:
    """Return the names in rows that the schema does not have: one of them may be a column's, misspelt.

    >>> unread([{"id": 1, "contry": "DE"}], schemas.parse("id int, country string"))
    ['contry']
    """
    names = {name for row in rows for name in row} - {field.name for field in fields}
    return [name.encode(errors="replace").decode() for name in sorted(names)[:MAX_UNREAD]]


def _problem(value: Any, kind: schemas.DataType, name: str, *, nullable: bool = True) -> str | None:
    if value is None:
        return None if nullable else f"{name} is missing, and the schema says NOT NULL"
    match kind:
        case schemas.Array(element):
            if not isinstance(value, list):
                return _mismatch(value, kind, name)
            return next(
                (p for i, item in enumerate(value) if (p := _problem(item, element, f"{name}[{i}]"))), None
            )
        case schemas.Map(_, element):
            if not isinstance(value, dict):
                return _mismatch(value, kind, name)
            return next((p for k, v in value.items() if (p := _problem(v, element, f"{name}.{k}"))), None)
        case schemas.Struct(fields):
            if not isinstance(value, dict):
                return _mismatch(value, kind, name)
            return problem(value, fields, f"{name}.")
        case schemas.Decimal():
            return None if _fits(value, kind, _DECIMALS) else _mismatch(value, kind, name)
        case schemas.Scalar("string") if isinstance(value, str):
            return (
                None
                if _fits(value, kind, (str,))
                else f"{name} holds half a surrogate pair, which is no text"
            )
        case schemas.Scalar(scalar):
            return None if _fits(value, kind, _WRITTEN.get(scalar, (str,))) else _mismatch(value, kind, name)


def _fits(value: Any, kind: schemas.DataType, written: tuple[type, ...]) -> bool:
    if not isinstance(value, written):
        return False
    if written is _DECIMALS and isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return False
    try:
        converter_of(kind)(Decimal(repr(value)) if isinstance(value, float) else value)
    except Misfit:
        return False
    return True


_EXAMPLES = {
    "timestamp": '"2026-01-31T14:00:00Z"',
    "timestamp_ntz": '"2026-01-31T14:00:00"',
    "date": '"2026-01-31"',
    "binary": "base64",
}
_KINDS = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def _mismatch(value: Any, kind: schemas.DataType, name: str) -> str:
    shown = f" {value!r:.40}" if isinstance(value, int | float) and not isinstance(value, bool) else ""
    text = schemas.type_text(kind)
    how = f", written as {_EXAMPLES[text]}" if text in _EXAMPLES else ""
    return f"{name} is {_KINDS[type(value)]}{shown}, and the schema says {text}{how}"
