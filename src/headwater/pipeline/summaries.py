"""Sums, counts, extremes and means of groups, in columns: the logic of `summarise`, without Spark.

What is kept of a group is a row of partial results, and rows of the same group may be kept side by side: they are
put together when its window closes, or when there are many of them. So a batch adds what it brought and reads
nothing, however many groups there are.

Rows that come in and partial results look alike, so that both are folded in the same way:

    start, end      of the window
    k0, k1, …       the rest of the key
    v0, v1, …       the value of each measure, and what its values have been folded to
    n0, n1, …       how many of those there were that are not null
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from headwater.pipeline.aggregates import Kind

__all__ = ["Measure", "Summary"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Measure:
    """One result of each group."""

    kind: Kind

    @property
    def folds(self) -> str | None:
        """How values come together: Arrow's name of it, or None where only their number counts."""
        if self.kind == "count":
            return None
        return "sum" if self.kind == "mean" else self.kind

    @property
    def counts(self) -> bool:
        """Whether the number of values is needed."""
        return self.kind in ("count", "mean")


@dataclass(frozen=True)
class Summary:
    """What is asked of each group; `beside` are further columns that a key decides."""

    keys: int
    measures: tuple[Measure, ...]

    @property
    def group(self) -> list[str]:
        """The columns that make a group."""
        return ["start", "end", *(f"k{number}" for number in range(self.keys))]

    @property
    def columns(self) -> list[str]:
        """The columns of rows and of partial results."""
        return [*self.group, *(name for name, _ in self._folds())]

    def _folds(self) -> list[tuple[str, str]]:
        found = []
        for number, measure in enumerate(self.measures):
            if measure.folds is not None:
                found.append((f"v{number}", measure.folds))
            if measure.counts:
                found.append((f"n{number}", "sum"))
        return found

    def folded(self, tables: Sequence[pa.Table], beside: Sequence[str] = ()) -> pa.Table:
        """Return one row of partial results for each group of some tables.

        Columns `beside` are kept, which are the same in all rows of a group.
        """
        rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        group = [*self.group, *beside]
        done = rows.group_by(group, use_threads=False).aggregate(self._folds())
        names = {f"{name}_{how}": name for name, how in self._folds()}
        folded = done.rename_columns(names).select([*self.columns, *beside])
        return folded.cast(rows.select(folded.column_names).schema)

    @staticmethod
    def closed(table: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
        """Return the groups whose window has ended at a watermark in µs, and the others."""
        time = pa.scalar(_EPOCH + timedelta(microseconds=watermark), table["end"].type)
        over = pc.less_equal(table["end"], time)
        return table.filter(over), table.filter(pc.invert(over))

    def results(self, table: pa.Table) -> pa.Table:
        """Return the columns of the key, and a column `r0`, `r1`… for each measure."""
        names, columns = list(self.group), [table[name] for name in self.group]
        for number, measure in enumerate(self.measures):
            names.append(f"r{number}")
            match measure.kind:
                case "count":
                    columns.append(table[f"n{number}"])
                case "mean":
                    columns.append(pc.divide(table[f"v{number}"], pc.cast(table[f"n{number}"], pa.float64())))
                case _:
                    columns.append(table[f"v{number}"])
        return pa.table(columns, names=names)
