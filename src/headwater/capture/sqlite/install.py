"""The change table and the triggers put into a file, kept in step with its tables, and taken out again.

Each of these is one transaction that keeps other writers out, so that no write falls between.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from headwater.capture.change import Column, TableSchema
from headwater.capture.source import CaptureError
from headwater.capture.sqlite import triggers
from headwater.capture.sqlite.config import (
    SCHEMA,
    Layout,
    Unique,
    connect,
    layout_of,
    names_of,
    path_of,
    problem,
)
from headwater.capture.sqlite.triggers import CANDIDATES, CHANGES, KINDS, LAYOUTS, META

__all__ = ["alter", "install", "installed", "keep_in_step", "remove", "stored_layouts", "writing"]


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep other writers out; all that is done within happens, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def install(url: str, tables: Sequence[str]) -> None:
    """Put the change table into a file, and triggers onto tables; what is there already stays."""
    path = path_of(url)
    connection = connect(path)
    try:
        with writing(connection):
            for statement in triggers.TABLES:
                connection.execute(statement)
            connection.execute(f"INSERT OR IGNORE INTO {META} VALUES ('install', ?)", (secrets.token_hex(8),))
            for name in names_of(tables):
                layout = layout_of(connection, name)
                if layout is None:
                    raise no_table(path, name)
                if not _has_triggers(connection, name):
                    _put(connection, layout)
    except sqlite3.Error as error:
        raise problem(path, error) from error
    finally:
        connection.close()


def remove(url: str, tables: Sequence[str]) -> None:
    """Take the triggers off tables, and the change table out once no table has any."""
    path = path_of(url)
    connection = connect(path)
    try:
        with writing(connection):
            if not _is_there(connection, META):
                return
            for name in names_of(tables):
                for statement in triggers.drop(name):
                    connection.execute(statement)
                numbers = f"SELECT id FROM {LAYOUTS} WHERE name = ?"
                connection.execute(f"UPDATE {CHANGES} SET layout = 0 WHERE layout IN ({numbers})", (name,))
                connection.execute(f"DELETE FROM {LAYOUTS} WHERE name = ?", (name,))
            if connection.execute(f"SELECT count(*) FROM {LAYOUTS}").fetchone() == (0,):
                for table in (CHANGES, CANDIDATES, LAYOUTS, META):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
    except sqlite3.Error as error:
        raise problem(path, error) from error
    finally:
        connection.close()


def alter(url: str, table: str, statements: Sequence[str]) -> None:
    """Change a table that is captured by statements that its triggers stand in the way of, as DROP COLUMN."""
    path = path_of(url)
    [name] = names_of([table])
    connection = connect(path)
    try:
        with writing(connection):
            if not _is_there(connection, META) or not _has_triggers(connection, name):
                raise CaptureError(f"{name} of {path} is not captured: run the statements as they are")
            for statement in triggers.drop(name):
                connection.execute(statement)
            for statement in statements:
                connection.execute(statement)
            layout = layout_of(connection, name)
            if layout is None:
                raise no_table(path, name)
            _put(connection, layout, was=_newest(connection, name))
    except sqlite3.Error as error:
        raise problem(path, error) from error
    finally:
        connection.close()


def installed(connection: sqlite3.Connection) -> str | None:
    """Return what this installation is known by; None where there is none."""
    if not _is_there(connection, META):
        return None
    [found] = connection.execute(f"SELECT value FROM {META} WHERE name = 'install'").fetchone()
    return str(found)


def keep_in_step(connection: sqlite3.Connection, path: Path, tables: Sequence[str], capture: str) -> int:
    """Make triggers anew for the tables whose columns are not those that their triggers know.

    Returns the version of the file's schema that they now know.
    """
    with writing(connection):
        for name in tables:
            layout = layout_of(connection, name)
            if layout is None:
                raise CaptureError(
                    f"the table {name} is gone from {path}: its rows stay in its topic; capture the file without it, or"
                    f" make the table again and take a new snapshot with `headwater capture snapshot {capture}`"
                )
            if not _has_triggers(connection, name):
                raise CaptureError(
                    f"the triggers of {name} in {path} are gone, as they go with a table that is dropped and made"
                    " again, and what was written since is not known: take a new snapshot with"
                    f" `headwater capture snapshot {capture}`"
                )
            was = _newest(connection, name)
            if was is None or was != layout:
                for statement in triggers.drop(name):
                    connection.execute(statement)
                _put(connection, layout, was=was)
        [version] = connection.execute("PRAGMA schema_version").fetchone()
    return int(version)


def stored_layouts(connection: sqlite3.Connection) -> dict[int, Layout]:
    """Return every layout that a change may be in."""
    rows = connection.execute(f"SELECT id, document FROM {LAYOUTS} ORDER BY id").fetchall()
    return {number: _decode(document) for number, document in rows}


def no_table(path: Path, name: str) -> CaptureError:
    """Return the error that names a table that is not there."""
    return CaptureError(
        f"there is no table {name} in {path}: look at its name, or capture the file without it"
    )


def _put(connection: sqlite3.Connection, layout: Layout, *, was: Layout | None = None) -> None:
    """Make the triggers of a table; rows that have something in columns of a new name are sent again."""
    _widen(connection, CHANGES, "on", len(layout.names))
    _widen(connection, CANDIDATES, "c", len(layout.names))
    cursor = connection.execute(
        f"INSERT INTO {LAYOUTS} (name, document) VALUES (?, ?)", (layout.table.name, _encode(layout))
    )
    number = cursor.lastrowid
    assert number is not None
    for statement in triggers.create(layout, number):
        connection.execute(statement)
    added = [name for name in layout.names if was is not None and name not in was.names]
    if added:
        connection.execute(triggers.resend(layout, number, added))


def _widen(connection: sqlite3.Connection, table: str, letters: str, count: int) -> None:
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    for i in range(count):
        for letter in letters:
            if f"{letter}{i}" not in there:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {letter}{i}")


def _newest(connection: sqlite3.Connection, name: str) -> Layout | None:
    row = connection.execute(
        f"SELECT document FROM {LAYOUTS} WHERE name = ? ORDER BY id DESC LIMIT 1", (name,)
    ).fetchone()
    return None if row is None else _decode(row[0])


def _has_triggers(connection: sqlite3.Connection, name: str) -> bool:
    wanted = [triggers.trigger_name(name, kind) for kind in KINDS]
    marks = ", ".join("?" * len(wanted))
    found = connection.execute(
        f"SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name IN ({marks})"
        " AND tbl_name = ? COLLATE NOCASE",
        (*wanted, name),
    ).fetchone()
    return bool(found == (len(wanted),))


def _is_there(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return found is not None


def _encode(layout: Layout) -> str:
    return json.dumps(asdict(layout))


def _decode(document: str) -> Layout:
    said = json.loads(document)
    table = said["table"]
    columns = tuple(Column(**column) for column in table["columns"])
    schema = TableSchema(SCHEMA, table["name"], columns, tuple(table["key"]))
    return Layout(schema, tuple(Unique(tuple(u["columns"]), tuple(u["collations"])) for u in said["uniques"]))
