"""What is wrong with a server or a user is said in a sentence with the way out; what may pass is tried again."""

from __future__ import annotations

import os
import signal
import time

import pytest

from headwater.capture.mysql import open_source
from headwater.capture.mysql import stream as stream_module
from headwater.capture.source import CaptureError, TryAgain
from headwater.testing.mariadb import RealMariaDB

from .conftest import SETTINGS, Session, numbers
from .follower import Follower, rows_of

pytestmark = pytest.mark.real

USERS = "CREATE TABLE users (id int PRIMARY KEY, name varchar(100))"


def fails(url: str, sentence: str, *tables: str) -> None:
    source = open_source(url, tables or ("users",), name="test")
    with pytest.raises(CaptureError, match=sentence) as raised:
        source.describe()
    assert not isinstance(raised.value, TryAgain)
    assert "secret" not in str(raised.value)
    source.close()


def test_who_may_not_come_in(server: RealMariaDB, url: str, sql: Session, is_mysql: bool) -> None:
    sql(USERS)
    database = sql.database
    fails(
        server.url(database, password="secret2"), "does not let us in: look after the user and the password"
    )
    sql("DROP USER IF EXISTS reader")
    sql("CREATE USER reader IDENTIFIED BY 'secret'")
    reader = server.url(database, user="reader")
    fails(reader, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON")
    sql("GRANT REPLICATION CLIENT ON *.* TO reader")
    fails(reader, r"GRANT REPLICATION SLAVE ON \*\.\* TO 'reader'")
    sql("GRANT REPLICATION SLAVE ON *.* TO reader")
    fails(reader, f"no table {database}.users, or none that this user may see: .* GRANT SELECT ON")
    sql(f"GRANT SELECT ON {database}.users TO reader")
    if is_mysql:
        with pytest.raises(CaptureError, match=f"nobody writes.* GRANT LOCK TABLES ON `{database}`"):
            Follower(reader, ["users"]).step()
        sql(f"GRANT LOCK TABLES ON {database}.* TO reader")
    with Follower(reader, ["users"]) as follower:
        follower.settle()
        sql("INSERT INTO users VALUES (1, 'a')")
        follower.settle()
        assert follower.ops() == "c"


def test_tables_that_cannot_be_captured(url: str, sql: Session, is_mysql: bool) -> None:
    sql("CREATE TABLE log (line text)")
    sql("CREATE TABLE maybe (id int UNIQUE, other int NOT NULL)")
    sql("CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM")
    sql("CREATE VIEW seen AS SELECT * FROM log")
    fails(url, "has no table .*nothing", "nothing")
    fails(url, r"log has no primary key, .* ADD PRIMARY KEY", "log")
    fails(url, "maybe has no primary key, and no unique index without NULL", "maybe")
    fails(url, "old is kept by MyISAM, which has no transactions: .*ENGINE = InnoDB", "old")
    fails(url, "seen is a view: capture the tables", "seen")
    if not is_mysql:
        sql("CREATE TABLE small (id int PRIMARY KEY, note text COMPRESSED)")
        fails(url, "keeps note compressed", "small")


def test_a_unique_index_takes_the_place_of_the_primary_key(url: str, sql: Session) -> None:
    sql("CREATE TABLE t (a varchar(9) NOT NULL, b int, UNIQUE (a))")
    sql(f"INSERT INTO t SELECT seq, seq FROM {numbers(1, 100)}")
    with Follower(url, ["t"]) as follower:
        follower.settle()
        sql("UPDATE t SET b = 0 WHERE a = '7'")
        follower.settle()
        assert follower.changes[0].table.key == ("a",)
        assert follower.rows == rows_of(url, ["t"])


def test_a_server_that_does_not_log_rows(url: str, sql: Session) -> None:
    sql(USERS)
    try:
        sql("SET GLOBAL binlog_format = MIXED")
        fails(url, "writes its binary log as MIXED, .* SET GLOBAL binlog_format = 'ROW'")
        sql("SET GLOBAL binlog_format = ROW")
        sql("SET GLOBAL binlog_row_image = MINIMAL")
        fails(url, "logs MINIMAL rows, .* binlog_row_image = 'FULL'")
    finally:
        sql("SET GLOBAL binlog_format = ROW")
        sql("SET GLOBAL binlog_row_image = FULL")


def test_a_log_that_was_purged_and_one_that_is_not_there(kind: type[RealMariaDB]) -> None:
    with kind(settings=SETTINGS) as server:
        url = server.database("shop")
        sql = Session(url)
        sql(USERS)
        for parameters in ("", "?gtid=off"):
            with Follower(url + parameters, ["users"]) as follower:
                follower.settle()
                follower.close()
                sql("REPLACE INTO users VALUES (1, 'a')")
                sql("FLUSH BINARY LOGS")
                sql("FLUSH BINARY LOGS")
                purge(sql)
                with pytest.raises(
                    CaptureError, match=r"has purged the binary log .*`headwater capture snapshot`"
                ):
                    follower.step()
                follower.close()
                follower.position = None
                follower.rows.clear()
                follower.settle()
                assert follower.rows == rows_of(url, ["users"])
        sql("RESET MASTER")
        with pytest.raises(CaptureError, match="`headwater capture snapshot`"):
            follower.settle()
        server.stop()
        with pytest.raises(TryAgain, match="connect"):
            open_source(url, ["users"], name="test").describe()
        server.settings |= {"skip_log_bin": "1"}
        server.start()
        fails(url, "writes no binary log: start it with log_bin")


def test_another_server_than_the_one_that_was_followed(url: str, sql: Session, is_mysql: bool) -> None:
    sql(USERS)
    others = "0-1-10" if is_mysql else "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-10"
    wrong = [others, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-10"] if is_mysql else [others]
    with Follower(url, ["users"]) as follower:
        follower.settle()
        follower.close()
        position = dict(follower.position)
        for gtid in wrong:
            follower.position = position | {"gtid": gtid}
            with pytest.raises(CaptureError, match="has never had the transactions that were followed"):
                follower.step()
            follower.close()
        follower.position = position
        sql("INSERT INTO users VALUES (1, 'a')")
        follower.settle()
        assert follower.ops() == "c"


def purge(sql: Session) -> None:
    """Let the server delete its older logs, which it puts off while it or a replica may need them."""
    last = sql("SHOW MASTER STATUS")[0][0]
    deadline = time.monotonic() + 20
    while len(sql("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline
        sql(f"PURGE BINARY LOGS TO '{last}'")
        time.sleep(0.05)


def test_a_server_that_says_nothing_any_more(
    server: RealMariaDB, url: str, sql: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_SILENCE_SECONDS", 2)
    sql(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TryAgain, match="timed out"):
                follower.until(lambda: False, seconds=20)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        follower.close()
        sql("INSERT INTO users VALUES (1, 'a')")
        follower.settle()
        assert follower.ops() == "c"


def test_a_connection_that_is_cut(url: str, sql: Session) -> None:
    sql(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        for number in range(3):
            sql("INSERT INTO users VALUES (%s, 'a')", number)
            follower.settle()
            assert len(follower.changes) == number + 1
            kill_dumps(sql, "KILL")
            with pytest.raises(TryAgain):
                follower.until(lambda: False, seconds=5)
            follower.close()
        follower.settle()
        assert follower.ops() == "ccc"


def test_a_log_that_the_server_ends_is_asked_for_again(url: str, sql: Session) -> None:
    sql(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        for number in range(5):
            kill_dumps(sql, "KILL QUERY")
            sql("INSERT INTO users VALUES (%s, 'a')", number)
            follower.until(lambda: len(follower.changes) == number + 1)  # noqa: B023
        assert follower.ops() == "ccccc"
        assert follower.rows == rows_of(url, ["users"])


def kill_dumps(sql: Session, statement: str) -> None:
    """Kill whatever sends the log to somebody."""
    dumps = sql(
        "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        " AND user = 'headwater'"
    )
    assert dumps
    for (id_,) in dumps:
        sql(f"{statement} {id_}")


def test_a_table_that_changes_under_a_snapshot_is_read_again(url: str, sql: Session) -> None:
    sql(USERS)
    sql("CREATE TABLE second (id int PRIMARY KEY)")
    sql(f"INSERT INTO users SELECT seq, 'x' FROM {numbers(1, 12000)}")
    sql("INSERT INTO second VALUES (1)")
    with Follower(url, ["users", "second"]) as follower:
        follower.step()
        sql("ALTER TABLE second ADD COLUMN more varchar(9) DEFAULT 'y', FORCE")
        with pytest.raises(TryAgain):
            follower.settle()
        follower.close()
        follower.settle()
        sql("INSERT INTO second VALUES (2, 'z')")
        follower.settle()
        assert follower.ops() == "r" * 12001 + "c"
        assert follower.rows == rows_of(url, ["users", "second"])
