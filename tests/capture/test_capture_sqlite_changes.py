"""Whatever is written to a SQLite table, its changes lead to the same rows, and each is noted once."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.capture.sqlite import source as sqlite_source

from .sqlite_model import Captured, make, replay, same, table_rows

TABLES = {
    "users": "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT UNIQUE COLLATE NOCASE, age INT, data BLOB)",
    "pairs": "CREATE TABLE pairs (a TEXT COLLATE NOCASE, b INT NOT NULL, c ANY, PRIMARY KEY (a, b)) WITHOUT ROWID",
    "names": 'CREATE TABLE names ("na""me" TEXT NOT NULL PRIMARY KEY, x REAL, "per cent %" NUMERIC, UNIQUE (x))',
}
COLUMNS = {
    "users": ["id", "email", "age", "data"],
    "pairs": ["a", "b", "c"],
    "names": ['na"me', "x", "per cent %"],
}
VALUES: dict[str, list[Sequence[Any]]] = {
    "users": [
        [*range(7), 2**62],
        ["a", "A", "b", "B", "c", None],
        [0, 1, -(2**63)],
        [b"", b"\x00\xff", None],
    ],
    "pairs": [["a", "A", "b", "ß\n\x00\"'"], [0, 1, 2], [1, 1.5, float("inf"), "x", b"y", None]],
    "names": [["", "a", "A", "😀"], [0.1, 1e300, 2.5, None], [1, 0.1, "t"]],
}
CONFLICTS = ["ABORT", "REPLACE", "REPLACE", "IGNORE", "FAIL", "ROLLBACK"]
ACTIONS = ["insert"] * 6 + ["update"] * 5 + ["upsert"] * 2 + ["delete", "auto", "clear"]
OTHERS = ["step"] * 4 + ["begin"] * 2 + ["commit"] * 2 + ["rollback", "crash", "acknowledge"]


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def statement(draw: Random, table: str) -> tuple[str, tuple[Any, ...]]:
    """Return something that is written to a table, and its values."""
    columns = [_quoted(name) for name in COLUMNS[table]]
    row = tuple(draw.choice(values) for values in VALUES[table])
    other = tuple(draw.choice(values) for values in VALUES[table])
    marks = ", ".join("?" * len(columns))
    key = columns[:2] if table == "pairs" else columns[:1]
    conflict = draw.choice(CONFLICTS)
    match draw.choice(ACTIONS):
        case "insert":
            return f"INSERT OR {conflict} INTO {table} VALUES ({marks})", row
        case "update":
            some = draw.sample(range(len(columns)), draw.randint(1, len(columns)))
            assigned = ", ".join(f"{columns[i]} = ?" for i in some)
            query = f"UPDATE OR {conflict} {table} SET {assigned} WHERE {columns[0]} = ?"
            return query, (*(row[i] for i in some), other[0])
        case "delete":
            return f"DELETE FROM {table} WHERE {columns[0]} = ?", (row[0],)
        case "clear" if draw.random() < 0.2:
            return f"DELETE FROM {table}", ()
        case "auto" if table == "users":
            return "INSERT OR REPLACE INTO users (email, age) VALUES (?, ?)", (row[1], row[2])
        case _:
            assigned = ", ".join(f"{name} = ?" for name in columns[1:])
            query = f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({', '.join(key)}) DO UPDATE SET {assigned}"
            return query, (*row, *other[1:])


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows take several steps, and no step wait."""
    monkeypatch.setattr(sqlite_source, "_ROWS", 3)
    monkeypatch.setattr(sqlite_source, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(sqlite_source, "_FORGET_SECONDS", 0.0)


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32))
def test_changes_lead_to_the_rows(seed: int) -> None:
    draw = Random(seed)
    table = draw.choice(sorted(TABLES))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "shop.db"
        writer = make(path, *TABLES.values(), journal=draw.choice(["wal", "delete"]))
        writer.execute("PRAGMA synchronous = OFF")
        writer.execute(f"PRAGMA recursive_triggers = {draw.choice([0, 1])}")
        captured = Captured(path, table)
        try:
            first = draw.randint(0, 60)
            for number in range(150):
                _act(writer, captured, draw, table, reading=number >= first)
            if writer.in_transaction:
                writer.execute("COMMIT")
            captured.drain()
            assert same(captured.rows(table), table_rows(writer, path, table))
            replay(captured.changes)
            seqs = [change.source["seq"] for change in captured.changes if change.op != "r"]
            assert seqs == sorted(set(seqs))
            assert writer.execute("SELECT count(*) FROM _headwater_changes").fetchone()[0] <= 1
        finally:
            captured.crash()
            writer.close()


