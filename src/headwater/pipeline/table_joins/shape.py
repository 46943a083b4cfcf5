"""What a join of two tables looks like: its columns, its key, and where everything lies in a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from headwater.pipeline.lookups.keys import On, TableError, named_pairs, refuse_clashes, refuse_missing

__all__ = ["LEFT", "RIGHT", "How", "Shape", "Side"]

LEFT: Final = 0
RIGHT: Final = 1
HEAD: Final = 3
"""Rows of the second stage start with side, deleted and version."""

How = Literal["inner", "left", "full"]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Side:
    """A table: its name, its columns, and those of them that are its key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """Where the key lies in a row."""
        return tuple(self.columns.index(name) for name in self.key)


@dataclass(frozen=True)
class Shape:
    """A join of two tables on equal columns.

    The result has the columns of the left, then those of the right without the ones that are joined on. In a full
    join a row of the right without partner shows these in the left's columns.
    """

    left: Side
    right: Side
    on: tuple[tuple[str, str], ...]
    how: How

    @classmethod
    def of(cls, left: Side, right: Side, on: On, how: How) -> Shape:
        """Check what a user gave."""
        if how not in ("inner", "left", "full"):
            raise TableError(f'how={how!r} is no join of tables; use "inner", "left" or "full"')
        pairs = named_pairs(on)
        refuse_missing(pairs, left.columns, left.name)
        refuse_missing(pairs.values(), right.columns, right.name)
        shape = cls(left, right, tuple(pairs.items()), how)
        refuse_clashes(left.columns, shape.columns[len(left.columns) :], "join_tables", right.name)
        return shape

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the result's columns; one more, `_deleted`, follows them."""
        joined = {theirs for _, theirs in self.on}
        return self.left.columns + tuple(name for name in self.right.columns if name not in joined)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that tell the result's rows apart.

        Where a row of the left has at most one partner, and every row of the result has a row of the left, it is the
        left's key; otherwise the keys of both.
        """
        ours = {theirs: mine for mine, theirs in self.on}
        if self.how != "full" and set(self.right.key) <= ours.keys():
            return self.left.key
        return tuple(dict.fromkeys([*self.left.key, *(ours.get(name, name) for name in self.right.key)]))

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """Where the result's key lies in a row of it."""
        return tuple(self.columns.index(name) for name in self.key)

    @cached_property
    def absent(self) -> frozenset[str]:
        """The columns of the key that are null where a side is missing, as no table's key is."""
        if self.how == "inner":
            return frozenset()
        return frozenset(self.key) - (frozenset() if self.how == "full" else frozenset(self.left.key))

    @cached_property
    def rest(self) -> tuple[int, ...]:
        """Where the right's columns that the result has lie in a row of the right."""
        joined = {theirs for _, theirs in self.on}
        return tuple(place for place, name in enumerate(self.right.columns) if name not in joined)

    @cached_property
    def join_places(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where the join key lies in a row of the left, and in one of the right."""
        left = tuple(self.left.columns.index(mine) for mine, _ in self.on)
        return left, tuple(self.right.columns.index(theirs) for _, theirs in self.on)

    def side(self, side: int) -> Side:
        """Return the left or the right."""
        return self.left if side == LEFT else self.right

    def moves(self, side: int) -> bool:
        """Whether a row of a side can change its join key, so that the first stage is needed for it."""
        return not {pair[side] for pair in self.on} <= set(self.side(side).key)

    @cached_property
    def needs_net(self) -> bool:
        """Whether one key of the result can come from two join keys in one batch, so that the third stage is needed."""
        return not {mine for mine, _ in self.on} <= set(self.key)

    def row(self, side: int, change: Row) -> Row:
        """Return a row of the second stage, from a change (deleted, version, *columns) of one side."""
        deleted, version, *values = change
        if side == LEFT:
            return (side, deleted, version, *values, *[None] * len(self.right.columns))
        return (side, deleted, version, *[None] * len(self.left.columns), *values)

    def pair(self, left: list[Any], right: list[Any]) -> Row:
        """Return the row of two partners."""
        return (*left, *[right[place] for place in self.rest])

    def lonely_left(self, left: list[Any]) -> Row:
        """Return the row of a row of the left without partner."""
        return (*left, *[None] * len(self.rest))

    def lonely_right(self, right: list[Any]) -> Row:
        """Return the row of a row of the right without partner."""
        row: list[Any] = [None] * len(self.left.columns)
        for place, theirs in zip(*self.join_places, strict=True):
            row[place] = right[theirs]
        return (*row, *[right[place] for place in self.rest])

    def deletion(self, key: Row) -> Row:
        """Return the row that says that a key is gone: the key's columns, and `_deleted`."""
        row: list[Any] = [None] * len(self.columns)
        for place, value in zip(self.key_places, key, strict=True):
            row[place] = value
        return (*row, True)

    def key_of(self, row: Row) -> Row:
        """Return the key of a row of the result."""
        return tuple([row[place] for place in self.key_places])
