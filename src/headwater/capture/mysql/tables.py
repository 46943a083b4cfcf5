"""Captured tables as the binary log needs them: besides names and types, character sets and members of enumerations.

The binary log says of a column how it is stored, and by default neither its name nor whether a number has a sign. So
the tables are kept as they were at the position that is read, changed by each statement that alters them, and stored
with that position.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from headwater.capture.change import Column, TableSchema

__all__ = ["Field", "Table", "Type", "dump_tables", "load_tables", "quoted_strings"]

_SYNONYMS = {
    "bool": "tinyint(1)",
    "boolean": "tinyint(1)",
    "integer": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "number": "decimal",
    "real": "double",
    "float4": "float",
    "float8": "double",
    "character": "char",
    "nchar": "char",
    "varcharacter": "varchar",
    "nvarchar": "varchar",
    "varchar2": "varchar",
    "clob": "longtext",
    "raw": "varbinary",
}
_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_SPARK_INTEGERS = {1: "tinyint", 2: "smallint", 3: "int", 4: "int", 8: "bigint"}
_SPARK_UNSIGNED = {1: "smallint", 2: "int", 3: "int", 4: "bigint", 8: "decimal(20,0)"}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BINARIES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_GEOMETRIES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
)
_STRINGS = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


def quoted_strings(text: str) -> tuple[str, ...]:
    """Return the strings of a list in SQL.

    >>> quoted_strings("'a','it''s'")
    ('a', "it's")
    """
    return tuple(_unquoted(found) for found in _STRINGS.findall(text))


def _unquoted(text: str) -> str:
    return re.sub(r"''|\\(.)", lambda found: _unescaped(found[1]), text, flags=re.DOTALL)


def _unescaped(letter: str | None) -> str:
    return "'" if letter is None else _ESCAPES.get(letter, letter)


@dataclass(frozen=True)
class Type:
    """A column's type, read from the text that MySQL shows or that a statement says."""

    base: str
    """Its name without a synonym: `int` for `INTEGER`."""
    arguments: tuple[int, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    members: tuple[str, ...] = ()
    """Of an enumeration or a set."""

    @classmethod
    def parse(cls, native: str) -> Self:
        """Read a type.

        >>> Type.parse("decimal(10,2) unsigned").arguments
        (10, 2)
        """
        # MariaDB marks what other versions would not understand: `/* mariadb-5.3 */`, `/*M!100301 COMPRESSED*/`.
        native = re.sub(r"/\*.*?\*/", "", native).strip()
        name, _, rest = native.partition("(")
        head = name.lower().split()
        base = _SYNONYMS.get(head[0], head[0]) if head else ""
        if "(" in base:
            base, _, rest = base.partition("(")
        if base in ("enum", "set"):
            return cls(base, members=quoted_strings(rest.rpartition(")")[0]))
        inside, _, tail = rest.partition(")")
        words = [*head[1:], *tail.lower().split()]
        arguments = tuple(int(part) for part in inside.split(",") if part.strip().isdigit())
        zerofill = "zerofill" in words
        return cls(base, arguments, zerofill or "unsigned" in words, zerofill)

    @property
    def integer_size(self) -> int | None:
        """The bytes of an integer; None of everything else."""
        return _INTEGERS.get(self.base)

    @property
    def is_text(self) -> bool:
        """Whether it has a character set, enumerations apart."""
        return self.base in _TEXTS

    @property
    def is_binary(self) -> bool:
        """Whether it holds bytes, which are written as base64."""
        return self.base in _BINARIES or self.base in _GEOMETRIES or self.base == "vector"

    @property
    def decimal(self) -> tuple[int, int]:
        """The digits in all, and those behind the point."""
        digits = self.arguments[0] if self.arguments else 10
        return digits, self.arguments[1] if len(self.arguments) > 1 else 0

    @property
    def fraction(self) -> int:
        """The digits of a second that are kept."""
        return self.arguments[0] if self.arguments else 0

    @property
    def spark(self) -> str:
        """As Spark's DDL has it: the narrowest type that holds every value."""
        if size := self.integer_size:
            return (_SPARK_UNSIGNED if self.unsigned else _SPARK_INTEGERS)[size]
        if self.base == "decimal":
            digits, behind = self.decimal
            return f"decimal({digits},{behind})" if digits <= 38 else "string"
        if self.base == "bit":
            bits = self.arguments[0] if self.arguments else 1
            return "boolean" if bits == 1 else "bigint" if bits < 64 else "decimal(20,0)"
        if self.is_binary:
            return "binary"
        return {
            "float": "float",
            "double": "double",
            "date": "date",
            "datetime": "timestamp_ntz",
            "timestamp": "timestamp",
            "year": "int",
        }.get(self.base, "string")


@dataclass(frozen=True)
class Field:
    """A column."""

    name: str
    native: str
    charset: str | None = None
    """Of text and enumerations."""
    optional: bool = True

    @cached_property
    def type(self) -> Type:
        """Its type, taken apart."""
        return Type.parse(self.native)

    @cached_property
    def column(self) -> Column:
        """As the other parts of capture know it."""
        return Column(self.name, self.type.spark, self.native, self.optional)


@dataclass(frozen=True)
class Table:
    """A table as it was at some position."""

    schema: str
    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    charset: str = "utf8mb4"
    """What a column of text gets that does not say its own."""

    @cached_property
    def public(self) -> TableSchema:
        """As the other parts of capture know it: always the same object."""
        return TableSchema(self.schema, self.name, tuple(field.column for field in self.fields), self.key)

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        """Where in a row its key is."""
        names = [field.name for field in self.fields]
        return tuple(names.index(name) for name in self.key)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def dump_tables(tables: Iterable[Table]) -> str:
    """Write tables as a short text, for every position carries them."""
    found = [
        [
            table.schema,
            table.name,
            table.charset,
            list(table.key),
            [[field.name, field.native, field.charset, field.optional] for field in table.fields],
        ]
        for table in tables
    ]
    return b64encode(zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 9)).decode()


def load_tables(text: str) -> list[Table]:
    """Read what `dump_tables` wrote."""
    return [
        Table(schema, name, tuple(Field(*field) for field in fields), tuple(key), charset)
        for schema, name, charset, key, fields in json.loads(zlib.decompress(b64decode(text)))
    ]
