"""Avro values: one record each, in binary without a header, written with the schema of the declaration.

The schema is made from the declared columns, so that both sides can make it: every field is a union of null and
its type, in the declared order; nested records are named by their path. Confluent's wire format, which names a
schema in a registry, is not read.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from headwater.pipeline.source.decoded import Decoded, empty
from headwater.pipeline.source.errors import SourceError
from headwater.pipeline.source.opened import Records

__all__ = ["AvroDecoder", "avro_schema"]

_PLAIN = {
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): {"type": "int", "logicalType": "date"},
}


def avro_schema(schema: pa.Schema, name: str = "Value") -> dict[str, Any]:
    """Return the Avro schema of a topic's values."""
    return _record(name, list(schema))


def _record(name: str, fields: list[pa.Field]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field.name, "type": _nullable(field.type, f"{name}_{field.name}"), "default": None}
            for field in fields
        ],
    }


def _nullable(kind: pa.DataType, path: str) -> list[Any]:
    return ["null", _type(kind, path)]


def _type(kind: pa.DataType, path: str) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind):
        return {
            "type": "long",
            "logicalType": "timestamp-micros" if kind.tz is not None else "local-timestamp-micros",
        }
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, path)}
    if pa.types.is_struct(kind):
        return _record(path, list(kind))
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_type, path)}
    raise SourceError(f"a column of type {kind} cannot be read from Avro")


class AvroDecoder:
    """Reads values that are one Avro record each; null values, which are deletes, give no row."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._avro = fastavro.parse_schema(avro_schema(schema))

    def decode(self, records: Records) -> Decoded:
        """Return one row per record that is not null and not malformed."""
        rows: list[int] = []
        read: list[dict[str, Any]] = []
        dead: list[tuple[int, str]] = []
        for row in range(len(records)):
            value = records.value(row)
            if value is None:
                continue
            stream = io.BytesIO(value)
            try:
                document: Any = fastavro.schemaless_reader(stream, self._avro, None)
            except Exception as error:  # fastavro raises whatever its bytes lead it to
                dead.append(
                    (row, f"not Avro of the declared schema: {type(error).__name__} {error}".rstrip())
                )
                continue
            if stream.tell() != len(value):
                dead.append((row, f"{len(value) - stream.tell()} bytes follow the Avro record"))
                continue
            read.append(document)
            rows.append(row)
        if not read:
            return Decoded(empty(self._schema), np.zeros(0, np.intp), dead)
        columns = self._columns(read, rows, dead)
        return Decoded(columns, np.array(rows, np.intp), dead)

    def _columns(
        self, read: list[dict[str, Any]], rows: list[int], dead: list[tuple[int, str]]
    ) -> list[pa.Array]:
        try:
            return [self._column(field, read) for field in self._schema]
        except (pa.ArrowException, ValueError, OverflowError):
            pass
        # One of them holds what a column does not, such as an int beyond 8 bits: find out which.
        good = []
        for document, row in zip(list(read), list(rows), strict=True):
            try:
                for field in self._schema:
                    self._column(field, [document])
                good.append((document, row))
            except (pa.ArrowException, ValueError, OverflowError) as error:
                dead.append((row, str(error)))
        read[:] = [document for document, _ in good]
        rows[:] = [row for _, row in good]
        return [self._column(field, read) for field in self._schema]

    @staticmethod
    def _column(field: pa.Field, read: list[dict[str, Any]]) -> pa.Array:
        values = [document[field.name] for document in read]
        if pa.types.is_map(field.type):
            values = [None if value is None else list(value.items()) for value in values]
        return pa.array(values, field.type)
