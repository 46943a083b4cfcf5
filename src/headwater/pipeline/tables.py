"""A table as a pipeline sees it: the changes of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["CHANGED_AT", "DELETED", "VERSION", "Table"]

DELETED: Final = "_deleted"
"""Whether the row is gone; then only the columns of its key are there."""
CHANGED_AT: Final = "_changed_at"
"""When the change became valid: a timestamp. Null where nobody knows: then right after the change before it."""
VERSION: Final = "_version"
"""Orders the changes of one key: a long."""


@dataclass(frozen=True)
class Table:
    """What a function gets for a table: `lookup` and `join_tables` take it.

    `changes` has the table's columns and `_deleted`, `_changed_at` and `_version`.
    """

    name: str
    key: tuple[str, ...]
    changes: DataFrame
    in_time: Callable[[int | None], DataFrame] | None = None
    """Returns the changes in event time, by `_changed_at`, which others wait for: for so many ms, or without limit."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are declared."""
        return [name for name in self.changes.columns if name not in (DELETED, CHANGED_AT, VERSION)]

    def where(self, condition: Column | str) -> Table:
        """Return the table without the rows that do not meet a condition; one that no longer does is deleted."""
        met = F.expr(condition) if isinstance(condition, str) else condition
        gone = F.coalesce(F.col(DELETED), F.lit(False)) | ~F.coalesce(met, F.lit(False))
        return self._through(lambda changes: changes.withColumn(DELETED, gone))

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the table with other names for some of its columns: `{"name": "department"}`."""
        key = tuple(names.get(name, name) for name in self.key)
        table = self._through(lambda changes: changes.withColumnsRenamed(dict(names)))
        return replace(table, key=key)

    def _through(self, step: Callable[[DataFrame], DataFrame]) -> Table:
        in_time = self.in_time
        timed = None if in_time is None else lambda wait_ms: step(in_time(wait_ms))
        return replace(self, changes=step(self.changes), in_time=timed)
