"""The types of columns, and how Spark writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True)
class Scalar:
    """A type without parts, by Spark's name for it, such as string or timestamp."""

    name: str


@dataclass(frozen=True)
class Decimal:
    """A number with so many digits, so many of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True)
class Array:
    """A list of one type."""

    element: DataType


@dataclass(frozen=True)
class Map:
    """Values by key."""

    key: DataType
    value: DataType


@dataclass(frozen=True)
class Struct:
    """Named fields."""

    fields: tuple[Field, ...]


DataType = Scalar | Decimal | Array | Map | Struct


@dataclass(frozen=True)
class Field:
    """A column, or a field of a struct."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None


SCALARS: Final = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
"""The names that Spark knows a scalar type by, and the one that it prints."""

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def text(fields: Iterable[Field]) -> str:
    """Return a schema in the form that `parse` and Spark read."""
    return ", ".join(_field_text(field, " ") for field in fields)


def nullable(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return the same columns, all of which, and all within them, may be null."""
    return tuple(replace(field, type=_nullable(field.type), nullable=True) for field in fields)


def _nullable(type_: DataType) -> DataType:
    match type_:
        case Array(element):
            return Array(_nullable(element))
        case Map(key, value):
            return Map(_nullable(key), _nullable(value))
        case Struct(fields):
            return Struct(nullable(fields))
        case _:
            return type_


def type_text(type_: DataType) -> str:
    """Return a type in the form that a schema holds."""
    match type_:
        case Scalar(name):
            return name
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Array(element):
            return f"array<{type_text(element)}>"
        case Map(key, value):
            return f"map<{type_text(key)},{type_text(value)}>"
        case Struct(fields):
            return f"struct<{','.join(_field_text(field, ': ') for field in fields)}>"


def _field_text(field: Field, between: str) -> str:
    plain = _PLAIN.fullmatch(field.name)
    name = field.name if plain else f"`{field.name.replace('`', '``')}`"
    null = "" if field.nullable else " NOT NULL"
    comment = "" if field.comment is None else f" COMMENT {_quoted(field.comment)}"
    return f"{name}{between}{type_text(field.type)}{null}{comment}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
