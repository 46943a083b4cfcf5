"""How the captured tables came to look as they do.

Each time that a table is seen with other columns, its schema is written to the topic `headwater.capture.schemas`, in
one transaction with the first record of that shape: columns, key, and in sentences what changed. Records name their
columns, so older rows stay readable: a column that was added is missing in them, one that was dropped is still there.

What readers of the older rows have to know is called `unmapped`: a type that does not hold what the older one held, a
name that took the place of another. A changed key stops the capture: the topic's records are known by the older one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headwater.capture.change import Column, TableSchema
from headwater.capture.reading import records_of
from headwater.capture.source import CaptureError
from headwater.client import Cluster

__all__ = ["SCHEMAS_TOPIC", "Difference", "History", "Version", "compare", "ddl", "read_versions"]

SCHEMAS_TOPIC = "headwater.capture.schemas"

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)\Z")


def ddl(table: TableSchema) -> str:
    """Return a table's columns as Spark's DDL.

    >>> columns = Column("id", "bigint", "INTEGER"), Column("e mail", "string", "TEXT")
    >>> ddl(TableSchema("main", "users", columns, ("id",)))
    'id bigint, `e mail` string'
    """
    return ", ".join(f"{_quoted(column.name)} {column.type}" for column in table.columns)


def _quoted(name: str) -> str:
    return name if _PLAIN.match(name) else "`{}`".format(name.replace("`", "``"))


@dataclass(frozen=True)
class Difference:
    """What is different in a table: all of it, and what of it older rows do not fit, in sentences."""

    changes: tuple[str, ...]
    unmapped: tuple[str, ...]


def compare(old: TableSchema, new: TableSchema) -> Difference:
    """Return what became of a table; raise a `CaptureError` where its rows are known by another key now."""
    if old.key != new.key or not _same_keys(old, new):
        raise CaptureError(
            f"the key of {new} was {_key(old)} and is {_key(new)} now, and its topic's records are known by the older"
            " one: `headwater capture snapshot` starts it over with the new one"
        )
    renamed = _renamed(old, new)
    before = {column.name: column for column in old.columns}
    after = {column.name: column for column in new.columns}
    changes: list[str] = []
    unmapped: list[str] = []
    for name, to in renamed.items():
        changes.append(f"{new}: {name} is called {to} now")
        unmapped.append(f"{new}: older rows have the values of {to} under its older name {name}")
    for name in before:
        if name not in after and name not in renamed:
            changes.append(f"{new}: {name} was dropped")
    for name, column in after.items():
        was = before.get(name)
        if was is None:
            if name not in renamed.values():
                changes.append(f"{new}: {name} {column.type} was added")
        elif was.type != column.type:
            changes.append(f"{new}: {name} was {was.type} and is {column.type} now")
            if not _holds(was.type, column.type):
                unmapped.append(
                    f"{new}: older values of {name} are {was.type}, which {column.type} does not hold"
                )
        elif was.native != column.native:
            changes.append(f"{new}: {name} was {was.native} and is {column.native} now")
    if not changes and [*before] != [*after]:
        changes.append(f"{new}: the columns are in another order")
    return Difference(tuple(changes), tuple(unmapped))


def _key(table: TableSchema) -> str:
    types = {column.name: column.type for column in table.columns}
    return ", ".join(f"{name} {types[name]}" for name in table.key) or "none"


def _same_keys(old: TableSchema, new: TableSchema) -> bool:
    """Tell whether a key is the same JSON in both."""
    before = {column.name: column.type for column in old.columns}
    after = {column.name: column.type for column in new.columns}
    return all(
        before[name] == after[name] or (before[name] in _WHOLE and after[name] in _WHOLE) for name in old.key
    )


def _renamed(old: TableSchema, new: TableSchema) -> dict[str, str]:
    """Return old names by which columns are not known any more, and the names in their places."""
    if len(old.columns) != len(new.columns):
        return {}
    before = {column.name for column in old.columns}
    after = {column.name for column in new.columns}
    return {
        was.name: column.name
        for was, column in zip(old.columns, new.columns, strict=True)
        if was.name not in after and column.name not in before and was.type == column.type
    }


def _holds(old: str, new: str) -> bool:
    """Tell whether values of an older type can be read as a newer one."""
    if new == "string":
        return True
    if old in _WHOLE and new in _WHOLE:
        return _WHOLE.index(old) <= _WHOLE.index(new)
    if new == "double":
        return old in ("float", *_WHOLE[:3])
    was, now = _DECIMAL.match(old), _DECIMAL.match(new)
    if was and now:
        scale_grows = int(now[2]) - int(was[2])
        return scale_grows >= 0 and int(now[1]) - int(was[1]) >= scale_grows
    return False


@dataclass(frozen=True)
class Version:
    """A table as it was from some time on."""

    capture: str
    number: int
    table: TableSchema
    at_us: int
    changes: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"{self.capture}/{self.table}/{self.number}".encode()

    def encode(self) -> bytes:
        """Return the value of its record."""
        return json.dumps(
            {
                "capture": self.capture,
                "table": str(self.table),
                "version": self.number,
                "at_us": self.at_us,
                **asdict(self.table),
                "changes": self.changes,
                "unmapped": self.unmapped,
            },
            ensure_ascii=False,
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> Version:
        """Return what a record says."""
        said: dict[str, Any] = json.loads(value)
        columns = tuple(Column(**column) for column in said["columns"])
        table = TableSchema(said["schema"], said["name"], columns, tuple(said["key"]))
        changes, unmapped = tuple(said["changes"]), tuple(said["unmapped"])
        return cls(said["capture"], said["version"], table, said["at_us"], changes, unmapped)


class History:
    """The tables of one capture, as they were last seen."""

    def __init__(self, capture: str, versions: Iterable[Version] = ()) -> None:
        self.keys: list[bytes] = []
        """The keys of all its records."""
        self._capture = capture
        self._last: dict[str, Version] = {}
        self._seen: dict[str, TableSchema] = {}
        for version in versions:
            if version.capture == capture:
                self.keys.append(version.key)
                self._last[str(version.table)] = version

    @classmethod
    def read(cls, cluster: Cluster, capture: str) -> History:
        """Return what a broker has kept."""
        return cls(capture, read_versions(cluster))

    @property
    def tables(self) -> list[TableSchema]:
        """The tables as they were last seen."""
        return [version.table for version in self._last.values()]

    def see(self, table: TableSchema, at_us: int) -> Version | None:
        """Return the version to write down where a table does not look as it did."""
        if self._seen.get(str(table)) is table:
            return None
        last = self._last.get(str(table))
        self._seen[str(table)] = table
        if last is not None and last.table == table:
            return None
        if last is None:
            version = Version(self._capture, 1, table, at_us)
        else:
            found = compare(last.table, table)
            version = Version(self._capture, last.number + 1, table, at_us, found.changes, found.unmapped)
        self._last[str(table)] = version
        return version


def read_versions(cluster: Cluster) -> list[Version]:
    """Return the versions of every capture's tables, in the order in which they were written."""
    found: dict[bytes | None, Version] = {}
    for record in records_of(cluster, SCHEMAS_TOPIC, 0):
        found.pop(record.key, None)  # a capture that started over has forgotten them
        if record.value is not None:
            found[record.key] = Version.decode(record.value)
    return list(found.values())
