"""The SQL of the change table and of the triggers that fill it.

`_headwater_changes` has a row for each change of a row, in the order of the commits, since SQLite has one writer at a
time. `seq` is never used twice: the last row is not deleted until there is another. (AUTOINCREMENT would not do. Where
a statement ends in the middle, by OR FAIL, SQLite keeps what its triggers inserted, but does not note their numbers.)
Values stand in columns without type, the old ones in o0, o1…, the new ones in n0, n1…, exactly as the table has them;
`layout` says which columns they are, and of which table.

Triggers only insert here. What needs more is REPLACE: unless `recursive_triggers` is on, a row that INSERT OR REPLACE
or UPDATE OR REPLACE puts out of the way fires no trigger. So before a row is written, those that it is in conflict with
are noted in `_headwater_candidates`; after it, the candidates that are gone were replaced. Nobody knows before whether
a conflict will replace, ignore or fail, so a candidate may stay behind. That does no harm: each delete and update of
a row takes it out, so it is a row that is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.capture.sqlite.config import Layout, Unique, quote

__all__ = [
    "CANDIDATES",
    "CHANGES",
    "FORGET",
    "KINDS",
    "LAYOUTS",
    "META",
    "TABLES",
    "create",
    "drop",
    "resend",
    "trigger_name",
]

CHANGES = "_headwater_changes"
CANDIDATES = "_headwater_candidates"
LAYOUTS = "_headwater_layouts"
META = "_headwater_meta"

TABLES = (
    f"CREATE TABLE IF NOT EXISTS {META} (name TEXT PRIMARY KEY, value TEXT)",
    f"CREATE TABLE IF NOT EXISTS {LAYOUTS} (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, document TEXT)",
    f"CREATE TABLE IF NOT EXISTS {CHANGES} (seq INTEGER PRIMARY KEY, layout, op, at)",
    f"CREATE TABLE IF NOT EXISTS {CANDIDATES} (layout)",
)
FORGET = f"DELETE FROM {CHANGES} WHERE seq <= ? AND seq < (SELECT max(seq) FROM {CHANGES})"
KINDS = ("before_insert", "insert", "before_update", "update", "delete")

# Milliseconds since 1970; unixepoch('subsec') is younger than many an application's SQLite.
_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


def trigger_name(table: str, kind: str) -> str:
    """Return the name of one of a table's triggers: it tells whoever trips over it where it comes from."""
    return f"_headwater_capture_{table}_{kind}"


def drop(table: str) -> list[str]:
    """Return the statements that remove a table's triggers."""
    return [f"DROP TRIGGER IF EXISTS {quote(trigger_name(table, kind))}" for kind in KINDS]


def create(layout: Layout, number: int) -> list[str]:
    """Return the statements that make a table's triggers, for a layout of that number."""
    return [
        _before(layout, number, "insert"),
        _after_insert(layout, number),
        _before(layout, number, "update"),
        _after_update(layout, number),
        _after_delete(layout, number),
    ]


def resend(layout: Layout, number: int, columns: Sequence[str]) -> str:
    """Return the statement that notes all rows, as they are, that have a value in one of some columns."""
    some = " OR ".join(f"{quote(name)} IS NOT NULL" for name in columns)
    values = ", ".join(quote(name) for name in layout.names)
    return (
        f"INSERT INTO {CHANGES} (layout, op, at, {_numbered(layout, 'n')})"
        f" SELECT {number}, 'x', {_NOW}, {values} FROM {quote(layout.table.name)} WHERE {some}"
    )


def _trigger(layout: Layout, kind: str, when: str, body: Sequence[str]) -> str:
    name = quote(trigger_name(layout.table.name, kind))
    statements = "".join(f"  {statement};\n" for statement in body)
    return f"CREATE TRIGGER {name} {when}\nBEGIN\n{statements}END"


def _before(layout: Layout, number: int, event: str) -> str:
    table = quote(layout.table.name)
    conflicts = " OR ".join(f"({_in_conflict(unique)})" for unique in layout.uniques)
    if event == "update":
        conflicts = f"({conflicts}) AND NOT ({_same(layout, 'OLD', table)})"
        columns = dict.fromkeys(name for unique in layout.uniques for name in unique.columns)
        when = f"BEFORE UPDATE OF {', '.join(map(quote, columns))} ON {table}"
    else:
        when = f"BEFORE INSERT ON {table}"
    values = ", ".join(quote(name) for name in layout.names)
    return _trigger(
        layout,
        f"before_{event}",
        f"{when} WHEN EXISTS (SELECT 1 FROM {table} WHERE {conflicts})",
        [
            f"DELETE FROM {CANDIDATES} WHERE layout = {number}",
            f"INSERT INTO {CANDIDATES} (layout, {_numbered(layout, 'c')})"
            f" SELECT {number}, {values} FROM {table} WHERE {conflicts}",
        ],
    )


