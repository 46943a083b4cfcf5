"""Tables that are altered, emptied, renamed and dropped while they are followed, and while nobody looks."""

from __future__ import annotations

import json
import re
from typing import Any

import pymysql
import pytest

from headwater.capture.source import CaptureError

from .conftest import Session
from .follower import Follower, rows_of

pytestmark = pytest.mark.real

USERS = "CREATE TABLE users (id int PRIMARY KEY, name varchar(100), age int unsigned)"
STEPS = [
    "ALTER TABLE users ADD COLUMN email varchar(50) CHARACTER SET latin1 DEFAULT 'é' AFTER id, ADD INDEX (email)",
    "ALTER TABLE users CHANGE name full_name varchar(200) NOT NULL DEFAULT ''",
    "ALTER TABLE users DROP COLUMN age",
    "ALTER TABLE users ADD (kind enum('a','b') DEFAULT 'b', price decimal(9,2) DEFAULT 1.5),"
    " RENAME COLUMN email TO mail",
    "ALTER TABLE users MODIFY kind set('x','y') FIRST, MODIFY id bigint unsigned",
    "ALTER TABLE users ADD note json DEFAULT ('[]'), ADD at timestamp(3) DEFAULT '2024-01-01 00:00:00'",
    "CREATE INDEX by_note ON users (full_name)",
    "ALTER TABLE users COMMENT 'after, all', ENGINE = InnoDB, ALTER COLUMN price SET DEFAULT 2",
]


def names(change: Any) -> list[str]:
    return [column.name for column in change.table.columns]


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.parametrize("is_watching", [True, False])
def test_altered_columns(url: str, sql: Session, metadata: str, is_watching: bool) -> None:
    sql(f"SET GLOBAL binlog_row_metadata = {metadata}")
    sql = Session(url)
    sql(USERS)
    wanted: list[list[str]] = []
    with Follower(url, ["users"]) as follower:
        follower.settle()
        for number, statement in enumerate(["SELECT 1", *STEPS]):
            sql(statement)
            sql("INSERT INTO users (id) VALUES (%s)", number)
            wanted.append([str(row[0]) for row in sql("SHOW COLUMNS FROM users")])
            if is_watching:
                follower.until(lambda: len(follower.changes) == len(wanted))
                follower.close()
        follower.until(lambda: len(follower.changes) == len(wanted))
        assert [names(change) for change in follower.changes] == wanted
        last = follower.changes[-1]
        assert last.after == rows_of(url, ["users"])["users"][b"8",]
        assert [column.type for column in last.table.columns] == [
            "string", "decimal(20,0)", "string", "string", "decimal(9,2)", "string", "timestamp",
        ]  # fmt: skip
        first = json.loads(b"[%b]" % b",".join(cell or b"" for cell in follower.changes[1].after or ()))
        assert first == [1, "é", None, None]
    sql("SET GLOBAL binlog_row_metadata = DEFAULT")


