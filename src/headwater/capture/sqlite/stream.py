"""The change table read, as changes.

A change of a row whose table's snapshot is under way counts only where the snapshot has read past the row already: the
others it will read as they are by then. A row that is moved from one side to the other is deleted, or made, as those
see it who have read so far.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from headwater.capture.change import Change, Op, Row, TableSchema
from headwater.capture.source import CaptureError
from headwater.capture.sqlite.config import Layout
from headwater.capture.sqlite.offset import Key, Offset
from headwater.capture.sqlite.snapshot import is_after
from headwater.capture.sqlite.triggers import CHANGES
from headwater.capture.sqlite.values import converter_of

__all__ = ["Reader", "Stream", "size_of"]

IsAfter = Callable[[Any], bool]


def size_of(row: Row | None) -> int:
    """Return how many bytes a row has."""
    return 0 if row is None else sum(len(value) for value in row if value is not None)


class Reader:
    """Makes rows of one layout out of SQLite's values."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.table: TableSchema = layout.table
        self._converters = [converter_of(column.native) for column in layout.table.columns]
        self._places = [layout.names.index(name) for name in layout.table.key]

    def row(self, values: tuple[Any, ...]) -> Row:
        """Return a row's values as JSON text."""
        return tuple(
            [convert[type(value)](value) for convert, value in zip(self._converters, values, strict=True)]
        )

    def key(self, values: tuple[Any, ...]) -> Key:
        """Return the key among a row's values; SQLite lets it be null, and we cannot."""
        key = tuple(values[i] for i in self._places)
        if None in key:
            raise CaptureError(
                f"a row of {self.table} has NULL in its key ({', '.join(self.table.key)}), and cannot be told from"
                " others: give it a value, and declare the columns NOT NULL"
            )
        return key


class Stream:
    """Reads changes behind a number."""

    def __init__(
        self, connection: sqlite3.Connection, readers: dict[int, Reader], tables: frozenset[str]
    ) -> None:
        self._connection = connection
        self._readers = readers
        self._tables = tables
        self._width = max((len(reader.layout.names) for reader in readers.values()), default=0)

    def read(self, offset: Offset, rows: int, size: int) -> tuple[list[Change], bool]:
        """Return the next changes, up to so many and so large, and whether these are all; move the offset."""
        values = "".join(f", o{i}" for i in range(self._width)) + "".join(
            f", n{i}" for i in range(self._width)
        )
        query = f"SELECT seq, layout, op, at{values} FROM {CHANGES} WHERE seq > ? ORDER BY seq"
        changes: list[Change] = []
        width = self._width
        taken = 0
        for number, row in enumerate(self._connection.execute(query, (offset.seq,))):
            if number == rows or taken > size:
                return changes, False
            offset.seq, offset.at = row[0], row[3]
            reader = self._readers.get(row[1])
            if (
                reader is None or reader.table.name not in self._tables
            ):  # of a table that is not captured any more
                continue
            count = len(reader.layout.names)
            old, new = row[4 : 4 + count], row[4 + width : 4 + width + count]
            change = self._change(reader, offset, offset.seq, row[2], row[3], old, new)
            if change is not None:
                changes.append(change)
                taken += size_of(change.before) + size_of(change.after)
        return changes, True

    def _change(
        self, reader: Reader, offset: Offset, seq: int, noted: str, at: int, old: Any, new: Any
    ) -> Change | None:
        before = old if noted in ("u", "d") else None
        after = new if noted != "d" else None
        # An x is a row as it is, which readers know as it was.
        op: Op = "u" if noted == "x" else noted  # type: ignore[assignment]
        for values in (before, after):
            if values is not None:
                reader.key(values)
        if offset.reads(reader.table.name):
            last = offset.after.get(reader.table.name)
            if before is not None and self._is_unread(reader, before, last):
                before = None
            if after is not None and self._is_unread(reader, after, last):
                after = None
            if before is None and after is None:
                return None
            if noted == "u":
                op = "d" if after is None else "c" if before is None else "u"
        return Change(
            op,
            reader.table,
            None if before is None else reader.row(before),
            None if after is None else reader.row(after),
            at * 1000,
            None,
            {"seq": seq},
        )

    def _is_unread(self, reader: Reader, values: Any, last: Key | None) -> bool:
        """Tell whether a snapshot has yet to come to a row; SQLite itself compares, by the key's collations."""
        if last is None:
            return True
        key = reader.layout.uniques[0]
        condition = is_after(key, ["?"] * len(key.columns))
        [found] = self._connection.execute(f"SELECT {condition}", (*reader.key(values), *last)).fetchone()
        return bool(found)
