"""The first stage: from changes of a table, by its key, to what they mean for its join keys.

A row of the left belongs to the group of its foreign key. When that changes, the group that it was in has to
learn of it, though the change names the new one only. So the foreign key of every row is kept here, by the
table's own key, and a change of it becomes two rows: one that retracts at the old key, one that asserts at the new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack
from headwater.pipeline.table_joins.shape import Shape

__all__ = ["Rekey"]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Rekey(Logic):
    """Keyed by the key of one of the tables.

    Rows are (version, deleted, *columns); of a delete only the key's columns need to be there. Results are
    (*join key, deleted, version, *columns): to be keyed by the join key; `Shape.row` makes the rest a row of
    `TableJoin`.
    """

    shape: Shape
    side: int

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        """Take the newest version of those in the batch; a table has no row with a null in its key."""
        if not rows or None in key:
            return Step(state, [])
        newest = max(rows, key=lambda row: row[0])
        version, deleted, values = newest[0], newest[1], newest[2:]
        known = None if state is None else unpack(state)
        joined = [values[place] for place in self.shape.join_places[self.side]]
        out = []
        if known is not None and (deleted or known != joined):
            out.append((*known, True, version, *self._only_key(key)))
        if deleted:
            return Step(None, out)
        out.append((*joined, False, version, *values))
        return Step(pack(joined), out)

    def _only_key(self, key: Row) -> Row:
        table = self.shape.side(self.side)
        values: list[Any] = [None] * len(table.columns)
        for place, value in zip(table.key_places, key, strict=True):
            values[place] = value
        return tuple(values)