def test_a_change_that_cannot_be_read_is_looked_up(url: str, sql: Session) -> None:
    sql(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("ALTER TABLE users ADD COLUMN number serial")
        sql("INSERT INTO users (id) VALUES (1)")
        follower.settle()
        assert names(follower.changes[0]) == ["id", "name", "age", "number"]
        sql("ALTER TABLE users ADD COLUMN a national varchar(10)")
        sql("INSERT INTO users (id) VALUES (2)")
        sql("ALTER TABLE users DROP COLUMN a, DROP COLUMN number")
        with pytest.raises(
            CaptureError, match=r"users is not in the log as it was known to be after 'ALTER TABLE users ADD"
        ):
            follower.settle()


def test_an_empty_table_and_one_that_is_emptied(url: str, sql: Session) -> None:
    sql(USERS)
    sql("INSERT INTO users (id) VALUES (1), (2)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("TRUNCATE TABLE users")
        sql("INSERT INTO users (id) VALUES (3)")
        follower.settle()
        assert follower.ops() == "rrtc"
        assert list(follower.rows["users"]) == [(b"3",)]


def test_tools_that_put_a_copy_in_a_table_s_place(url: str, sql: Session) -> None:
    sql(USERS)
    sql("INSERT INTO users (id) VALUES (1)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("CREATE TABLE _users_new LIKE users")
        sql("ALTER TABLE _users_new ADD COLUMN more int")
        sql("INSERT INTO _users_new SELECT *, 5 FROM users")
        sql("RENAME TABLE users TO _users_old, _users_new TO users")
        sql("INSERT INTO users VALUES (2, 'b', 3, 4)")
        follower.settle()
        assert follower.ops() == "rc"
        assert names(follower.changes[-1]) == ["id", "name", "age", "more"]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DROP TABLE users", "users was dropped: leave it out of the capture"),
        ("DROP TABLE users; CREATE TABLE users (id int PRIMARY KEY)", "users was dropped"),
        ("RENAME TABLE users TO people", r"users was renamed to shop\d+.people: capture that one"),
        ("ALTER TABLE users RENAME people", r"users was renamed to shop\d+.people: capture that one"),
        ("SET binlog_format = STATEMENT; DELETE FROM users", "as a statement, not as rows"),
        ("SET binlog_row_image = MINIMAL; UPDATE users SET age = 1", "without all their columns"),
        (
            "XA START 'x'; INSERT INTO users (id) VALUES (9); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
            r"distributed transaction \(XA\)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_said(url: str, sql: Session, statement: str, sentence: str) -> None:
    sql(USERS)
    sql("INSERT INTO users (id) VALUES (1)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("INSERT INTO users (id) VALUES (2)")
        for part in statement.split("; "):
            sql(part)
        with pytest.raises(CaptureError, match=sentence):
            follower.settle()
        assert follower.ops() == "rc"
        follower.close()
        with pytest.raises(CaptureError, match=sentence):
            follower.settle()
        assert follower.ops() == "rc"


def test_rows_that_go_with_their_partition_are_said(url: str, sql: Session) -> None:
    sql(
        "CREATE TABLE users (id int PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    )
    sql("INSERT INTO users VALUES (1), (11)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("ALTER TABLE users ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))")
        sql("INSERT INTO users VALUES (21)")
        follower.settle()
        assert follower.ops() == "rrc"
        sql("ALTER TABLE users DROP PARTITION p0")
        with pytest.raises(
            CaptureError, match=r"took rows out of shop\d+\.users.*headwater capture snapshot"
        ):
            follower.settle()


def test_parts_of_documents_are_said(url: str, sql: Session, is_mysql: bool) -> None:
    sql("CREATE TABLE users (id int PRIMARY KEY, said json)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("INSERT INTO users VALUES (1, json_object('a', repeat('x', 1000), 'b', 1))")
        if is_mysql:
            sql("SET binlog_row_value_options = PARTIAL_JSON")
        sql("UPDATE users SET said = json_set(said, '$.b', 2)")
        if not is_mysql:  # which logs whole documents
            follower.settle()
            assert follower.ops() == "cu"
            return
        with pytest.raises(CaptureError, match="parts of a JSON document: clear binlog_row_value_options"):
            follower.settle()
        assert follower.ops() == "c"


def test_a_table_that_is_made_anew_is_said(url: str, sql: Session, is_mysql: bool) -> None:
    sql(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        replace = "CREATE OR REPLACE TABLE users (id int PRIMARY KEY)"
        if is_mysql:  # which has no such statement
            with pytest.raises(pymysql.err.ProgrammingError, match="syntax"):
                sql(replace)
            follower.settle()
            return
        sql(replace)
        with pytest.raises(CaptureError, match="users was made anew"):
            follower.settle()


def test_a_dropped_table_can_be_left_out(url: str, sql: Session) -> None:
    sql(USERS)
    sql("CREATE TABLE orders (id int PRIMARY KEY)")
    with Follower(url, ["users", "orders"]) as follower:
        follower.settle()
        sql("DROP TABLE users")
        sql("INSERT INTO orders VALUES (1)")
        with pytest.raises(CaptureError, match=re.escape("was dropped")):
            follower.settle()
        follower.close()
        follower.tables = ["orders"]
        follower.settle()
        assert follower.ops() == "c"
