"""Columns on their way to Python and back: as plain values that state can keep.

Booleans, numbers, text and bytes go as they are, a timestamp as its microseconds, a date as its days; everything
else (decimals, arrays, maps, structs, times without a zone) as JSON. A NaN arrives as null: it could not be a key.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["EXACT_TIMES", "collected", "collected_type", "plain", "plain_type", "restored"]

_AS_THEY_ARE: Final = (BooleanType, IntegralType, FloatType, DoubleType, StringType, BinaryType)
EXACT_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options for JSON that times come back from as they were, with their microseconds."""
_VALUE: Final = "v"


def plain(column: Column, kind: DataType) -> Column:
    """Return a column as a plain value."""
    if isinstance(kind, _AS_THEY_ARE):
        return column
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, DateType):
        return F.unix_date(column)
    return F.when(column.isNotNull(), F.to_json(F.struct(column.alias(_VALUE)), EXACT_TIMES))


def plain_type(kind: DataType) -> str:
    """Return the type that a column has as a plain value."""
    if isinstance(kind, _AS_THEY_ARE):
        return kind.simpleString()
    if isinstance(kind, TimestampType):
        return "bigint"
    return "int" if isinstance(kind, DateType) else "string"


def collected_type(kind: ArrayType) -> str:
    """Return the type of a list of plain values that a logic has made."""
    return f"array<{plain_type(kind.elementType)}>"


def collected(column: Column, kind: ArrayType) -> Column:
    """Return a list that a logic has made of plain values, with values as they were."""
    return F.transform(column, lambda each: restored(each, kind.elementType))


def restored(column: Column, kind: DataType) -> Column:
    """Return a column that came back, as it was."""
    if isinstance(kind, _AS_THEY_ARE):
        return column
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(column)
    if isinstance(kind, DateType):
        return F.date_from_unix_date(column)
    return F.from_json(column, StructType([StructField(_VALUE, kind)]), EXACT_TIMES).getField(_VALUE)
