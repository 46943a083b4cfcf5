"""What a statement does to tables, read from its text.

The binary log has statements that change tables as they were sent. Those that cannot be read in full are `Unclear`: the
table is then looked up in the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.capture.mysql.alter import alter
from headwater.capture.mysql.statement import Name, Statement, parts, plain, words
from headwater.capture.mysql.tables import Table

__all__ = [
    "Altered",
    "Dml",
    "Dropped",
    "Effect",
    "Moved",
    "Recreated",
    "Renamed",
    "Truncated",
    "Unclear",
    "effects",
]


@dataclass(frozen=True)
class Truncated:
    """All rows of a table went."""

    table: Name


@dataclass(frozen=True)
class Dropped:
    """A table went, or, with an empty name, all of a database."""

    table: Name


@dataclass(frozen=True)
class Recreated:
    """A table was made, in place of one that was there if there was one."""

    table: Name


@dataclass(frozen=True)
class Renamed:
    """Tables have other names; all at once, so that two may swap theirs."""

    pairs: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True)
class Unclear:
    """A table was changed in a way that its statement does not say in full."""

    table: Name


@dataclass(frozen=True)
class Moved:
    """Some rows of a table went or came at once, with a partition or a file."""

    table: Name


@dataclass(frozen=True)
class Dml:
    """Rows were changed by a statement, which the log then has in place of the rows."""

    tables: tuple[Name, ...]


@dataclass(frozen=True)
class Altered:
    """A table's columns or key were changed."""

    table: Name
    clauses: tuple[tuple[str, ...], ...]
    """The words of each."""

    def apply(self, table: Table) -> Table | None:
        """Return the table afterwards; None where a clause cannot be read."""
        return alter(table, self.clauses)


Effect = Truncated | Dropped | Recreated | Renamed | Unclear | Moved | Dml | Altered


def effects(text: str, schema: str) -> list[Effect]:
    """Return what a statement, sent in a database, does to tables."""
    said = Statement(words(text), schema)
    try:
        return _effects(said)
    except IndexError:  # a statement that ends too early: some newer syntax that only looks like the one here
        return []


def _effects(said: Statement) -> list[Effect]:
    if said.take("set", "statement"):
        while not said.take("for"):
            said.at += 1
            if not said.peek():
                return []
    if said.take("truncate"):
        said.take("table")
        return [Truncated(said.name())]
    if said.take("drop"):
        return _dropped(said)
    if said.take("rename"):
        if not (said.take("table") or said.take("tables")):
            return []
        return [_renamed(said)]
    if said.take("create"):
        return _created(said)
    if said.take("alter"):
        said.take("online")
        deletes = said.take("ignore")  # MariaDB, rows that a new unique index has no place for
        if not said.take("table"):
            return []
        said.take("if", "exists")
        return _altered(said, deletes=deletes)
    if said.peek() in ("insert", "update", "delete", "replace", "load", "with"):
        return [Dml(tuple(_mentioned(said)))]
    return []


def _dropped(said: Statement) -> list[Effect]:
    if said.take("database") or said.take("schema"):
        said.take("if", "exists")
        return [Dropped((plain(said.words[said.at]), ""))]
    if said.take("index"):
        return _indexed(said)
    if said.take("temporary") or not (said.take("table") or said.take("tables")):
        return []
    said.take("if", "exists")
    found: list[Effect] = [Dropped(said.name())]
    while said.take(","):
        found.append(Dropped(said.name()))
    return found


def _indexed(said: Statement) -> list[Effect]:
    while said.peek() and not said.take("on"):
        said.at += 1
    return [Unclear(said.name())] if said.peek() else []


def _renamed(said: Statement) -> Renamed:
    pairs = []
    while True:
        said.take("if", "exists")
        old = said.name()
        while not said.take("to"):
            said.at += 1
            if not said.peek():
                raise IndexError
        pairs.append((old, said.name()))
        if not said.take(","):
            return Renamed(tuple(pairs))


def _created(said: Statement) -> list[Effect]:
    replaces = said.take("or", "replace")
    if said.take("unique") or said.peek() == "index":
        return _indexed(said)
    if not said.take("table"):
        return []
    if said.take("if", "not", "exists") and not replaces:
        return []
    return [Recreated(said.name())]


_MOVING = {
    ("truncate", "partition"), ("drop", "partition"), ("exchange", "partition"), ("convert", "partition"),
    ("convert", "table"), ("discard", "tablespace"), ("import", "tablespace"), ("discard", "partition"),
    ("import", "partition"),
}  # fmt: skip


def _altered(said: Statement, *, deletes: bool) -> list[Effect]:
    table = said.name()
    if moved := [clause for clause in parts(said.words[said.at :]) if _is_moving(clause)]:
        others = [name for clause in moved for name in _mentioned(Statement(clause, said.schema))]
        return [Moved(name) for name in (table, *others)]
    if deletes:
        return [Moved(table)]
    new: Name | None = None
    kept = []
    for clause in parts(said.rest()):
        words = [word.lower() for word in clause[:2]]
        if words[:1] == ["rename"] and words[1:] not in (["column"], ["index"], ["key"]):
            other = Statement(clause[2:] if words[1:] in (["to"], ["as"], ["="]) else clause[1:], said.schema)
            new = other.name()
        elif clause:
            kept.append(tuple(clause))
    found: list[Effect] = [Altered(table, tuple(kept))] if kept else []
    return [*found, Renamed(((table, new),))] if new is not None else found


def _is_moving(clause: list[str]) -> bool:
    return tuple(word.lower() for word in clause[:2]) in _MOVING


def _mentioned(said: Statement) -> list[Name]:
    """Return everything in a statement that may be the name of a table."""
    found = []
    while said.peek():
        if re.fullmatch(r"[`\w$]+.*", said.peek(), re.DOTALL):
            found.append(said.name())
        else:
            said.at += 1
    return found
