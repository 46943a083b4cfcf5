"""A partial match: the rows that it has taken, and how many of them are kept as bytes without any of them twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from headwater.pipeline.patterns.values import Memory, Row

__all__ = ["MOST_ROWS", "NEVER", "Chain", "Run", "Start", "Taken", "tuples"]

NEVER: Final = 2**63
"""Later than any time."""
MOST_ROWS = 100_000
"""How many rows the partial matches of a key may together hold from one batch to the next."""


class Taken(NamedTuple):
    """A row that was taken for a symbol, after others."""

    number: int
    row: Row
    symbol: int
    before: Taken | None


class Run(NamedTuple):
    """A partial match: where it is, what the next row must not be, and until when it holds out."""

    place: int
    never: int
    taken: Taken | None
    memory: Memory
    until: int


class Start:
    """The runs that begin with one row, and the best match among those that ended."""

    __slots__ = ("best", "number", "runs", "time")

    def __init__(self, number: int, time: int) -> None:
        self.number = number
        self.time = time
        self.runs: list[Run] = []
        self.best: Taken | None = None


class Chain:
    """Rows and how they were taken, each once, however many runs share them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.taken: list[tuple[int, int, int, int]] = []
        self._places: dict[int, int] = {}
        self._rows: dict[int, int] = {}

    def place(self, taken: Taken | None) -> int:
        """Return the number of a link, adding it and those before it if they are new; 0 is none."""
        new: list[Taken] = []
        node = taken
        while node is not None and id(node) not in self._places:
            new.append(node)
            node = node.before
        last = 0 if node is None else self._places[id(node)]
        for each in reversed(new):
            row = self._rows.get(each.number)
            if row is None:
                row = self._rows[each.number] = len(self.rows)
                self.rows.append(each.row)
            self.taken.append((each.number, row, each.symbol, last))
            last = self._places[id(each)] = len(self.taken)
        return last


def tuples(values: Iterable[Any]) -> Memory:
    """Return lists, as they come from bytes, as the tuples that they were."""
    return tuple([tuples(value) if isinstance(value, list) else value for value in values])
