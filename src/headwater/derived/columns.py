"""The values of JSON rows as the types that columns are declared with.

What a type takes is what pipelines take (`headwater.core.json_types`). A value that does not fit makes its record
unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.app.types import Array, DataType, Decimal, Field, Map, Scalar, Struct
from headwater.core import json_types
from headwater.core.json_types import Convert, Misfit, nullable
from headwater.derived.change import Row
from headwater.derived.errors import Unreadable

__all__ = ["converter_of", "row_converter"]

_SCALARS: dict[str, Convert] = {
    "tinyint": json_types.integer(8),
    "smallint": json_types.integer(16),
    "int": json_types.integer(32),
    "bigint": json_types.integer(64),
    "boolean": json_types.boolean,
    "float": json_types.floating,
    "double": json_types.floating,
    "string": json_types.string,
    "binary": json_types.binary,
    "date": json_types.day,
    "timestamp": json_types.timestamp,
    "timestamp_ntz": json_types.local_timestamp,
}


def row_converter(fields: Sequence[Field]) -> Callable[[Row], list[Any]]:
    """Return what makes a list of Python values of a row, or raises `Unreadable`."""
    converters = [(field.name, converter_of(field.type)) for field in fields]

    def convert(row: Row) -> list[Any]:
        found = []
        for name, each in converters:
            try:
                found.append(nullable(each, row.values.get(name)))
            except Misfit as error:
                raise Unreadable(f"{name}: {error}") from None
        return found

    return convert


def converter_of(kind: DataType) -> Convert:
    """Return what makes Python's value of a type out of JSON's; null is not given to it."""
    match kind:
        case Decimal(precision, scale):
            return json_types.decimal(precision, scale)
        case Array(element):
            return json_types.array(converter_of(element))
        case Map(_, element):
            return json_types.mapping(converter_of(element))
        case Struct(fields):
            return json_types.struct([(field.name, converter_of(field.type)) for field in fields])
        case Scalar(name):
            return _SCALARS[name]
    raise TypeError(f"{kind} is no type of a column")
