"""JSON's values as the types that columns are declared with.

| declared | taken |
|---|---|
| string | a string, but for half a surrogate pair, which is no Unicode; anything else as its JSON text |
| byte, short, int, long | a whole number that fits, also written 1.0 or 1e3 |
| float, double | a number; "NaN", "Infinity", "-Infinity" |
| decimal(p,s) | a number, or a string of one, that fits without rounding |
| boolean | true, false |
| timestamp, timestamp_ntz | a string in ISO 8601; without a zone it is UTC; digits below 1 µs are cut |
| date | "YYYY-MM-DD" |
| binary | a string in base64 |
| array, struct, map | an array, an object, an object |

Numbers come as `int` or `Decimal`, as `parse` reads them, and lose no digit. Null is for the caller.
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

__all__ = [
    "DECODER",
    "Convert",
    "Misfit",
    "array",
    "binary",
    "boolean",
    "day",
    "decimal",
    "exact",
    "floating",
    "integer",
    "local_timestamp",
    "mapping",
    "nullable",
    "parse",
    "string",
    "struct",
    "timestamp",
    "whole",
]

Convert = Callable[[Any], Any]
"""Makes Python's value of a type out of JSON's, or raises `Misfit`."""

_FRACTION = re.compile(r"(?<=\.)(\d{6})\d+")
_EXACT = Context(prec=76)
"""Twice the digits that a decimal of Spark's may have; Python works with 28 unless told."""
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_DIGITS = 4000
"""Python writes whole numbers of a few more, and a handful of letters may stand for millions."""


class Misfit(ValueError):
    """A value that its column does not take; the text says why."""


def parse(text: str | bytes) -> Any:
    """Return what JSON says, without losing a digit; raises ValueError or RecursionError."""
    return json.loads(text, parse_float=exact, parse_constant=_no_constant)


def exact(text: str) -> Decimal:
    """Return the number that a text of JSON stands for."""
    try:
        return Decimal(text)
    except InvalidOperation:  # the exponent has 19 digits or more
        return Decimal(0) if "e-" in text.lower() else Decimal("Infinity" if text[0] != "-" else "-Infinity")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON: write it as a string")


DECODER = json.JSONDecoder(parse_float=exact, parse_constant=_no_constant)
"""Reads a value in the middle of a text as `parse` does."""


def nullable(convert: Convert, value: Any) -> Any:
    """Return the value that `convert` makes, or None for null."""
    return None if value is None else convert(value)


def string(value: Any) -> str:
    """Return a string, or the JSON text of what is none."""
    return whole(value if isinstance(value, str) else _text(value))


def whole(text: str) -> str:
    """Return a text that can be written: JSON's escapes may leave half a surrogate pair in one."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Misfit(f"{_shown(text)} holds half a surrogate pair") from None
    return text


def integer(bits: int) -> Convert:
    """Return what makes whole numbers of so many bits."""
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


def floating(value: Any) -> float:
    """Return a number of 64 bits."""
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _misfit(value, "a number")
    number = float(value) if isinstance(value, Decimal) or abs(value) < 1 << 1023 else math.inf
    if math.isinf(number):
        raise _misfit(value, "a number of 64 bits")
    return number


def decimal(precision: int, scale: int) -> Convert:
    """Return what makes exact numbers of so many digits."""
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


def boolean(value: Any) -> bool:
    """Return true or false."""
    return bool(_is(value, bool, "true or false"))


def timestamp(value: Any) -> datetime:
    """Return a moment in UTC."""
    if not isinstance(value, str):
        raise _misfit(value, "a time in ISO 8601", "; a number of seconds or ms is declared as a long")
    try:
        moment = datetime.fromisoformat(_FRACTION.sub(r"\1", value))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _misfit(value, "a time in ISO 8601") from None


def local_timestamp(value: Any) -> datetime:
    """Return a time without a zone."""
    return timestamp(value).replace(tzinfo=None)


def day(value: Any) -> date:
    """Return a date."""
    try:
        if isinstance(value, str) and len(value) == 10:
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise _misfit(value, 'a date like "2024-05-31"')


def binary(value: Any) -> bytes:
    """Return the bytes that a string stands for."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise _misfit(value, "binary in base64")


def array(convert: Convert) -> Convert:
    """Return what makes lists of what `convert` makes."""
    return lambda value: [nullable(convert, item) for item in _is(value, list, "an array")]


def struct(members: Sequence[tuple[str, Convert]]) -> Convert:
    """Return what makes dictionaries with these members, null where they are missing."""

    def convert(value: Any) -> dict[str, Any]:
        found = _is(value, dict, "an object")
        return {name: nullable(member, found.get(name)) for name, member in members}

    return convert


def mapping(convert: Convert) -> Convert:
    """Return what makes lists of names with what `convert` makes."""
    return lambda value: [
        (whole(name), nullable(convert, item)) for name, item in _is(value, dict, "an object").items()
    ]


def _is(value: Any, kind: type[Any], declared: str) -> Any:
    if not isinstance(value, kind):
        raise _misfit(value, declared)
    return value


def _misfit(value: Any, declared: str, hint: str = "") -> Misfit:
    return Misfit(f"{_shown(_text(value))} is not {declared}{hint}")


def _shown(text: str) -> str:
    return text[:100].encode(errors="backslashreplace").decode()


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number)
    except RecursionError:
        raise Misfit("it is nested too deeply") from None


def _number(value: Decimal) -> float | int:
    if value.is_finite() and value.adjusted() < _MOST_DIGITS:
        if value == value.to_integral_value() and "." not in str(value):
            return int(value)
        if math.isfinite(number := float(value)):
            return number
    raise Misfit(f"{str(value)[:100]} is too large a number")
