"""JSON by the rules, one record at a time.

This says what a declared type takes (`headwater.core.json_types`), and why a record is malformed. The faster ways
(`json_values`) take a part of it with the same results, and leave to this what they do not take.

A field that is missing is null, one that is not declared is ignored, of one given twice the last counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headwater.core import json_types
from headwater.core.json_types import Convert, Misfit, nullable, parse
from headwater.pipeline.source.decoded import Malformed

__all__ = ["row_converter", "row_reader"]


def row_reader(schema: pa.Schema) -> Callable[[bytes], list[Any]]:
    """Make the function that reads one value into a list of Python values; it raises `Malformed`."""
    convert = row_converter(schema)

    def read(value: bytes) -> list[Any]:
        try:
            document = parse(value)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None
        if not isinstance(document, dict):
            raise Malformed(f"a JSON {_kind(document)} where an object is declared")
        return convert(document)

    return read


def row_converter(schema: pa.Schema) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Make the function that makes a list of Python values of what `parse` read; it raises `Malformed`."""
    converters = [(field.name, _converter(field.type)) for field in schema]

    def convert(document: Mapping[str, Any]) -> list[Any]:
        row = []
        for name, each in converters:
            try:
                row.append(nullable(each, document.get(name)))
            except Misfit as error:
                raise Malformed(f"{name}: {error}") from None
        return row

    return convert


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _converter(kind: pa.DataType) -> Convert:
    for fits, make in _CONVERTERS:
        if fits(kind):
            return make(kind)
    raise Malformed(f"a column of type {kind} cannot be read from JSON")


def _map(kind: pa.DataType) -> Convert:
    if not pa.types.is_string(kind.key_type):
        raise Malformed("a map is read from a JSON object, whose keys are strings")
    return json_types.mapping(_converter(kind.item_type))


_CONVERTERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Convert]]] = [
    (pa.types.is_string, lambda _: json_types.string),
    (pa.types.is_signed_integer, lambda kind: json_types.integer(kind.bit_width)),
    (pa.types.is_floating, lambda _: json_types.floating),
    (pa.types.is_decimal, lambda kind: json_types.decimal(kind.precision, kind.scale)),
    (pa.types.is_boolean, lambda _: json_types.boolean),
    (pa.types.is_timestamp, lambda kind: json_types.timestamp if kind.tz else json_types.local_timestamp),
    (pa.types.is_date32, lambda _: json_types.day),
    (pa.types.is_binary, lambda _: json_types.binary),
    (pa.types.is_list, lambda kind: json_types.array(_converter(kind.value_type))),
    (
        pa.types.is_struct,
        lambda kind: json_types.struct([(each.name, _converter(each.type)) for each in kind]),
    ),
    (pa.types.is_map, _map),
]
