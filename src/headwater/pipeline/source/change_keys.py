"""The key of a record that deletes a row: what is left of the row.

It is a JSON object of the key's columns, as capture and Debezium write it (also within `schema` and `payload`), or the
text that `views.keys` makes, as our own sinks write it: the value itself, or several with commas between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.core.json_types import parse
from headwater.pipeline.source.decoded import Malformed
from headwater.pipeline.source.json_rows import row_converter
from headwater.views.keys import NULL

__all__ = ["KeyReader"]


class KeyReader:
    """Reads the keys of one table."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._fields = [schema.field(name) for name in key]
        self._convert = row_converter(pa.schema(self._fields))

    def read(self, key: bytes | None) -> list[Any]:
        """Return the values of the key's columns, in the order of the key, or raise `Malformed`."""
        if key is None:
            raise Malformed("a delete without a key: nobody can tell of which row")
        if len(self._fields) == 1 and pa.types.is_binary(self._fields[0].type):
            return [key]
        try:
            text = key.decode()
        except UnicodeDecodeError:
            raise Malformed("a delete whose key is neither JSON nor text") from None
        row = self._convert(self._object(text) or self._values(text))
        for field, value in zip(self._fields, row, strict=True):
            if value is None:
                raise Malformed(f"a delete whose key has no {field.name}")
        return row

    def _object(self, text: str) -> Mapping[str, Any] | None:
        """Return a key that is an object with all the columns."""
        if not text.lstrip().startswith("{"):
            return None
        try:
            document = parse(text)
        except (ValueError, RecursionError):
            return None
        if isinstance(document, dict) and isinstance(document.get("payload"), dict):
            document = document["payload"]
        has_all = isinstance(document, dict) and all(field.name in document for field in self._fields)
        return document if has_all else None

    def _values(self, text: str) -> dict[str, Any]:
        """Return the values that a text of our own stands for."""
        if len(self._fields) == 1:
            return {self._fields[0].name: _value(text, self._fields[0].type)}
        parts = text.split(",")
        if len(parts) != len(self._fields):
            names = " and ".join(field.name for field in self._fields)
            raise Malformed(f"a delete whose key is {text[:100]!r}, and not one of {names}")
        return {
            field.name: None if part == NULL else _value(_unescaped(part), field.type)
            for field, part in zip(self._fields, parts, strict=True)
        }


def _unescaped(part: str) -> str:
    return part.replace("%2C", ",").replace("%25", "%")


def _value(text: str, kind: pa.DataType) -> Any:
    """Return what JSON would hold for a value that was written as plain text."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        try:
            return parse(text)
        except ValueError:
            return text
    return text