def _after_insert(layout: Layout, number: int) -> str:
    same = _same(layout, "NEW", None)
    candidate = f"(SELECT 1) LEFT JOIN {CANDIDATES} AS c ON c.layout = {number} AND {same}"
    old = ", ".join(f"c.c{i}" for i in range(len(layout.names)))
    return _trigger(
        layout,
        "insert",
        f"AFTER INSERT ON {quote(layout.table.name)}",
        [
            _replaced(layout, number, f"NOT ({same})"),
            f"INSERT INTO {CHANGES} (layout, op, at, {_numbered(layout, 'o')}, {_numbered(layout, 'n')})"
            f" SELECT {number}, CASE WHEN c.layout IS NULL THEN 'c' ELSE 'u' END, {_NOW}, {old}, {_of(layout, 'NEW')}"
            f" FROM {candidate}",
            f"DELETE FROM {CANDIDATES} WHERE layout = {number}",
        ],
    )


def _after_update(layout: Layout, number: int) -> str:
    return _trigger(
        layout,
        "update",
        f"AFTER UPDATE ON {quote(layout.table.name)}",
        [
            _replaced(layout, number, f"NOT ({_same(layout, 'OLD', None)})", or_new=True),
            f"INSERT INTO {CHANGES} (layout, op, at, {_numbered(layout, 'o')}, {_numbered(layout, 'n')})"
            f" VALUES ({number}, 'u', {_NOW}, {_of(layout, 'OLD')}, {_of(layout, 'NEW')})",
            f"DELETE FROM {CANDIDATES} WHERE layout = {number}",
        ],
    )


def _after_delete(layout: Layout, number: int) -> str:
    return _trigger(
        layout,
        "delete",
        f"AFTER DELETE ON {quote(layout.table.name)}",
        [
            f"INSERT INTO {CHANGES} (layout, op, at, {_numbered(layout, 'o')})"
            f" VALUES ({number}, 'd', {_NOW}, {_of(layout, 'OLD')})",
            f"DELETE FROM {CANDIDATES} WHERE layout = {number} AND {_same(layout, 'OLD', None, alias='')}",
        ],
    )


def _replaced(layout: Layout, number: int, condition: str, *, or_new: bool = False) -> str:
    """Return the statement that notes the candidates which are gone."""
    table = quote(layout.table.name)
    places = _key_places(layout)
    # The first comparison finds the row by the key's index, the second is exact whatever the index's collation is.
    exists = " AND ".join(
        f"t.{quote(name)} = c.c{i} AND t.{quote(name)} = c.c{i} COLLATE BINARY" for name, i in places
    )
    gone = f"NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {exists})"
    if or_new:
        gone = f"({gone} OR ({_same(layout, 'NEW', None)}))"
    values = ", ".join(f"c.c{i}" for i in range(len(layout.names)))
    return (
        f"INSERT INTO {CHANGES} (layout, op, at, {_numbered(layout, 'o')})"
        f" SELECT {number}, 'd', {_NOW}, {values} FROM {CANDIDATES} AS c"
        f" WHERE c.layout = {number} AND {condition} AND {gone}"
    )


def _same(layout: Layout, row: str, table: str | None, *, alias: str = "c.") -> str:
    """Return the condition that a row of the table, or a candidate, has the key of the trigger's row."""
    own = {name: f"{table}.{quote(name)}" if table else f"{alias}c{i}" for name, i in _key_places(layout)}
    return " AND ".join(f"{text} IS {row}.{quote(name)} COLLATE BINARY" for name, text in own.items())


def _in_conflict(unique: Unique) -> str:
    pairs = zip(unique.columns, unique.collations, strict=True)
    return " AND ".join(f"{quote(name)} = NEW.{quote(name)} COLLATE {quote(coll)}" for name, coll in pairs)


def _key_places(layout: Layout) -> list[tuple[str, int]]:
    names = layout.names
    return [(name, names.index(name)) for name in layout.table.key]


def _numbered(layout: Layout, letter: str) -> str:
    return ", ".join(f"{letter}{i}" for i in range(len(layout.names)))


def _of(layout: Layout, row: str) -> str:
    return ", ".join(f"{row}.{quote(name)}" for name in layout.names)
