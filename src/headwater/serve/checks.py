"""Whether a JSON object fits a topic's schema, and where it does not.

What the check lets through, the pipeline's source reads: columns that the schema does not have are
ignored there and here; a missing one is null, which is refused only where the schema says NOT NULL.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from headwater.app import schema as schemas

__all__ = ["problem"]

_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


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
        case schemas.Decimal(precision, scale):
            return None if _fits_decimal(value, precision - scale) else _mismatch(value, kind, name)
        case schemas.Scalar(scalar):
            return None if _fits(value, scalar) else _mismatch(value, kind, name)


def _fits(value: Any, scalar: str) -> bool:
    match scalar:
        case "variant":
            return True
        case "boolean":
            return isinstance(value, bool)
        case "tinyint" | "smallint" | "int" | "bigint":
            bound = 2 ** (_INTEGERS[scalar] - 1)
            return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
        case "float" | "double":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and (isinstance(value, int) or math.isfinite(value))
        case "binary":
            return isinstance(value, str) and _is_base64(value)
        case "date":
            return isinstance(value, str) and _reads(date.fromisoformat, value)
        case "timestamp" | "timestamp_ntz":
            return isinstance(value, str) and _reads(datetime.fromisoformat, value)
        case _:
            return isinstance(value, str)


def _fits_decimal(value: Any, whole_digits: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return False
    return abs(float(value)) < 10.0**whole_digits


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _reads(read: Any, text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


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
    return f"{name} is {_KINDS[type(value)]}{shown}, and the schema says {schemas.type_text(kind)}"
