"""A real Postgres followed: snapshot and stream, restarts, types, tables that change."""

from __future__ import annotations

import json
import random
import threading
import time
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from headwater.capture.postgres.offset import lsn_number

from .follower import Follower, rows_of

pytestmark = pytest.mark.real

Sql = psycopg.Connection[tuple[Any, ...]]
USERS = "CREATE TABLE users (id int PRIMARY KEY, name text, big text)"
BIG = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 200))"
"""A text that does not fit into its row, however it is compressed."""


def test_a_snapshot_and_then_the_stream(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    sql.execute("INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, 5000) n")
    with Follower(url, ["users"]) as follower:
        follower.until(lambda: len(follower.rows.get("public.users", ())) == 5000)
        assert {change.op for change in follower.changes} == {"r"}
        with sql.transaction():
            sql.execute("INSERT INTO users VALUES (5001, 'new')")
            sql.execute("UPDATE users SET id = -1 WHERE id = 1")
            sql.execute("DELETE FROM users WHERE id = 2")
        follower.until(lambda: len(follower.changes) == 5003)
        last = follower.changes[-3:]
        assert [change.op for change in last] == ["c", "u", "d"]
        assert len({change.transaction for change in last}) == 1
        assert abs(last[0].time_us / 1e6 - time.time()) < 60
        assert follower.rows == rows_of(url, ["users"])


VALUES: list[tuple[str, str, Any]] = [
    ("smallint", "-32768", -32768),
    ("int", "2147483647", 2147483647),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("real", "1.1", Decimal("1.1")),
    ("double precision", "0.1::float8 + 0.2", Decimal("0.30000000000000004")),
    ("double precision", "'-Infinity'", "-Infinity"),
    ("numeric(12,4)", "12345678.9012", Decimal("12345678.9012")),
    ("numeric(12,4)", "'NaN'", "NaN"),
    ("numeric", "'Infinity'", "Infinity"),
    (
        "numeric",
        "12345678901234567890123456789012345678901234567890.12345",
        "12345678901234567890123456789012345678901234567890.12345",
    ),
    ("boolean", "true", True),
    ("text", "E'tab\\tquote\"back\\\\slash\\nline\\x01 ä 😀'", 'tab\tquote"back\\slash\nline\x01 ä 😀'),
    ("text", "'\\N'", "\\N"),
    ("text", "''", ""),
    ("varchar(9)", "'nine'", "nine"),
    ("char(4)", "'ab'", "ab  "),
    ("bytea", "'\\x00ff10'", "AP8Q"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", "'{\"a\":  [1.10, null]}'", '{"a":  [1.10, null]}'),
    ("jsonb", "'{\"a\":  [1.10, null]}'", '{"a": [1.10, null]}'),
    ("date", "'2024-05-31'", "2024-05-31"),
    ("date", "'infinity'", "infinity"),
    ("date", "'0044-03-15 BC'", "-0043-03-15"),
    ("time", "'12:34:56.789'", "12:34:56.789"),
    ("timetz", "'12:34:56+02'", "12:34:56+02"),
    ("timestamp", "'2024-05-31 12:34:56.123456'", "2024-05-31T12:34:56.123456"),
    ("timestamptz", "'2024-05-31 12:34:56.5+02'", "2024-05-31T10:34:56.5Z"),
    ("timestamptz", "'-infinity'", "-infinity"),
    ("timestamptz", "'0044-03-15 12:00+00 BC'", "-0043-03-15T12:00:00Z"),
    ("interval", "'1 year 2 months 3 days 4:05:06.789'", "P1Y2M3DT4H5M6.789S"),
    ("int[]", "'{{1,NULL},{3,4}}'", [[1, None], [3, 4]]),
    ("text[]", "ARRAY['a', NULL, 'NULL', 'b,\"c\\', '']", ["a", None, "NULL", 'b,"c\\', ""]),
    ("timestamptz[]", "ARRAY['2024-05-31 12:00+00'::timestamptz]", ["2024-05-31T12:00:00Z"]),
    ("bytea[]", "ARRAY['\\x00ff'::bytea]", ["AP8="]),
    ("mood", "'so so'", "so so"),
    ("mood[]", "'{\"so so\",happy}'", ["so so", "happy"]),
    ("price", "12.50", Decimal("12.50")),
    ("place", "ROW(1, 'here')", "(1,here)"),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("tstzrange", "'[2024-05-31 12:00+00,)'", '["2024-05-31 12:00:00+00",)'),
    ("int4multirange", "'{[1,3),[5,8)}'", "{[1,3),[5,8)}"),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("bit(4)", "B'1010'", "1010"),
    ("money", "12.34", "$12.34"),
    ("point", "'(1,2)'", "(1,2)"),
    ("xml", "'<a>b</a>'", "<a>b</a>"),
    ("oid", "4294967295", 4294967295),
]


def test_a_value_has_the_same_json_in_snapshot_and_stream_and_loses_nothing(url: str, sql: Sql) -> None:
    if not sql.execute("SELECT 1 FROM pg_settings WHERE name = 'xmloption'").fetchall() or _lacks_xml(sql):
        values = [value for value in VALUES if value[0] != "xml"]
    else:
        values = VALUES
    sql.execute("ALTER DATABASE " + sql.info.dbname + " SET timezone = 'Asia/Tokyo'")
    sql.execute("ALTER DATABASE " + sql.info.dbname + " SET intervalstyle = 'postgres'")
    sql.execute("ALTER DATABASE " + sql.info.dbname + " SET datestyle = 'German'")
    sql.execute("ALTER DATABASE " + sql.info.dbname + " SET bytea_output = 'escape'")
    sql.execute("ALTER DATABASE " + sql.info.dbname + " SET extra_float_digits = -3")
    sql.execute("CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy')")
    sql.execute("CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE > 0)")
    sql.execute("CREATE TYPE place AS (x int, what text)")
    columns = ", ".join(f"c{n} {type_}" for n, (type_, _, _) in enumerate(values))
    sql.execute(f"CREATE TABLE things (id int PRIMARY KEY, {columns})")
    row = ", ".join(value for _, value, _ in values)
    nulls = ", ".join("NULL" for _ in values)
    sql.execute(f"INSERT INTO things VALUES (1, {row}), (2, {nulls})")
    with Follower(url, ["things"]) as follower:
        follower.until(lambda: len(follower.changes) == 2)
        sql.execute(f"INSERT INTO things VALUES (3, {row}), (4, {nulls})")
        sql.execute("ALTER TABLE things REPLICA IDENTITY FULL")
        sql.execute("UPDATE things SET id = id + 10 WHERE id > 2")
        follower.until(lambda: len(follower.changes) == 6)
    read = {change.after[0]: change.after[1:] for change in follower.changes[:4] if change.after}
    assert read[b"1"] == read[b"3"]
    assert read[b"2"] == read[b"4"]
    befores = [change.before for change in follower.changes[4:]]
    assert [before[1:] for before in befores if before] == [read[b"1"], read[b"2"]]
    assert {*read[b"2"]} == {b"null"}
    found = [json.loads(text or b"", parse_float=Decimal) for text in read[b"1"]]
    for (type_, text, wanted), value in zip(values, found, strict=True):
        assert value == wanted, (type_, text)


def _lacks_xml(sql: Sql) -> bool:
    try:
        sql.execute("SELECT '<a/>'::xml")
    except psycopg.Error:
        return True
    return False


def _random_work(url: str, seed: int, transactions: int) -> None:
    """Change two tables at random, as an application would, some transactions taken back."""
    chance = random.Random(seed)
    with psycopg.connect(url, autocommit=True) as session:
        for _ in range(transactions):
            try:
                with session.transaction():
                    for _ in range(chance.randint(1, 6)):
                        _change_something(session, chance)
                    if chance.random() < 0.1:
                        raise psycopg.Rollback
            except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                pass


def _change_something(session: Sql, chance: random.Random) -> None:
    table = chance.choice(["users", "orders"])
    key = chance.randint(1, 60)
    what = chance.random()
    if what < 0.4:
        big = BIG if chance.random() < 0.2 else "NULL"
        session.execute(
            f"INSERT INTO {table} VALUES (%s, %s, {big}) ON CONFLICT (id) DO UPDATE SET name = excluded.name".encode(),
            (key, f"name {chance.randint(1, 9)}"),
        )
    elif what < 0.6:
        session.execute(f"UPDATE {table} SET name = name || '!' WHERE id = %s".encode(), (key,))
    elif what < 0.7:
        session.execute(f"UPDATE {table} SET id = %s WHERE id = %s".encode(), (chance.randint(1, 60), key))
    elif what < 0.8:
        session.execute(f"UPDATE {table} SET big = {BIG} WHERE id = %s".encode(), (key,))
    elif what < 0.97:
        session.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (key,))
    elif what < 0.98:
        session.execute(f"TRUNCATE {table}".encode())


def test_whatever_happens_meanwhile_the_rows_are_the_tables(url: str, sql: Sql) -> None:
    """Writers during the snapshot and after it, the capture cut off at random: every change fits, none is missing."""
    for table in ("users", "orders"):
        sql.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text, big text)".encode())
        sql.execute(f"INSERT INTO {table} SELECT n, 'first', {BIG} FROM generate_series(1, 30) n".encode())
    seed = random.SystemRandom().randint(0, 10**9)
    writers = [threading.Thread(target=_random_work, args=(url, seed + n, 150)) for n in range(2)]
    chance = random.Random(seed)
    with Follower(url, ["users", "orders"]) as follower:
        follower.retrying = True
        for writer in writers:
            writer.start()
        follower.until(lambda: bool(follower.changes))
        while any(writer.is_alive() for writer in writers):
            follower.step()
            if follower.position.get("reading") is None and chance.random() < 0.05:
                if chance.random() < 0.5:
                    follower.acknowledge()
                follower.close()
        follower.settle()
    assert follower.rows == {"public.users": {}, "public.orders": {}} | rows_of(url, ["users", "orders"]), (
        seed
    )


