"""The captured tables as they were at the place in the log that is being read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from headwater.capture.mysql.binlog import Query, TableMap
from headwater.capture.mysql.ddl import (
    Altered,
    Dml,
    Dropped,
    Effect,
    Moved,
    Recreated,
    Renamed,
    Truncated,
    Unclear,
    effects,
)
from headwater.capture.mysql.rows import fits
from headwater.capture.mysql.tables import Table, dump_tables
from headwater.capture.source import CaptureError

__all__ = ["History"]

Name = tuple[str, str]
_MATTERS = re.compile(
    r"\b(alter|create|drop|rename|truncate|insert|update|delete|replace|load|with)\b", re.IGNORECASE
)
_ANEW = "`headwater capture snapshot` takes a new snapshot"


class History:
    """Follows what statements do to the captured tables; `look_up` finds a table as it is now."""

    def __init__(
        self, tables: Iterable[Table], captured: Iterable[Name], look_up: Callable[[Name], Table]
    ) -> None:
        names = set(captured)
        self._tables = {
            (table.schema, table.name): table for table in tables if (table.schema, table.name) in names
        }
        self._unclear: dict[Name, str] = {}
        """Tables that were changed in ways that only the server knows, and by which statement."""
        self._look_up = look_up
        self._dump: str | None = None

    @property
    def dump(self) -> str:
        """All tables, as a position has them."""
        if self._dump is None:
            self._dump = dump_tables(self._tables.values())
        return self._dump

    def captures(self, schema: str, name: str) -> bool:
        """Tell whether a table is captured."""
        return (schema, name) in self._tables

    def apply(self, query: Query, *, ignores: Callable[[str], bool]) -> list[Table]:
        """Take in what a statement does to tables, and return those that it emptied."""
        if _MATTERS.search(query.text) is None:
            return []
        emptied: list[Table] = []
        for effect in effects(query.text, query.schema):
            for name in _touched(effect, self._tables):
                if not ignores(".".join(name)):
                    emptied += self._take(effect, name, query.text)
        return emptied

    def fit(self, event: TableMap) -> Table:
        """Return the table whose rows come next, once it is known to be as the log says."""
        name = event.schema, event.name
        table = self._tables[name]
        statement = self._unclear.get(name)
        if statement is None and _is(table, event):
            return table
        found = self._look_up(name)
        if not _is(found, event):
            raise CaptureError(
                f"{table} is not in the log as it was known to be"
                + (f" after {_short(statement)!r}" if statement else "")
                + f", and has changed again since: {_ANEW}"
            )
        self._unclear.pop(name, None)
        self._set(name, found)
        return found

    def _set(self, name: Name, table: Table) -> None:
        if table != self._tables[name]:
            self._tables[name] = table
            self._dump = None

    def _take(self, effect: Effect, name: Name, statement: str) -> list[Table]:
        table = self._tables[name]
        if isinstance(effect, Truncated):
            return [table]
        if isinstance(effect, Altered):
            changed = effect.apply(table)
            if changed is None or name in self._unclear:
                self._unclear[name] = statement
            else:
                self._set(name, changed)
        elif isinstance(effect, Unclear):
            self._unclear[name] = statement
        elif isinstance(effect, Renamed):
            self._rename(effect, name, statement)
        elif isinstance(effect, Dropped):
            raise CaptureError(f"{table} was dropped: leave it out of the capture, or make it again: {_ANEW}")
        elif isinstance(effect, Moved):
            raise CaptureError(
                f"{_short(statement)!r} took rows out of {table}, or put some in, which are not in the log: {_ANEW};"
                " DELETE and INSERT can be followed"
            )
        elif isinstance(effect, Recreated):
            raise CaptureError(
                f"{table} was made anew, and what became of its rows is not in the log: {_ANEW}"
            )
        else:
            raise CaptureError(
                f"rows of {table} may have been changed by {_short(statement)!r}, which is in the log as a statement,"
                f" not as rows: have applications leave binlog_format at ROW; {_ANEW}"
            )
        return []

    def _rename(self, effect: Renamed, name: Name, statement: str) -> None:
        where = dict(effect.pairs).get(name, name)
        if any(new == name for _, new in effect.pairs):
            # Tools that change tables online put a copy in the place of a table, with the same rows.
            self._unclear[name] = statement
        else:
            raise CaptureError(
                f"{'.'.join(name)} was renamed to {'.'.join(where)}: capture that one in its place, which"
                " begins with a snapshot"
            )


def _touched(effect: Effect, tables: dict[Name, Table]) -> list[Name]:
    if isinstance(effect, Renamed):
        names = [name for pair in effect.pairs for name in pair]
    elif isinstance(effect, Dml):
        names = list(effect.tables)
    elif isinstance(effect, Dropped) and not effect.table[1]:
        return [name for name in tables if name[0] == effect.table[0]]
    else:
        names = [effect.table]
    return [name for name in dict.fromkeys(names) if name in tables]


def _is(table: Table, event: TableMap) -> bool:
    if len(table.fields) != len(event.columns):
        return False
    if event.names and event.names != tuple(field.name for field in table.fields):
        return False
    return all(fits(field, stored) for field, stored in zip(table.fields, event.columns, strict=True))


def _short(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 100 else f"{text[:99]}…"