def _act(writer: sqlite3.Connection, captured: Captured, draw: Random, table: str, *, reading: bool) -> None:
    if draw.random() < 0.6:
        with contextlib.suppress(sqlite3.IntegrityError):
            writer.execute(*statement(draw, table))
        return
    match draw.choice(OTHERS):
        case "step" if reading and not writer.in_transaction:
            captured.step()
        case "acknowledge" if captured.position is not None and not writer.in_transaction:
            captured.open().acknowledge(captured.position)
        case "crash" if reading:
            captured.crash()
        case "begin" if not writer.in_transaction:
            writer.execute("BEGIN")
        case "commit" | "rollback" as end if writer.in_transaction:
            writer.execute(end)


def test_a_row_that_is_replaced_is_deleted_once(tmp_path: Path) -> None:
    for recursive, op in itertools.product((0, 1), ("INSERT", "UPDATE")):
        path = tmp_path / f"{recursive}-{op}.db"
        writer = make(path, TABLES["users"], f"PRAGMA recursive_triggers = {recursive}")
        writer.execute("INSERT INTO users VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL), (3, 'c', 3, NULL)")
        captured = Captured(path, "users")
        captured.drain()
        captured.changes.clear()
        if op == "INSERT":
            writer.execute("INSERT OR REPLACE INTO users VALUES (4, 'B', 4, NULL)")
        else:
            writer.execute("UPDATE OR REPLACE users SET email = 'B' WHERE id = 3")
        captured.drain()
        assert [change.op for change in captured.changes] == ["d", "c" if op == "INSERT" else "u"]
        assert captured.changes[0].before is not None
        assert captured.changes[0].before[0] == b"2"
        captured.crash()


def test_no_number_is_used_twice(tmp_path: Path) -> None:
    """SQLite's own numbers do not grow in a statement that ends in the middle, and keeps what it did so far."""
    rows = "INSERT INTO users VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL), (3, 'c', 3, NULL)"
    writer = make(tmp_path / "shop.db", TABLES["users"], rows)
    captured = Captured(tmp_path / "shop.db", "users")
    captured.drain()
    captured.changes.clear()
    with pytest.raises(sqlite3.IntegrityError):
        writer.execute("UPDATE OR FAIL users SET email = 'x'")
    captured.drain()
    writer.execute("DELETE FROM users WHERE id = 3")
    captured.drain()
    assert [(change.op, change.source["seq"]) for change in captured.changes] == [("u", 1), ("d", 2)]
    captured.crash()


def test_what_is_ignored_or_fails_is_no_change(tmp_path: Path) -> None:
    writer = make(
        tmp_path / "shop.db", TABLES["users"], "INSERT INTO users VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL)"
    )
    captured = Captured(tmp_path / "shop.db", "users")
    captured.drain()
    captured.changes.clear()
    writer.execute("INSERT OR IGNORE INTO users VALUES (1, 'c', 1, NULL)")
    writer.execute("INSERT INTO users VALUES (2, 'c', 1, NULL) ON CONFLICT DO NOTHING")
    writer.execute("UPDATE users SET id = 3 WHERE id = 2")
    writer.execute("INSERT INTO users VALUES (1, 'x', 1, NULL) ON CONFLICT (id) DO UPDATE SET id = 7")
    captured.drain()
    assert [change.op for change in captured.changes] == ["u", "u"]
    captured.crash()
