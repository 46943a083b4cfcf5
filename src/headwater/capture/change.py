"""What happened to a row, in the same terms for every database.

Values are kept as the bytes of their JSON text, in the order of the table's columns: a database hands most of them over
as text already, and so a row is written to its topic without ever becoming Python objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["Batch", "Change", "Column", "Op", "Position", "Row", "TableSchema"]

Op = Literal["r", "c", "u", "d", "t"]
"""Read by a snapshot, created, updated, deleted, or the whole table truncated: Debezium's letters."""

Row = tuple[bytes | None, ...]
"""The JSON text of each column's value; None where the database did not say (a large value that did not change)."""

Position = Mapping[str, Any]
"""Where a database is to be followed from: JSON of its package's own making."""


@dataclass(frozen=True)
class Column:
    """A column of a captured table."""

    name: str
    type: str
    """As Spark's DDL has it, for those who read the topic: `string`, `bigint`, `decimal(10,2)`…"""
    native: str
    """As the database has it."""
    optional: bool = True


@dataclass(frozen=True)
class TableSchema:
    """A captured table as it was at some time: a changed one is another object."""

    schema: str
    """The schema in Postgres, the database in MySQL, `main` in SQLite."""
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns of the primary key, or of what takes its place."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


class Change(NamedTuple):
    """One change of one row, or `t`: of all rows."""

    op: Op
    table: TableSchema
    before: Row | None
    """The row before, as far as the database says: all of it, or its key with the rest None."""
    after: Row | None
    time_us: int
    """When the database committed it; when the snapshot read it."""
    transaction: str | None
    """The database's name of the transaction."""
    source: Mapping[str, Any]
    """What the envelope says about where it comes from (lsn, file and position, …), besides what is above."""


class Batch(NamedTuple):
    """Some changes, and where to go on once they are in their topics."""

    changes: list[Change]
    position: Position
    is_behind: bool = False
    """Whether the database is known to have more, so that a batch without changes does not mean the end of them."""
