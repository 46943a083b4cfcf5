"""JSON by the rules, one record at a time.

This says what a declared type takes, and why a record is malformed. The faster ways (`json_values`) take a
part of it with the same results, and leave to this what they do not take.

| declared | taken |
|---|---|
| string | a string; anything else as its JSON text |
| byte, short, int, long | a whole number that fits, also written 1.0 or 1e3 |
| float, double | a number; "NaN", "Infinity", "-Infinity" |
| decimal(p,s) | a number, or a string of one, that fits without rounding |
| boolean | true, false |
| timestamp, timestamp_ntz | a string in ISO 8601; without a zone it is UTC; digits below 1 µs are cut |
| date | "YYYY-MM-DD" |
| binary | a string in base64 |
| array, struct, map | an array, an object, an object |

A field that is missing is null, one that is not declared is ignored, of one given twice the last counts.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from headwater.pipeline.source.decoded import Malformed

__all__ = ["row_reader"]

Convert = Callable[[Any], Any]

_FRACTION = re.compile(r"(?<=\.)(\d{6})\d+")
_EXACT = Context(prec=76)
"""Twice the digits that a decimal of Spark's may have; Python works with 28 unless told."""
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def row_reader(schema: pa.Schema) -> Callable[[bytes], list[Any]]:
    """Make the function that reads one value into a list of Python values; it raises `Malformed`."""
    converters = [(field.name, _converter(field.type)) for field in schema]

    def read(value: bytes) -> list[Any]:
        try:
            document = json.loads(value, parse_float=Decimal, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None
        if not isinstance(document, dict):
            raise Malformed(f"a JSON {_kind(document)} where an object is declared")
        row = []
        for name, convert in converters:
            try:
                row.append(_nullable(convert, document.get(name)))
            except Malformed as error:
                raise Malformed(f"{name}: {error}") from None
        return row

    return read


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON: write it as a string")


def _nullable(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _misfit(value: Any, declared: str, hint: str = "") -> Malformed:
    return Malformed(f"{_text(value)[:100]} is not {declared}{hint}")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number)


def _number(value: Decimal) -> float | int:
    return int(value) if value == value.to_integral_value() and "." not in str(value) else float(value)


def _converter(kind: pa.DataType) -> Convert:
    for fits, make in _CONVERTERS:
        if fits(kind):
            return make(kind)
    raise Malformed(f"a column of type {kind} cannot be read from JSON")


def _string(_: pa.DataType) -> Convert:
    return lambda value: value if isinstance(value, str) else _text(value)


def _integer(kind: pa.DataType) -> Convert:
    bound = 1 << (kind.bit_width - 1)

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _misfit(value, "a whole number")
        if isinstance(value, Decimal) and (value.adjusted() > 20 or value != value.to_integral_value()):
            raise _misfit(value, "a whole number")
        if not -bound <= value < bound:
            raise _misfit(value, f"a number of {kind.bit_width} bits")
        return int(value)

    return convert


def _float(_: pa.DataType) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, str) and value in _NOT_NUMBERS:
            return _NOT_NUMBERS[value]
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _misfit(value, "a number")
        number = float(value) if isinstance(value, Decimal) or abs(value) < 1 << 1023 else math.inf
        if math.isinf(number):
            raise _misfit(value, "a number of 64 bits")
        return number

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    step = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
            raise _misfit(value, "a number")
        try:
            exact = Decimal(value)
            fits = exact.is_finite() and exact.adjusted() < kind.precision - kind.scale
            rounded = exact.quantize(step, context=_EXACT) if fits else exact
        except InvalidOperation:
            raise _misfit(value, "a number") from None
        if not fits or rounded != exact:
            raise _misfit(value, f"a decimal({kind.precision},{kind.scale})")
        return rounded

    return convert


def _boolean(_: pa.DataType) -> Convert:
    def convert(value: Any) -> bool:
        if not isinstance(value, bool):
            raise _misfit(value, "true or false")
        return value

    return convert


def _timestamp(kind: pa.DataType) -> Convert:
    def convert(value: Any) -> datetime:
        if not isinstance(value, str):
            raise _misfit(value, "a time in ISO 8601", "; a number of seconds or ms is declared as a long")
        try:
            moment = datetime.fromisoformat(_FRACTION.sub(r"\1", value))
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise _misfit(value, "a time in ISO 8601") from None
        return moment if kind.tz is not None else moment.replace(tzinfo=None)

    return convert


def _date(_: pa.DataType) -> Convert:
    def convert(value: Any) -> date:
        try:
            if isinstance(value, str) and len(value) == 10:
                return date.fromisoformat(value)
        except ValueError:
            pass
        raise _misfit(value, 'a date like "2024-05-31"')

    return convert


def _binary(_: pa.DataType) -> Convert:
    def convert(value: Any) -> bytes:
        try:
            if isinstance(value, str):
                return base64.b64decode(value, validate=True)
        except ValueError:
            pass
        raise _misfit(value, "binary in base64")

    return convert


def _array(kind: pa.DataType) -> Convert:
    convert_item = _converter(kind.value_type)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _misfit(value, "an array")
        return [_nullable(convert_item, item) for item in value]

    return convert


def _struct(kind: pa.DataType) -> Convert:
    converters = [(field.name, _converter(field.type)) for field in kind]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(value, "an object")
        return {name: _nullable(convert_field, value.get(name)) for name, convert_field in converters}

    return convert


def _map(kind: pa.DataType) -> Convert:
    if not pa.types.is_string(kind.key_type):
        raise Malformed("a map is read from a JSON object, whose keys are strings")
    convert_item = _converter(kind.item_type)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _misfit(value, "an object")
        return [(key, _nullable(convert_item, item)) for key, item in value.items()]

    return convert


_CONVERTERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Convert]]] = [
    (pa.types.is_string, _string),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date32, _date),
    (pa.types.is_binary, _binary),
    (pa.types.is_list, _array),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
]
