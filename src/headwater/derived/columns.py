"""The values of JSON rows as the types that columns are declared with.

What a type takes is what pipelines take (`docs/sources.md`): a whole number also as 1.0, a time in ISO 8601, bytes in
base64, a string of anything else as its JSON text. A value that does not fit makes its record unreadable.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from headwater.app.types import Array, DataType, Field, Map, Scalar, Struct
from headwater.app.types import Decimal as DecimalType
from headwater.derived.change import Row
from headwater.derived.errors import Unreadable

__all__ = ["Converter", "converter_of", "json_text", "row_converter"]

Converter = Callable[[Any], Any]

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FRACTION = re.compile(r"(?<=\.)(\d{6})\d+")
_EXACT = Context(prec=76)
"""Python rounds to 28 digits otherwise, and a column may have 38."""
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def row_converter(fields: Sequence[Field]) -> Callable[[Row], list[Any]]:
    """Return what makes a list of Python values of a row, or raises `Unreadable`."""
    converters = [(field.name, converter_of(field.type)) for field in fields]

    def convert(row: Row) -> list[Any]:
        found = []
        for name, each in converters:
            value = row.values.get(name)
            try:
                found.append(None if value is None else each(value))
            except Unreadable as error:
                raise Unreadable(f"{name}: {error}") from None
        return found

    return convert


def json_text(value: Any) -> str:
    """Return the JSON text of a value that JSON was read from."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def converter_of(kind: DataType) -> Converter:
    """Return what makes Python's value of a type out of JSON's; null is not given to it."""
    match kind:
        case DecimalType(precision, scale):
            return _decimal(precision, scale)
        case Array(element):
            each = converter_of(element)
            return lambda value: [
                None if item is None else each(item) for item in _is(value, list, "an array")
            ]
        case Map(_, element):
            each = converter_of(element)
            return lambda value: [
                (name, None if item is None else each(item))
                for name, item in _is(value, dict, "an object").items()
            ]
        case Struct(fields):
            members = [(field.name, converter_of(field.type)) for field in fields]
            return lambda value: {
                name: None if (item := _is(value, dict, "an object").get(name)) is None else member(item)
                for name, member in members
            }
        case Scalar(name) if name in _BITS:
            return _integer(_BITS[name])
        case Scalar(name):
            return _SCALARS[name]
    raise TypeError(f"{kind} is no type of a column")


def _misfit(value: Any, declared: str) -> Unreadable:
    return Unreadable(f"{json_text(value)[:100]} is not {declared}")


def _is(value: Any, kind: type[Any], declared: str) -> Any:
    if not isinstance(value, kind):
        raise _misfit(value, declared)
    return value


def _string(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _integer(bits: int) -> Converter:
    bound = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _misfit(value, "a whole number")
        if isinstance(value, Decimal) and (value.adjusted() > 20 or value != value.to_integral_value()):
            raise _misfit(value, "a whole number")
        if not -bound <= value < bound:
            raise _misfit(value, f"a number of {bits} bits")
        return int(value)

    return convert


def _float(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _misfit(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _misfit(value, "a number of 64 bits") from None


def _decimal(precision: int, scale: int) -> Converter:
    step = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
            raise _misfit(value, "a number")
        try:
            exact = Decimal(value)
            fits = exact.is_finite() and exact.adjusted() < precision - scale
            rounded = exact.quantize(step, context=_EXACT) if fits else exact
        except InvalidOperation:
            raise _misfit(value, "a number") from None
        if not fits or rounded != exact:
            raise _misfit(value, f"a decimal({precision},{scale})")
        return rounded

    return convert


def _boolean(value: Any) -> bool:
    return bool(_is(value, bool, "true or false"))


def _timestamp(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_FRACTION.sub(r"\1", _is(value, str, "a time in ISO 8601")))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _misfit(value, "a time in ISO 8601") from None


def _local_timestamp(value: Any) -> datetime:
    return _timestamp(value).replace(tzinfo=None)


def _date(value: Any) -> date:
    try:
        if isinstance(value, str) and len(value) == 10:
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise _misfit(value, 'a date like "2024-05-31"')


def _binary(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise _misfit(value, "binary in base64")


_SCALARS: dict[str, Converter] = {
    "boolean": _boolean,
    "float": _float,
    "double": _float,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _local_timestamp,
}
