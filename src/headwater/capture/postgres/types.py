"""Types of Postgres: how their values become JSON, and what they are called in Spark's DDL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headwater.capture.postgres.values import (
    Convert,
    array_of,
    as_is,
    boolean,
    date,
    hexadecimal,
    hstore,
    number,
    string,
    timestamp,
    timestamp_utc,
)

__all__ = ["TYPES_QUERY", "Known", "TypeRow", "Types"]

TYPES_QUERY = """
SELECT t.oid::int8, typtype, typcategory, typelem::int8, typdelim, typbasetype::int8, typtypmod,
       typname = 'hstore' AND extname IS NOT NULL
FROM pg_type t
LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
LEFT JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'hstore'
"""
"""What `Types` wants to know, one `TypeRow` for each."""

_NUMERIC = 1700
_MOST_DIGITS = 38
"""How many digits a decimal of Spark has."""
_VECTORS = (22, 30)
"""Arrays by their category that are written otherwise."""


class Known(NamedTuple):
    """What is known of a type."""

    ddl: str
    convert: Convert


class TypeRow(NamedTuple):
    """A row of the catalog of types."""

    oid: int
    kind: str
    category: str
    element: int
    delimiter: str
    base: int
    modifier: int
    is_hstore: bool = False
    """Whether it is the extension hstore's, whose number is another one in every database."""


_TEXT = Known("string", string)
_HSTORE = Known("map<string,string>", hstore)
_BUILT_IN = {
    16: Known("boolean", boolean),
    17: Known("binary", hexadecimal),
    20: Known("bigint", as_is),
    21: Known("smallint", as_is),
    23: Known("int", as_is),
    26: Known("bigint", as_is),  # oid
    700: Known("float", number),
    701: Known("double", number),
    1082: Known("date", date),
    1114: Known("timestamp_ntz", timestamp),
    1184: Known("timestamp", timestamp_utc),
}


class Types:
    """The types of one database.

    What is not known is text: enums, ranges, addresses, intervals, JSON, composites and the extensions' own but
    hstore, all as Postgres writes them.
    """

    def __init__(self, rows: Iterable[TypeRow]) -> None:
        self._rows = {row.oid: row for row in rows}

    def __contains__(self, oid: int) -> bool:
        return oid in self._rows

    def find(self, oid: int, modifier: int) -> Known:
        """Return what a type is to us, with the modifier that a column has."""
        if oid == _NUMERIC:
            return _decimal(modifier)
        if known := _BUILT_IN.get(oid):
            return known
        row = self._rows.get(oid)
        if row is None:
            return _TEXT
        if row.is_hstore:
            return _HSTORE
        if row.kind == "d":
            return self.find(row.base, row.modifier if row.modifier != -1 else modifier)
        if row.category == "A" and row.element and row.delimiter == "," and oid not in _VECTORS:
            element = self.find(row.element, modifier)
            return Known(f"array<{element.ddl}>", array_of(element.convert))
        return _TEXT


def _decimal(modifier: int) -> Known:
    """Return a numeric of declared digits as a number, any other, which Spark has no type for, as text."""
    if modifier >= 4:
        digits = ((modifier - 4) >> 16) & 0xFFFF
        scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024
        # A negative scale rounds to tens or hundreds; one above the digits is for small fractions.
        digits, scale = max(digits - scale, digits) if scale < 0 else max(digits, scale), max(scale, 0)
        if digits <= _MOST_DIGITS:
            return Known(f"decimal({digits},{scale})", number)
    return _TEXT
