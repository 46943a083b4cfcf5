"""The columns of a table as fields of a search index.

| column | field |
|---|---|
| one of `text` | its words, in lower case: `title:(quick fox)`, `title:"quick fox"` |
| another string | the whole value: `city:"New York"` |
| a whole number, a number, a decimal (as a double) | `age:42`, `age:[30 TO 50]`, `age:>30` |
| a timestamp, a date | `placed_at:[2026-01-01T00:00:00Z TO *]`; what is before 1678 or after 2261 counts as these |
| a boolean | `paid:true` |
| anything else | is in the row that a search finds, and cannot be searched for |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any

from headwater.app.types import DataType, Decimal, Field, Scalar
from headwater.derived.columns import converter_of
from headwater.derived.errors import DerivedError

__all__ = ["BUCKET", "KEY", "POSITION", "ROW", "IndexField", "build_schema", "index_fields"]

KEY, ROW, POSITION, BUCKET = "_key", "_row", "_position", "_bucket"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z")
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class IndexField:
    """A column that can be searched."""

    name: str
    kind: str
    """What tantivy calls it: text, exact (a text as a whole), integer, float, date or boolean."""
    convert: Callable[[Any], Any]


def index_fields(name: str, columns: Sequence[Field], text: Sequence[str]) -> list[IndexField]:
    """Return the fields of an index; refuse columns that have no words."""
    found = []
    for column in columns:
        if column.name in text:
            if column.type != Scalar("string") or not _NAME.match(column.name):
                raise DerivedError(
                    f"the index {name} cannot search the words of {column.name}: it is no string, or its name is"
                    " not of letters, digits and underscores; leave it out of text="
                )
            found.append(IndexField(column.name, "text", converter_of(column.type)))
        elif _NAME.match(column.name) and (kind := _kind(column.type)):
            found.append(IndexField(column.name, kind, _converter(column.type, kind)))
    return found


def build_schema(fields: Sequence[IndexField]) -> Any:
    """Return tantivy's schema."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field(KEY, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(ROW, stored=True, indexed=False, fast=False)
    builder.add_text_field(POSITION, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field(BUCKET, indexed=True)
    for field in fields:
        match field.kind:
            case "text":
                builder.add_text_field(field.name)
            case "exact":
                builder.add_text_field(field.name, tokenizer_name="raw", index_option="basic")
            case "integer":
                builder.add_integer_field(field.name, indexed=True, fast=True)
            case "float":
                builder.add_float_field(field.name, indexed=True, fast=True)
            case "date":
                builder.add_date_field(field.name, indexed=True, fast=True)
            case "boolean":
                builder.add_boolean_field(field.name, indexed=True, fast=True)
    return builder.build()


def _kind(kind: DataType) -> str | None:
    match kind:
        case Scalar("string"):
            return "exact"
        case Scalar(name) if name in _WHOLE:
            return "integer"
        case Scalar("float" | "double") | Decimal():
            return "float"
        case Scalar("timestamp" | "timestamp_ntz" | "date"):
            return "date"
        case Scalar("boolean"):
            return "boolean"
    return None


def _converter(kind: DataType, field: str) -> Callable[[Any], Any]:
    convert = converter_of(kind)
    if field == "float":
        return lambda value: float(convert(value))
    if kind == Scalar("date"):
        return lambda value: datetime.combine(convert(value), time(), UTC)
    if kind == Scalar("timestamp_ntz"):
        return lambda value: convert(value).replace(tzinfo=UTC)
    return convert
