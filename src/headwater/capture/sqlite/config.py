"""A SQLite file and its tables, as they are now."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from headwater.capture.change import Column, TableSchema
from headwater.capture.source import CaptureError, TryAgain
from headwater.capture.sqlite.values import type_of

__all__ = ["Layout", "Unique", "connect", "layout_of", "path_of", "problem", "quote"]

BUSY_SECONDS = 10.0
SCHEMA = "main"


def path_of(url: str) -> Path:
    """Return the file of an address: three slashes before a relative path, four before an absolute one."""
    scheme, separator, path = url.partition("://")
    if scheme != "sqlite" or not separator or not path.startswith("/") or len(path) < 2:
        raise CaptureError(
            f"{url!r} is no SQLite file: write sqlite:///FILE, or sqlite:////DIRECTORY/FILE from the root"
        )
    return Path(unquote(path[1:]))


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that is there; statements wait a while for its writers."""
    if not path.is_file():
        raise CaptureError(
            f"there is no SQLite file {path}: give the path of the one that the application writes"
        )
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        raise problem(path, error) from error
    return connection


def problem(path: Path, error: sqlite3.Error) -> CaptureError:
    """Return what SQLite says as an error that says whether to wait or what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
        return TryAgain(f"{path}: {error}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return CaptureError(
            f"{path} cannot be written ({error}): capture keeps its changes in the file, so let this user write to it"
            " and to its directory"
        )
    return CaptureError(f"{path} cannot be captured: {error}")


def quote(name: str) -> str:
    """Return a name as SQL has it."""
    return '"{}"'.format(name.replace('"', '""'))


@dataclass(frozen=True)
class Unique:
    """A set of columns of which no two rows have the same values."""

    columns: tuple[str, ...]
    collations: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A table, with what its triggers and the order of its rows need."""

    table: TableSchema
    uniques: tuple[Unique, ...]
    """What may be in conflict when a row is written; that of the key is the first."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.table.columns]


def layout_of(connection: sqlite3.Connection, name: str) -> Layout | None:
    """Return a table as it is now; None where there is none."""
    kinds = connection.execute(
        "SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')", (name,)
    ).fetchone()
    if kinds is None:
        return None
    if kinds[0] == "view":
        raise CaptureError(f"{name} is a view, and has no rows of its own: capture the tables that it reads")
    rows = connection.execute(f"PRAGMA table_xinfo({quote(name)})").fetchall()
    columns = tuple(
        Column(column, type_of(declared), declared, optional=not required)
        for _, column, declared, required, _, _, hidden in rows
        if hidden != 1
    )
    names = [column.name for column in columns]
    primary = [column for _, column, _, _, _, place, _ in sorted(rows, key=lambda row: row[5]) if place]
    uniques = _uniques(connection, name)
    if not primary:
        required = {column.name for column in columns if not column.optional}
        primary = list(next((u.columns for u in uniques if required.issuperset(u.columns)), ()))
    if not primary:
        raise CaptureError(
            f"{name} has no primary key, and rows are told apart by it: give it one, or a unique index over columns"
            " that are NOT NULL"
        )
    key = next((u for u in uniques if set(u.columns) == set(primary)), None)
    # The alias of the row id has no index, and needs none.
    key = key or Unique(tuple(primary), ("BINARY",) * len(primary))
    table = TableSchema(SCHEMA, name, columns, tuple(column for column in key.columns if column in names))
    return Layout(table, (key, *(u for u in uniques if u != key)))


def _uniques(connection: sqlite3.Connection, name: str) -> list[Unique]:
    found: list[Unique] = []
    for _, index, unique, _, _ in connection.execute(f"PRAGMA index_list({quote(name)})").fetchall():
        if not unique:
            continue
        parts = [row for row in connection.execute(f"PRAGMA index_xinfo({quote(index)})") if row[5]]
        if any(row[2] is None for row in parts):
            raise CaptureError(
                f"the unique index {index} of {name} is over an expression: INSERT OR REPLACE could delete rows that"
                " nobody sees; put the expression into a generated column, and index that"
            )
        found.append(Unique(tuple(row[2] for row in parts), tuple(row[4] for row in parts)))
    return found


def names_of(tables: Sequence[str]) -> list[str]:
    """Return the tables without the schema that they may be given with."""
    return [table.removeprefix(f"{SCHEMA}.") for table in tables]
