"""The rows of a table, some at a time, in the order of its key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from headwater.capture.sqlite.config import Layout, Unique, quote
from headwater.capture.sqlite.offset import Key

__all__ = ["is_after", "read_rows"]


def read_rows(
    connection: sqlite3.Connection, layout: Layout, after: Key | None
) -> Iterator[tuple[object, ...]]:
    """Yield the rows behind a key."""
    columns = ", ".join(quote(name) for name in layout.names)
    order = ", ".join(_collated(layout.uniques[0]))
    where = f"WHERE {is_after(layout.uniques[0])}" if after is not None else ""
    query = f"SELECT {columns} FROM {quote(layout.table.name)} {where} ORDER BY {order}"
    yield from connection.execute(query, after or ())


def is_after(key: Unique, columns: list[str] | None = None) -> str:
    """Return the condition that a row comes behind a key, whose values are the parameters."""
    marks = ", ".join("?" * len(key.columns))
    return f"({', '.join(_collated(key, columns))}) > ({marks})"


def _collated(key: Unique, columns: list[str] | None = None) -> list[str]:
    names = columns or [quote(name) for name in key.columns]
    return [f"{name} COLLATE {quote(coll)}" for name, coll in zip(names, key.collations, strict=True)]
