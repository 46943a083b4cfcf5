"""The second stage: the rows of both tables with one join key, and what a change does to their pairs.

The output is a changelog: a row of the result that is new or differs is an upsert, one that is gone a delete, and one
that is as it was is not mentioned. Each batch is taken as a whole: of the versions of a row only the last counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headwater.pipeline.keyed.logic import PagedLogic, Pages, Step, pack, unpack
from headwater.pipeline.table_joins.pages import PageMap
from headwater.pipeline.table_joins.shape import HEAD, LEFT, RIGHT, Shape, Side

__all__ = ["TableJoin"]

Row = tuple[Any, ...]
Values = list[Any]
Changes = dict[bytes, tuple[Values | None, Values | None]]
"""What a row was and what it is now."""


@dataclass(frozen=True)
class TableJoin(PagedLogic):
    """Keyed by the join key.

    Rows are (side, deleted, version, *columns of the left, *columns of the right), the other side's columns null,
    and of a delete only the key's columns there. Results are (*columns, deleted); a delete has its key only.
    """

    shape: Shape

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int, pages: Pages) -> Step:
        """Change the group, and return what that changes in the result."""
        shape = self.shape
        width = len(shape.left.columns)
        newest = (
            _newest(rows, LEFT, shape.left, slice(HEAD, HEAD + width)),
            _newest(rows, RIGHT, shape.right, slice(HEAD + width, None)),
        )
        if None in key:
            return Step(None, self._without_key(newest))
        headers = (None, None) if state is None else unpack(state)
        group = (
            PageMap(headers[0], pages, width, stride=2, offset=LEFT),
            PageMap(headers[1], pages, len(shape.right.columns), stride=2, offset=RIGHT),
        )
        lefts, rights = _changes(group[0], newest[0]), _changes(group[1], newest[1])
        if not lefts and not rights:
            return Step(state, [])
        out = self._changed(group, lefts, rights)
        for table, changes in zip(group, (lefts, rights), strict=True):
            for pk, (_, now) in changes.items():
                if now is None:
                    table.remove(pk)
                else:
                    table.put(pk, now)
        headers = (group[0].flush(), group[1].flush())
        return Step(pack(headers) if group[0].count or group[1].count else None, out)

    def _changed(self, group: tuple[PageMap, PageMap], lefts: Changes, rights: Changes) -> list[Row]:
        left_counts = (group[0].count, group[0].count + _growth(lefts))
        right_counts = (group[1].count, group[1].count + _growth(rights))
        before: list[Row] = []
        after: list[Row] = []
        out: list[Row] = []
        if lefts:
            were = dict(group[1].items())
            are = {**were, **{pk: now for pk, (_, now) in rights.items()}}
            there = [row for row in are.values() if row is not None]
            for was, now in lefts.values():
                before += self._of_left(was, were.values(), right_counts[0])
                after += self._of_left(now, there, right_counts[1])
        if rights:
            others = (left for pk, left in group[0].items() if pk not in lefts)
            if all(was is not None and now is not None for was, now in rights.values()):
                out = self._updated(others, rights)
            else:
                gone = [was for was, _ in rights.values() if was is not None]
                new = [now for _, now in rights.values() if now is not None]
                for left in others:
                    before += self._of_left(left, gone, right_counts[0])
                    after += self._of_left(left, new, right_counts[1])
        if self.shape.how == "full":
            self._lonely_rights(group[1], rights, left_counts, (before, after))
        return out + self._difference(before, after)

    def _updated(self, lefts: Iterable[Values], rights: Changes) -> list[Row]:
        """Return what updates of the right do to the others, as when a department is renamed: no row comes or goes."""
        tails = [
            self.shape.pair([], now)
            for was, now in rights.values()
            if was is not None and now is not None and self.shape.pair([], was) != self.shape.pair([], now)
        ]
        return [(*left, *tail, False) for left in lefts for tail in tails] if tails else []

    def _lonely_rights(
        self, table: PageMap, rights: Changes, left_counts: tuple[int, int], rows: tuple[list[Row], list[Row]]
    ) -> None:
        lonely = (left_counts[0] == 0, left_counts[1] == 0)
        changes = list(rights.values())
        if lonely[0] != lonely[1]:
            changes += [(row, row) for pk, row in table.items() if pk not in rights]
        for change in changes:
            for right, alone, into in zip(change, lonely, rows, strict=True):
                if right is not None and alone:
                    into.append(self.shape.lonely_right(right))

    def _of_left(self, left: Values | None, rights: Iterable[Values], count: int) -> list[Row]:
        """Return the rows of a left with some of the `count` rights that there are."""
        if left is None:
            return []
        if count == 0:
            return [] if self.shape.how == "inner" else [self.shape.lonely_left(left)]
        return [self.shape.pair(left, right) for right in rights]

    def _difference(self, before: list[Row], after: list[Row]) -> list[Row]:
        """Return what turns the rows `before` into the rows `after`."""
        key_of = self.shape.key_of
        old = {key_of(row): row for row in before}
        out = [(*row, False) for row in after if old.pop(key_of(row), None) != row]
        return out + [self.shape.deletion(key) for key in old]

    def _without_key(self, newest: tuple[dict[bytes, Row], dict[bytes, Row]]) -> list[Row]:
        """Answer rows whose join key is null: they have no partners, so nothing is kept for them."""
        shape = self.shape
        out = []
        for side, lonely in ((LEFT, shape.lonely_left), (RIGHT, shape.lonely_right)):
            if shape.how == "full" or (shape.how == "left" and side == LEFT):
                for _, deleted, values in newest[side].values():
                    row = lonely(list(values))
                    out.append(shape.deletion(shape.key_of(row)) if deleted else (*row, False))
        return out


def _newest(rows: list[Row], side: int, table: Side, columns: slice) -> dict[bytes, Row]:
    """Return (version, deleted, values) of the newest version of each row of a side."""
    newest: dict[bytes, Row] = {}
    for row in rows:
        if row[0] != side:
            continue
        values = row[columns]
        key = [values[place] for place in table.key_places]
        if None in key:  # no row of a table
            continue
        pk = pack(key)
        known = newest.get(pk)
        if known is None or row[2] >= known[0]:
            newest[pk] = (row[2], row[1], values)
    return newest


def _changes(table: PageMap, newest: dict[bytes, Row]) -> Changes:
    changes: Changes = {}
    for pk, (_, deleted, values) in newest.items():
        was, now = table.get(pk), None if deleted else list(values)
        if was != now:
            changes[pk] = (was, now)
    return changes


def _growth(changes: Changes) -> int:
    return sum((now is not None) - (was is not None) for was, now in changes.values())
