"""A maintained join in one process: the three stages as Spark chains them, with their state in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headwater.pipeline.keyed.logic import Step
from headwater.pipeline.table_joins.join import TableJoin
from headwater.pipeline.table_joins.pages import MemoryPages
from headwater.pipeline.table_joins.rekey import Rekey
from headwater.pipeline.table_joins.shape import LEFT, RIGHT, Shape

__all__ = ["MaintainedJoin"]

Row = tuple[Any, ...]


class MaintainedJoin:
    """Takes batches of changes of both tables, and returns the changes of the result."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._rekeys = (Rekey(shape, LEFT), Rekey(shape, RIGHT))
        self._join = TableJoin(shape)
        self._foreign_keys: tuple[dict[Row, bytes], dict[Row, bytes]] = ({}, {})
        self.groups: dict[Row, bytes] = {}
        self.pages: dict[Row, MemoryPages] = {}

    def batch(self, left: Iterable[Row] = (), right: Iterable[Row] = ()) -> list[Row]:
        """Take changes (version, deleted, *columns) and return changes (*columns, deleted)."""
        routed: list[Row] = []
        for side, changes in ((LEFT, left), (RIGHT, right)):
            routed += self._routed(side, changes)
        width = len(self._shape.on)
        out: list[Row] = []
        for key, rows in _grouped(routed, lambda row: row[:width]).items():
            pages = self.pages.setdefault(key, MemoryPages())
            step = self._join.step(key, self.groups.get(key), [row[width:] for row in rows], 0, pages)
            _keep(self.groups, key, step)
            if step.state is None:
                del self.pages[key]
            out += step.out
        if not self._shape.needs_net:
            return out
        back = {self._shape.key_of(row) for row in out if not row[-1]}
        return [row for row in out if not row[-1] or self._shape.key_of(row) not in back]

    def _routed(self, side: int, changes: Iterable[Row]) -> list[Row]:
        shape, known = self._shape, self._foreign_keys[side]
        joined, places = shape.join_places[side], shape.side(side).key_places
        routed: list[Row] = []
        if shape.moves(side):
            for key, rows in _grouped(changes, lambda row: tuple(row[2 + place] for place in places)).items():
                step = self._rekeys[side].step(key, known.get(key), rows, 0)
                _keep(known, key, step)
                routed += step.out
        else:
            for version, deleted, *values in changes:
                routed.append((*[values[place] for place in joined], deleted, version, *values))
        width = len(joined)
        return [(*row[:width], *shape.row(side, row[width:])) for row in routed]


def _grouped(rows: Iterable[Row], key_of: Callable[[Row], Row]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    return groups


def _keep(states: dict[Row, bytes], key: Row, step: Step) -> None:
    if step.state is None:
        states.pop(key, None)
    else:
        states[key] = step.state
