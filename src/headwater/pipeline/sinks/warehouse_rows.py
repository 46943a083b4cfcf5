"""What a warehouse reads: the changes of a table's rows, each with the text of its key.

The text is the one that the table's other stores have (`headwater.derived.decode`), and that a comparison with the
database goes by. Where it depends on how a value was written, as with times and with numbers that have a point, the
column is read as the text that the JSON has, and gets its type in the task that writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf

from headwater.app import App, Stream, Table, Warehouse
from headwater.app.types import Array, Field, Map, Scalar, Struct, nullable, text
from headwater.derived.decode import KeyText
from headwater.derived.errors import DerivedError
from headwater.derived.parts import KEY
from headwater.derived.stores import columns_of
from headwater.pipeline.sinks.columns import key_text
from headwater.pipeline.source import TopicSource

__all__ = ["WarehouseRows", "rows_of"]

_PLAIN = ("tinyint", "smallint", "int", "bigint", "string", "boolean", "date")
"""Types whose values are written in one way."""


@dataclass(frozen=True)
class WarehouseRows:
    """A topic as a warehouse reads it."""

    source: TopicSource
    columns: tuple[Field, ...]
    """As the warehouse has them."""
    texts: tuple[str, ...]
    """Those of the key that are read as text, and are none."""

    def keyed(self, changes: DataFrame) -> DataFrame:
        """Return changes with the text of their keys."""
        key = self.source.key
        if self.texts:
            columns = [changes[f"`{name.replace('`', '``')}`"] for name in key]
            by_hints: Any = arrow_udf  # which its type does not know, and it prefers
            made = by_hints(_texts(key, self.columns), "string")(*columns)
        else:
            made = key_text(changes, key)
        return changes.withColumn(KEY, made)


def rows_of(
    app: App, definition: Warehouse, *, broker: str, query: str, until_now: bool = False
) -> WarehouseRows:
    """Return what a warehouse reads, or raise `DerivedError` for a key that has no text."""
    read = app.definitions[definition.of]
    assert isinstance(read, Table | Stream)
    table = read if isinstance(read, Table) else None
    columns = columns_of(app, definition)
    # A stream's key of bytes is in its records as it is, and nowhere as text.
    plain = _PLAIN if table is not None else (*_PLAIN, "binary")
    texts = tuple(
        each.name
        for each in columns
        if each.name in read.key and not (isinstance(each.type, Scalar) and each.type.name in plain)
    )
    _refuse_nested(definition, [each for each in columns if each.name in texts])
    as_read = [replace(each, type=Scalar("string")) if each.name in texts else each for each in columns]
    source = TopicSource(
        broker=broker,
        topic=definition.of,
        schema=text(nullable(as_read)),
        envelope="flat" if table is None else table.envelope,
        key=read.key,
        key_types=text([each for each in columns if each.name in read.key]),
        metadata=("_partition", "_timestamp"),
        dead_letters=app.dead_letters,
        group=f"headwater.{query}",
        max_rows=None if table is None else table.max_rows,
        max_bytes=None if table is None else table.max_bytes,
        until_now=until_now,
    )
    return WarehouseRows(source, columns, texts)


def _refuse_nested(definition: Warehouse, columns: Sequence[Field]) -> None:
    for column in columns:
        if isinstance(column.type, Array | Map | Struct):
            raise DerivedError(
                f"{column.name}, of the key of {definition.of}, is no single value: declare {definition.name} with"
                ' engine="process", or the table with another key'
            )


def _texts(key: Sequence[str], columns: Sequence[Field]) -> Callable[..., pa.Array]:
    """Return what makes the texts of keys in a task."""
    text_of = KeyText(key, columns)

    def texts(*values: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in values), strict=True)
        return pa.array([text_of.of_row(dict(zip(key, row, strict=True))) for row in rows], pa.string())

    return texts