def _await_free_slot(sql: Sql) -> None:
    deadline = time.monotonic() + 20
    while sql.execute(
        "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
    ).fetchall():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_snapshot_that_was_cut_off_goes_on_with_the_tables_that_it_had_not_read(url: str, sql: Sql) -> None:
    for table in ("a", "b", "c"):
        sql.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text, big text)".encode())
        sql.execute(f"INSERT INTO {table} SELECT n, 'first' FROM generate_series(1, 5000) n".encode())
    tables = ["a", "b", "c"]
    with Follower(url, tables, strict=False) as follower:
        follower.until(lambda: bool(follower.position) and follower.position.get("reading") == "public.b")
        follower.close()
        _await_free_slot(sql)
        for table in tables:
            sql.execute(f"DELETE FROM {table} WHERE id % 10 = 0".encode())
            sql.execute(f"UPDATE {table} SET name = 'second' WHERE id % 10 = 1".encode())
            sql.execute(f"INSERT INTO {table} SELECT n, 'new' FROM generate_series(5001, 5100) n".encode())
        follower.changes.clear()
        follower.settle()
    assert follower.rows == rows_of(url, tables)
    read = [str(change.table) for change in follower.changes if change.op == "r"]
    assert {name: read.count(name) for name in read} == {"public.b": 4600, "public.c": 4600}
    # The third table had nothing published: what its later snapshot shows does not come again.
    streamed = {str(change.table) for change in follower.changes if change.op != "r"}
    assert streamed == {"public.a", "public.b"}


