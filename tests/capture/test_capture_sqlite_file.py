"""A SQLite file's tables, as they change and as they should not be."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from headwater.capture.source import CaptureError, TryAgain
from headwater.capture.sqlite import alter, install, open_source, remove
from headwater.capture.sqlite import source as sqlite_source
from headwater.capture.sqlite.config import path_of, problem

from .sqlite_model import Captured, make, same, table_rows

USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_source, "_IDLE_SECONDS", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def writer(path: Path) -> sqlite3.Connection:
    return make(path, USERS, "INSERT INTO users VALUES (1, 'Ann'), (2, 'Bea')")


@pytest.fixture
def captured(path: Path, writer: sqlite3.Connection) -> Captured:
    captured = Captured(path, "users")
    captured.drain()
    captured.changes.clear()
    return captured


def test_every_value_comes_as_it_is(path: Path) -> None:
    writer = make(
        path, "CREATE TABLE t (id INTEGER PRIMARY KEY, i INT, r REAL, t TEXT, b BLOB, o BOOLEAN, x)"
    )
    values = (1, 2**63 - 1, 0.1 + 0.2, 'nul \x00 quote " \\ ☃ \u2028', bytes(range(256)), 1, 2**53 + 1)
    writer.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    writer.execute("INSERT INTO t VALUES (2, ?, ?, NULL, NULL, 0, ?)", (-(2**63), float("-inf"), 1e-9))
    captured = Captured(path, "t")
    captured.drain()
    first, second = captured.rows("t")
    assert first["i"] == 2**63 - 1
    assert float(first["r"]) == 0.1 + 0.2
    assert first["t"] == values[3]
    assert first["o"] is True
    assert first["x"] == str(2**53 + 1)
    assert second == {
        "id": 2,
        "i": -(2**63),
        "r": "-Infinity",
        "t": None,
        "b": None,
        "o": False,
        "x": "1e-09",
    }
    [table] = captured.open().describe()
    assert [column.type for column in table.columns] == [
        "bigint",
        "bigint",
        "double",
        "string",
        "binary",
        "boolean",
        "string",
    ]


def test_text_that_is_no_utf_8_is_readable(path: Path) -> None:
    writer = make(path, USERS)
    writer.execute("INSERT INTO users VALUES (1, CAST(X'61FF62' AS TEXT))")
    captured = Captured(path, "users")
    captured.drain()
    assert captured.rows("users") == [{"id": 1, "name": "a\ufffdb"}]


def test_a_column_that_is_added_is_followed_without_a_gap(
    path: Path, writer: sqlite3.Connection, captured: Captured
) -> None:
    writer.execute("ALTER TABLE users ADD COLUMN age INT DEFAULT 7")
    writer.execute("UPDATE users SET age = 30 WHERE id = 1")  # by triggers that do not know the column yet
    writer.execute("INSERT INTO users VALUES (3, 'Cid', 40)")
    captured.drain()
    writer.execute("UPDATE users SET age = 31 WHERE id = 1")
    captured.drain()
    assert same(captured.rows("users"), table_rows(writer, path, "users"))
    last = captured.changes[-1]
    assert (last.before, last.after) == ((b"1", b'"Ann"', b"30"), (b"1", b'"Ann"', b"31"))


def test_a_column_that_is_renamed_is_followed(
    path: Path, writer: sqlite3.Connection, captured: Captured
) -> None:
    writer.execute("ALTER TABLE users RENAME COLUMN name TO title")
    writer.execute("UPDATE users SET title = 'Amy' WHERE id = 1")
    captured.drain()
    writer.execute("UPDATE users SET title = 'Eve' WHERE id = 1")
    captured.drain()
    names = [[column.name for column in change.table.columns] for change in captured.changes]
    # Rows that were written under the older name are sent again under the newer one.
    assert names == [["id", "name"], ["id", "title"], ["id", "title"], ["id", "title"]]
    assert same(captured.rows("users"), table_rows(writer, path, "users"))


def test_a_column_is_dropped_with_the_triggers_out_of_the_way(
    path: Path, writer: sqlite3.Connection, captured: Captured
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="_headwater_capture_users"):
        writer.execute("ALTER TABLE users DROP COLUMN name")
    alter(
        captured.url, "main.users", ["ALTER TABLE users ADD COLUMN x", "ALTER TABLE users DROP COLUMN name"]
    )
    writer.execute("UPDATE users SET x = 'x' WHERE id = 1")
    captured.drain()
    assert [change.after for change in captured.changes] == [(b"1", b'"x"')]
    with pytest.raises(CaptureError, match="cannot be captured: no such table"):
        alter(captured.url, "users", ["ALTER TABLE others DROP COLUMN x"])
    writer.execute("UPDATE users SET x = 'y' WHERE id = 1")
    captured.drain()
    assert captured.changes[-1].after == (b"1", b'"y"')


def test_a_table_that_is_dropped_or_made_again_stops_the_capture(
    writer: sqlite3.Connection, captured: Captured
) -> None:
    writer.execute("DROP TABLE users")
    with pytest.raises(CaptureError, match="the table users is gone"):
        captured.drain()
    captured.crash()
    writer.execute(USERS)
    with pytest.raises(CaptureError, match=r"the triggers of users .* are gone.*headwater capture snapshot"):
        captured.drain()


def test_a_lost_position_is_named(path: Path, writer: sqlite3.Connection, captured: Captured) -> None:
    writer.execute("INSERT INTO users VALUES (3, 'Cid')")
    captured.drain()
    captured.crash()
    before = captured.position
    remove(captured.url, ["users"])
    with pytest.raises(
        CaptureError, match=r"the change table was removed since.*headwater capture snapshot shop"
    ):
        captured.step()
    captured.crash()
    install(captured.url, ["users"])
    with pytest.raises(CaptureError, match="removed and installed again"):
        captured.step()
    captured.crash()
    there = writer.execute("SELECT value FROM _headwater_meta WHERE name = 'install'").fetchone()[0]
    captured.position = {**json.loads(json.dumps(before)), "install": there}
    with pytest.raises(CaptureError, match="the file is older than that"):
        captured.step()


def test_a_file_that_was_restored_and_written_to_is_named(
    path: Path, writer: sqlite3.Connection, captured: Captured
) -> None:
    writer.execute("INSERT INTO users VALUES (3, 'Cid')")
    captured.drain()
    writer.execute(f"VACUUM INTO '{path}.backup'")
    writer.execute("INSERT INTO users VALUES (4, 'Dan')")
    captured.drain()
    captured.crash()
    captured.drain()  # goes on where nothing was replaced
    writer.close()
    Path(f"{path}.backup").replace(path)
    with pytest.raises(TryAgain, match=r"shop\.db was deleted, or replaced by another file"):
        captured.step()
    captured.crash()
    for left in ("-wal", "-shm"):  # of the file that was there, as whoever restores one has to
        Path(f"{path}{left}").unlink(missing_ok=True)
    with sqlite3.connect(path, isolation_level=None) as restored:
        restored.execute("INSERT INTO users VALUES (5, 'Eve')")
        restored.execute("INSERT INTO users VALUES (6, 'Fay')")
    with pytest.raises(CaptureError, match=r"replaced by an older one.*headwater capture snapshot shop"):
        captured.step()


def test_removing_leaves_the_file_as_it_was(path: Path, writer: sqlite3.Connection) -> None:
    before = writer.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    writer.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    install(f"sqlite:///{path}", ["users", "other"])
    install(f"sqlite:///{path}", ["users"])
    remove(f"sqlite:///{path}", ["other"])
    assert writer.execute("SELECT count(*) FROM _headwater_layouts").fetchone() == (1,)
    writer.execute("DROP TABLE other")
    remove(f"sqlite:///{path}", ["users"])
    remove(f"sqlite:///{path}", ["users"])
    after = writer.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    assert after == before


def test_tables_that_are_added_later_are_read_too(
    path: Path, writer: sqlite3.Connection, captured: Captured
) -> None:
    writer.execute("CREATE TABLE cards (n TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID")
    writer.execute("INSERT INTO cards VALUES ('a'), ('b')")
    captured.crash()
    captured.tables = ("users", "cards")
    writer.execute("INSERT INTO users VALUES (3, 'Cid')")
    captured.drain()
    assert [(change.op, change.table.name) for change in captured.changes] == [
        ("c", "users"),
        ("r", "cards"),
        ("r", "cards"),
    ]


def test_two_captures_do_not_share_a_file(path: Path, captured: Captured) -> None:
    with pytest.raises(CaptureError, match="is captured as 'shop' already"):
        next(open_source(captured.url, ["users"], name="other").follow(None))


def test_tables_that_cannot_be_captured_are_named(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE log (line TEXT)")
    writer.execute("CREATE TABLE mails (address TEXT NOT NULL UNIQUE)")
    writer.execute("CREATE TABLE odd (id INTEGER PRIMARY KEY, x TEXT)")
    writer.execute("CREATE UNIQUE INDEX odd_x ON odd (lower(x))")
    writer.execute("CREATE VIEW seen AS SELECT * FROM users")
    writer.execute("CREATE TABLE nulls (k TEXT PRIMARY KEY)")
    writer.execute("INSERT INTO nulls VALUES (NULL)")
    for table, said in {
        "log": "log has no primary key",
        "odd": "the unique index odd_x of odd is over an expression",
        "seen": "seen is a view",
        "missing": "there is no table missing",
    }.items():
        with pytest.raises(CaptureError, match=said):
            open_source(f"sqlite:///{path}", [table], name="shop").describe()
    [mails] = open_source(f"sqlite:///{path}", ["mails"], name="shop").describe()
    assert mails.key == ("address",)
    with pytest.raises(CaptureError, match="NULL in its key"):
        Captured(path, "nulls").drain()


def test_files_that_cannot_be_captured_are_named(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="there is no SQLite file"):
        open_source(f"sqlite:///{tmp_path}/none.db", ["t"], name="shop").describe()
    (tmp_path / "text.db").write_text("no database at all, and long enough to be one" * 100)
    with pytest.raises(CaptureError, match="file is not a database"):
        open_source(f"sqlite:///{tmp_path}/text.db", ["t"], name="shop").describe()
    for url in ("sqlite://shop.db", "sqlite:///"):
        with pytest.raises(CaptureError, match="write sqlite:///FILE"):
            path_of(url)


def test_a_file_that_may_not_be_written_is_named(path: Path, writer: sqlite3.Connection) -> None:
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as refused:
        reader.execute("DELETE FROM users")
    said = problem(path, refused.value)
    assert not isinstance(said, TryAgain)
    assert "cannot be written" in str(said)


def test_a_writer_that_takes_long_is_waited_for(
    path: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.capture.sqlite.config.BUSY_SECONDS", 0.05)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(TryAgain, match="locked"):
        install(f"sqlite:///{path}", ["users"])
    writer.execute("COMMIT")
    captured = Captured(path, "users")
    captured.drain()
    writer.execute("BEGIN IMMEDIATE")
    assert captured.position is not None
    captured.open().acknowledge({**captured.position, "seq": 5})  # it does not wait, nor fail
    writer.execute("INSERT INTO users VALUES (3, 'Cid')")
    writer.execute("COMMIT")
    captured.drain()
    assert captured.changes[-1].after == (b"3", b'"Cid"')
