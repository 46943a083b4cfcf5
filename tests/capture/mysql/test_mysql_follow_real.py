"""A real MariaDB followed: snapshot and stream, restarts, writers at the same time."""

from __future__ import annotations

import random
import threading
import time

import pytest

from headwater.capture.mysql import snapshot as snapshot_module
from headwater.capture.mysql import stream as stream_module
from headwater.testing.mariadb import RealMariaDB

from .conftest import SETTINGS, Session, numbers
from .follower import Follower, rows_of

pytestmark = pytest.mark.real

USERS = "CREATE TABLE users (id int PRIMARY KEY, name varchar(100))"


def fill(sql: Session, rows: int, first: int = 1) -> None:
    sql(f"INSERT INTO users SELECT seq, concat('user ', seq) FROM {numbers(first, first + rows - 1)}")


def last_gtid(sql: Session, *, is_mysql: bool) -> str:
    """Return the name of the last transaction."""
    if not is_mysql:
        return str(sql("SELECT @@last_gtid")[0][0])
    server, last = sql("SELECT @@server_uuid, @@gtid_executed")[0]
    return f"{server}:{last.rpartition('-')[2]}"


@pytest.mark.parametrize("parameters", ["", "?gtid=off"])
def test_a_snapshot_and_then_the_stream(url: str, sql: Session, parameters: str, is_mysql: bool) -> None:
    sql(USERS)
    sql("CREATE TABLE others (id int PRIMARY KEY)")
    fill(sql, 6000)
    with Follower(url + parameters, ["users"]) as follower:
        follower.read_snapshot()
        assert follower.ops() == "r" * 6000
        assert "snapshot" not in follower.position
        sql("BEGIN")
        sql("INSERT INTO users VALUES (7001, 'new')")
        sql("INSERT INTO others VALUES (1)")
        sql("UPDATE users SET id = -1 WHERE id = 1")
        sql("DELETE FROM users WHERE id = 2")
        sql("COMMIT")
        follower.until(lambda: len(follower.changes) == 6003)
        last = follower.changes[-3:]
        assert [change.op for change in last] == ["c", "u", "d"]
        assert last[0].transaction == last[2].transaction == last_gtid(sql, is_mysql=is_mysql)
        assert abs(last[0].time_us / 1e6 - time.time()) < 60
        assert last[0].source["file"].startswith("binlog.")
        assert follower.rows == rows_of(url, ["users"])