def test_a_table_can_be_captured_later(url: str, sql: Sql) -> None:
    for table in ("a", "b"):
        sql.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text)".encode())
        sql.execute(f"INSERT INTO {table} VALUES (1, 'x')".encode())
    with Follower(url, ["a"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO a VALUES (2, 'y')")
        sql.execute("INSERT INTO b VALUES (2, 'y')")
        follower.close()
        _await_free_slot(sql)
        follower.tables = ["a", "b"]
        follower.until(lambda: "public.b" in follower.rows)
        sql.execute("INSERT INTO b VALUES (3, 'z')")
        follower.settle()
        assert [change.op for change in follower.changes] == ["r", "r", "r", "c", "c"]
        assert follower.rows == rows_of(url, ["a", "b"])
        # And one that took the place of another is read anew.
        follower.close()
        _await_free_slot(sql)
        sql.execute(
            "DROP TABLE b; CREATE TABLE b (id int PRIMARY KEY, name text); INSERT INTO b VALUES (7, 'new')"
        )
        follower.settle()
        assert [change.op for change in follower.changes[5:]] == ["t", "r"]
        assert follower.rows == rows_of(url, ["a", "b"])


def test_partitions_are_told_as_their_table(url: str, sql: Sql) -> None:
    sql.execute(
        "CREATE TABLE events (id int, day date, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)"
    )
    for month in (1, 2):
        sql.execute(
            f"CREATE TABLE events_{month} PARTITION OF events"
            f" FOR VALUES FROM ('2024-0{month}-01') TO ('2024-0{month + 1}-01')".encode()
        )
    sql.execute("INSERT INTO events VALUES (1, '2024-01-05', 'a'), (2, '2024-02-05', 'b')")
    with Follower(url, ["events"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO events VALUES (3, '2024-01-06', 'c')")
        sql.execute("UPDATE events SET day = '2024-02-06' WHERE id = 3")
        sql.execute("DELETE FROM events_1 WHERE id = 1")
        sql.execute("TRUNCATE events_1")
        follower.settle()
        assert {str(change.table) for change in follower.changes} == {"public.events"}
        assert follower.rows == rows_of(url, ["events"])
        assert follower.changes[0].table.key == ("id", "day")


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX others"])
def test_the_replica_identity_decides_what_is_known_of_a_row_before(
    url: str, sql: Sql, identity: str
) -> None:
    sql.execute("CREATE TABLE items (a int PRIMARY KEY, b int NOT NULL, c text, big text)")
    sql.execute("CREATE UNIQUE INDEX others ON items (b)")
    sql.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}".encode())
    with Follower(url, ["items"]) as follower:
        follower.settle()
        sql.execute(f"INSERT INTO items VALUES (1, 10, 'x', {BIG})".encode())
        sql.execute("UPDATE items SET c = 'y'")
        sql.execute("UPDATE items SET a = 2, b = 20")
        sql.execute("DELETE FROM items")
        follower.until(lambda: len(follower.changes) == 4)
    inserted, changed, moved, deleted = follower.changes
    assert inserted.after is not None
    big = inserted.after[3]
    key = ("b",) if "INDEX" in identity else ("a",)
    assert inserted.table.key == key
    if identity == "FULL":
        assert changed.before == (b"1", b"10", b'"x"', big)
        assert changed.after == (b"1", b"10", b'"y"', big)
        assert deleted.before == (b"2", b"20", b'"y"', big)
    else:
        first, last = ((None, b"10"), (None, b"20")) if "INDEX" in identity else ((b"1", None), (b"2", None))
        assert changed.before is None
        assert moved.before == (*first, None, None)
        assert deleted.before == (*last, None, None)


def test_large_values_that_did_not_change_are_asked_of_the_table(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql.execute(f"INSERT INTO users VALUES (1, 'a', {BIG})".encode())
        sql.execute("UPDATE users SET name = 'b'")
        follower.until(lambda: len(follower.changes) == 2)
        inserted, updated = (change.after for change in follower.changes)
        assert inserted is not None
        assert updated == (b"1", b'"b"', inserted[2])
        assert len(inserted[2] or b"") > 6000


def test_names_with_a_percent_sign(url: str, sql: Sql) -> None:
    sql.execute('CREATE TABLE "a%s" ("id%" int PRIMARY KEY, "%b" text, n int)')
    sql.execute('ALTER TABLE "a%s" ALTER "%b" SET STORAGE EXTERNAL')
    with Follower(url, ["a%s"]) as follower:
        follower.settle()
        sql.execute("""INSERT INTO "a%s" VALUES (1, repeat('x', 9000), 1)""")
        sql.execute('UPDATE "a%s" SET n = 2')
        follower.until(lambda: len(follower.changes) == 2)
        assert follower.changes[-1].after == (b"1", b'"%b"' % (b"x" * 9000), b"2")


def test_a_table_that_is_altered_is_another_from_then_on(url: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE users (id int PRIMARY KEY, name text, age int)")
    sql.execute("INSERT INTO users VALUES (1, 'a', 10)")
    statements = [
        "ALTER TABLE users ADD email text DEFAULT 'none'; INSERT INTO users VALUES (2, 'b', 20, 'b@x')",
        "ALTER TABLE users DROP name; INSERT INTO users VALUES (3, 30, 'c@x')",
        "ALTER TABLE users RENAME age TO years; INSERT INTO users VALUES (4, 40, 'd@x')",
        "ALTER TABLE users ALTER years TYPE numeric(5,1); INSERT INTO users VALUES (5, 50, 'e@x')",
        "CREATE TYPE mood AS ENUM ('ok'); ALTER TABLE users ADD mood mood; INSERT INTO users VALUES (6, 60, 'f', 'ok')",
    ]
    with Follower(url, ["users"]) as follower:
        follower.settle()
        for count, statement in enumerate(statements):
            sql.execute(statement.encode())
            follower.until(lambda count=count: len(follower.changes) == count + 2)  # type: ignore[misc]
    seen = [
        (", ".join(f"{column.name} {column.type}" for column in change.table.columns), change.after)
        for change in follower.changes
    ]
    assert seen == [
        ("id int, name string, age int", (b"1", b'"a"', b"10")),
        ("id int, name string, age int, email string", (b"2", b'"b"', b"20", b'"b@x"')),
        ("id int, age int, email string", (b"3", b"30", b'"c@x"')),
        ("id int, years int, email string", (b"4", b"40", b'"d@x"')),
        ("id int, years decimal(5,1), email string", (b"5", b"50.0", b'"e@x"')),
        ("id int, years decimal(5,1), email string, mood string", (b"6", b"60.0", b'"f"', b'"ok"')),
    ]
    assert follower.changes[-1].table.columns[-1].native == "mood"


def test_generated_columns_are_left_out_of_snapshot_and_stream(url: str, sql: Sql) -> None:
    sql.execute(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, note text)"
    )
    sql.execute("INSERT INTO t (id, note) VALUES (1, 'a')")
    with Follower(url, ["t"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO t (id, note) VALUES (2, 'b')")
        follower.settle()
    assert [change.after for change in follower.changes] == [(b"1", b'"a"'), (b"2", b'"b"')]


def test_an_idle_table_does_not_keep_the_log(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    sql.execute("CREATE TABLE busy (id int)")
    with Follower(f"{url}?heartbeat=0.2", ["users"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO busy SELECT generate_series(1, 10000)")
        [(place,)] = sql.execute("SELECT pg_current_wal_lsn()::text").fetchall()

        def is_confirmed() -> bool:
            follower.acknowledge()
            [(confirmed,)] = sql.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
            ).fetchall()
            return lsn_number(str(confirmed)) >= lsn_number(str(place))

        follower.until(is_confirmed, 10)
        assert follower.changes == []


def test_a_large_transaction_comes_in_pieces_and_can_be_gone_on_within(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO users SELECT n, repeat('x', 100) FROM generate_series(1, 30000) n")
        follower.until(lambda: len(follower.changes) >= 7000)
        follower.acknowledge()
        assert follower.position["done"] == len(follower.changes)
        follower.close()
        _await_free_slot(sql)
        follower.settle()
        assert follower.largest_batch <= 2000
        assert len(follower.changes) == 30000
        assert follower.rows == rows_of(url, ["users"])


def test_slot_and_publication_can_be_given(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    sql.execute("CREATE TABLE others (id int PRIMARY KEY)")
    sql.execute("CREATE PUBLICATION mine FOR ALL TABLES")
    slot = f"slot_of_{sql.info.dbname}"
    sql.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')".encode())
    sql.execute("INSERT INTO users VALUES (1, 'a'), (2, 'b')")
    sql.execute("DELETE FROM users WHERE id = 2")
    with Follower(f"{url}?slot={slot}&publication=mine", ["users"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO others VALUES (1)")
        sql.execute("INSERT INTO users VALUES (3, 'c')")
        follower.settle()
        assert [change.op for change in follower.changes] == ["r", "c"]
        assert follower.rows == rows_of(url, ["users"])
    [(slots, publications)] = sql.execute(
        "SELECT (SELECT array_agg(slot_name::text) FROM pg_replication_slots WHERE database = current_database()),"
        " (SELECT array_agg(pubname::text) FROM pg_publication)"
    ).fetchall()
    assert (slots, publications) == ([slot], ["mine"])