def test_nothing_happens_and_batches_come_all_the_same(url: str, sql: Session) -> None:
    sql(USERS)
    sql("CREATE TABLE others (id int PRIMARY KEY AUTO_INCREMENT)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        before = follower.position
        ended = threading.Event()

        def write() -> None:
            session = Session(url)
            while not ended.wait(0.01):
                session("INSERT INTO others VALUES ()")

        began = time.monotonic()
        assert follower.step().changes == []
        assert time.monotonic() - began < 1
        writer = threading.Thread(target=write)
        writer.start()
        try:
            began = time.monotonic()
            for _ in range(3):
                assert follower.step().changes == []
            assert time.monotonic() - began < 3
        finally:
            ended.set()
            writer.join()
        assert follower.position["pos"] > before["pos"]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_large_transaction_comes_in_parts_that_can_be_gone_on_from(
    url: str, sql: Session, is_mysql: bool, is_compressed: bool
) -> None:
    if is_mysql:
        sql("SET binlog_transaction_compression = %s", is_compressed)
    else:  # which compresses events, not transactions
        sql("SET GLOBAL log_bin_compress = %s", is_compressed)
    sql(USERS)
    sql("CREATE TABLE others (id int PRIMARY KEY)")
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql("BEGIN")
        sql(f"INSERT INTO others SELECT seq FROM {numbers(1, 3000)}")
        fill(sql, 30000)
        sql("UPDATE users SET name = concat(name, '!') WHERE id <= 15000")
        sql("COMMIT")
        while len(follower.changes) < 45000:
            if follower.step().changes:
                follower.close()  # so that each part is asked for anew
        assert follower.ops() == "c" * 30000 + "u" * 15000
        assert follower.largest_batch <= 5000
        assert len({change.transaction for change in follower.changes}) == 1
        assert "transaction" not in follower.position or follower.step().changes == []
        assert follower.rows == rows_of(url, ["users"])


def write(url: str, seed: int, ended: threading.Event) -> None:
    """Write at random to two tables, whose rows collide with those of others who do the same."""
    draw = random.Random(seed)
    session = Session(url)
    names = ["a", "A b", "b", "É", "e", "Z", "ß", "ss", "zz", "a\t", "é\x01"]
    while not ended.wait(draw.uniform(0, 0.02)):  # or MySQL finds no moment to lock its tables in
        try:
            session("BEGIN")
            for _ in range(draw.choice([1, 1, 3, 40])):
                number, name = draw.randrange(2000), draw.choice(names) + str(draw.randrange(9))
                day = f"2024-01-{draw.randrange(1, 28):02d}"
                match draw.randrange(7):
                    case 0:
                        session("REPLACE INTO users VALUES (%s, %s)", number, name)
                    case 1:
                        session("UPDATE IGNORE users SET id = %s WHERE id = %s", draw.randrange(2000), number)
                    case 2:
                        session("DELETE FROM users WHERE id BETWEEN %s AND %s", number, number + 5)
                    case 3:
                        session("UPDATE users SET name = %s WHERE id < %s ORDER BY id LIMIT 9", name, number)
                    case 4:
                        session("REPLACE INTO pairs VALUES (%s, %s, %s)", name, day, number)
                    case 5:
                        session("UPDATE IGNORE pairs SET name = %s WHERE day = %s LIMIT 3", name, day)
                    case 6:
                        session("DELETE FROM pairs WHERE name = %s AND day > %s", name, day)
            session(draw.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
        except Exception as error:
            if getattr(error, "args", (0,))[0] not in (1213, 1205):  # a deadlock
                raise
    session.connection.close()


@pytest.mark.parametrize("collation", ["utf8mb4_unicode_ci", "latin1_swedish_ci"])
def test_writers_during_the_snapshot_and_restarts_lose_and_repeat_nothing(
    url: str, sql: Session, monkeypatch: pytest.MonkeyPatch, collation: str
) -> None:
    monkeypatch.setattr(snapshot_module, "_BATCH_ROWS", 100)
    monkeypatch.setattr(stream_module, "_BATCH_ROWS", 17)
    sql(USERS)
    charset = collation.partition("_")[0]
    sql(
        "CREATE TABLE pairs (name varchar(20), day date, n int, PRIMARY KEY (name, day))"
        f" CHARACTER SET {charset} COLLATE {collation}"
    )
    fill(sql, 1500)
    sql(
        "INSERT INTO pairs SELECT concat(char(65 + seq % 50), seq % 9), date '2024-01-01' + INTERVAL seq % 27 DAY, seq"
        f" FROM {numbers(1, 800)} ON DUPLICATE KEY UPDATE n = seq"
    )
    draw = random.Random(collation)
    ended = threading.Event()
    writers = [threading.Thread(target=write, args=(url, seed, ended)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        with Follower(url, ["users", "pairs"]) as follower:
            follower.retrying = True
            restarts = 0
            while not follower.has_read:
                follower.step()
                if draw.random() < 0.25:
                    follower.close()
                    restarts += 1
                    time.sleep(0.02)
            assert restarts > 2
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                follower.step()
                if draw.random() < 0.02:
                    follower.close()
            ended.set()
            for writer in writers:
                writer.join()
            follower.settle()
            assert "snapshot" not in follower.position
            assert set(follower.ops()) == set("rcud")
            assert follower.rows == rows_of(url, ["users", "pairs"])
    finally:
        ended.set()


def test_a_table_that_is_added_is_read_while_the_others_go_on(url: str, sql: Session) -> None:
    sql(USERS)
    sql("CREATE TABLE orders (id int PRIMARY KEY, user int)")
    fill(sql, 10)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        follower.close()
        fill(sql, 5, first=11)
        sql("INSERT INTO orders VALUES (1, 1), (2, 2)")
        sql("ALTER TABLE orders ADD COLUMN note text")
        follower.tables = ["users", "orders"]
        follower.settle()
        sql("INSERT INTO orders VALUES (3, 3, 'x')")
        sql("DELETE FROM users WHERE id = 1")
        follower.settle()
        assert sorted(follower.ops()) == sorted("r" * 10 + "rr" + "c" * 5 + "cd")
        assert follower.rows == rows_of(url, ["users", "orders"])


@pytest.mark.timeout(90)
def test_a_server_that_is_killed_and_started_again(kind: type[RealMariaDB]) -> None:
    with kind(settings=SETTINGS | {"sync_binlog": "1"}) as server:
        url = server.database("shop")
        sql = Session(url)
        sql(USERS)
        fill(sql, 20000)
        with Follower(url, ["users"]) as follower:
            follower.retrying = True
            follower.step()
            server.kill()  # in the middle of the snapshot
            server.start()
            follower.settle()
            sql = Session(url)
            sql("BEGIN")
            fill(sql, 20000, first=20001)
            sql("COMMIT")
            follower.step()
            sql("BEGIN")
            sql("DELETE FROM users WHERE id < 5000")  # never committed
            server.kill()
            server.start()
            Session(url)("UPDATE users SET name = 'x' WHERE id BETWEEN 100 AND 300")
            follower.until(lambda: follower.ops().count("u") == 201)
            server.restart()
            Session(url)("TRUNCATE users")
            Session(url)("INSERT INTO users VALUES (1, 'last')")
            follower.until(lambda: follower.ops().endswith("tc"))
            assert "d" not in follower.ops()
            assert follower.ops().count("r") == 20000
            assert follower.ops().count("c") == 20001
            assert follower.rows == rows_of(url, ["users"])
