"""What goes wrong with a real Postgres, and the sentences that say what to do."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from headwater.capture.postgres import stream
from headwater.capture.source import CaptureError, TryAgain
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import free_port
from needs import need

from .follower import Follower, rows_of

pytestmark = pytest.mark.real

Sql = psycopg.Connection[tuple[Any, ...]]
USERS = "CREATE TABLE users (id int PRIMARY KEY, name text, big text)"


def follow_once(url: str, tables: list[str]) -> None:
    with Follower(url, tables) as follower:
        follower.step()


def as_user(server: RealPostgres, url: str, user: str, password: str = "secret") -> str:
    return server.url(url.rpartition("/")[2], user=user, password=password)


@pytest.fixture
def clerk(sql: Sql) -> Any:
    """A user that owns nothing."""
    sql.execute("CREATE ROLE clerk LOGIN PASSWORD 'secret'")
    yield "clerk"
    sql.execute("DROP OWNED BY clerk; DROP ROLE clerk")


def test_a_wrong_password_or_address(server: RealPostgres, url: str, sql: Sql) -> None:
    with pytest.raises(
        CaptureError, match=r"password authentication failed.*check user and password"
    ) as told:
        follow_once(as_user(server, url, "headwater", "wrong"), ["users"])
    assert not isinstance(told.value, TryAgain)
    assert "wrong" not in str(told.value)
    with pytest.raises(CaptureError, match=r'database "nowhere" does not exist.*check the database'):
        follow_once(server.url("nowhere"), ["users"])
    with pytest.raises(CaptureError, match=r"invalid URI query parameter.*libpq"):
        follow_once(f"{url}?sslmod=require", ["users"])
    with pytest.raises(TryAgain, match=r"does not answer.*Connection refused.*check that it runs"):
        follow_once(f"postgresql://a:b@127.0.0.1:{free_port()}/shop", ["users"])


def test_missing_privileges(server: RealPostgres, url: str, sql: Sql, clerk: str) -> None:
    sql.execute(USERS)
    address = as_user(server, url, clerk)
    with pytest.raises(CaptureError, match="ALTER ROLE clerk REPLICATION"):
        follow_once(address, ["users"])
    sql.execute("ALTER ROLE clerk REPLICATION")
    with pytest.raises(
        CaptureError, match=r"clerk may not read public\.users: GRANT SELECT ON public\.users"
    ):
        follow_once(address, ["users"])
    sql.execute("GRANT SELECT ON users TO clerk")
    with pytest.raises(CaptureError, match=r"owner run `CREATE PUBLICATION .*publication=headwater_test"):
        follow_once(address, ["users"])
    # What the sentence says is enough.
    sql.execute(
        "CREATE PUBLICATION headwater_test FOR TABLE ONLY public.users WITH (publish_via_partition_root = true)"
    )
    sql.execute("INSERT INTO users VALUES (1, 'a')")
    with Follower(f"{address}?publication=headwater_test", ["users"]) as follower:
        follower.settle()
        assert follower.rows == rows_of(url, ["users"])


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("SELECT 1", r"there is no table public\.t in"),
        ("CREATE TABLE t (id int)", r"public\.t has no primary key.*ADD PRIMARY KEY"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
            r"REPLICA IDENTITY NOTHING.*REPLICA IDENTITY DEFAULT",
        ),
        ("CREATE VIEW t AS SELECT 1 AS id", r"public\.t is a view: capture the tables"),
        ("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", r"unlogged table.*SET LOGGED"),
    ],
)
def test_tables_that_cannot_be_captured(url: str, sql: Sql, made: str, told: str) -> None:
    sql.execute(made.encode())
    with pytest.raises(CaptureError, match=told):
        follow_once(url, ["t"])
    # An application must not find its updates refused because of us.
    assert sql.execute("SELECT pubname FROM pg_publication").fetchall() == []


def test_a_given_publication_has_to_tell_everything(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    sql.execute("CREATE TABLE others (id int PRIMARY KEY)")
    for publication, told in (
        ("FOR TABLE users WITH (publish = 'insert')", "leaves out some kinds of changes"),
        ("FOR TABLE others", r"does not have public\.users: ALTER PUBLICATION mine ADD TABLE public\.users"),
        ("FOR TABLE users (id)", "leaves out rows or columns of users"),
        ("FOR TABLE users WHERE (id > 5)", "leaves out rows or columns of users"),
    ):
        sql.execute(f"CREATE PUBLICATION mine {publication}".encode())
        with pytest.raises(CaptureError, match=told):
            follow_once(f"{url}?publication=mine", ["users"])
        sql.execute("DROP PUBLICATION mine")


def test_a_slot_that_is_gone_or_somebody_elses(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        with pytest.raises(TryAgain, match=r"slot headwater_test .* is in use by the server's process"):
            follow_once(url, ["users"])
        follower.close()
        _drop_slot(sql)
        with pytest.raises(CaptureError, match=r"headwater_test .* is gone.*headwater capture snapshot"):
            follower.step()
        follower.close()
        sql.execute("SELECT pg_create_logical_replication_slot('headwater_test', 'pgoutput')")
        with pytest.raises(CaptureError, match=r"made anew.*headwater capture snapshot"):
            follower.step()
        # A new snapshot is the way out.
        follower.close()
        follower.position = None
        sql.execute("INSERT INTO users VALUES (1, 'a')")
        follower.settle()
        assert follower.rows == rows_of(url, ["users"])


def test_a_slot_that_the_server_gave_up(server: RealPostgres, url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        follower.close()
        sql.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        sql.execute("SELECT pg_reload_conf()")
        try:
            for _ in range(3):
                sql.execute("INSERT INTO users SELECT 1, 'a' WHERE false; SELECT pg_switch_wal()")
                sql.execute("CHECKPOINT")
                sql.execute("CREATE TABLE IF NOT EXISTS filler AS SELECT generate_series(1, 100000)")
                sql.execute("DROP TABLE filler")
            sql.execute("CHECKPOINT")
            with pytest.raises(
                CaptureError, match=r"invalidated the slot.*max_slot_wal_keep_size keeps more"
            ):
                follower.step()
        finally:
            sql.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            sql.execute("SELECT pg_reload_conf()")


def test_a_publication_that_is_gone(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(f"{url}?heartbeat=0.2", ["users"]) as follower:
        follower.settle()
        sql.execute("DROP PUBLICATION headwater_test")
        with pytest.raises(TryAgain, match="publication"):
            follower.until(lambda: False, 10)
        follower.close()
        _await_free_slot(sql)
        with pytest.raises(
            CaptureError, match=r"publication headwater_test .* is gone.*headwater capture snapshot"
        ):
            follower.step()


@pytest.mark.parametrize("address", ["", "&publication=headwater_test"], ids=["ours", "given"])
@pytest.mark.parametrize(
    ("happens", "told"),
    [
        ("DROP TABLE users", r"does not have public\.users"),
        ("SET (publish = 'insert')", "leaves out some kinds of changes"),
        ("SET TABLE users WHERE (id > 9)", "leaves out rows or columns of users"),
    ],
)
def test_a_publication_that_is_changed_while_it_is_followed(
    url: str, sql: Sql, address: str, happens: str, told: str
) -> None:
    sql.execute(USERS)
    if address:
        sql.execute(
            "CREATE PUBLICATION headwater_test FOR TABLE users WITH (publish_via_partition_root = true)"
        )
    with Follower(f"{url}?heartbeat=0.2{address}", ["users"]) as follower:
        follower.settle()
        sql.execute(f"ALTER PUBLICATION headwater_test {happens}".encode())
        sql.execute("INSERT INTO users VALUES (1, 'a')")
        sql.execute("UPDATE users SET name = 'b'")
        with pytest.raises(TryAgain, match=told):
            follower.until(lambda: False, 10)
        follower.close()
        _await_free_slot(sql)
        for _ in range(2):  # not mended in silence: changes are missing
            with pytest.raises(CaptureError, match=rf"{told}.*headwater capture snapshot") as error:
                follower.step()
            assert not isinstance(error.value, TryAgain)
            follower.close()
        if not address:
            follower.position = None
            follower.rows.clear()
            follower.settle()
            sql.execute("UPDATE users SET name = 'c'")
            follower.settle()
            assert follower.rows == rows_of(url, ["users"])


def test_a_server_that_was_restored_from_a_backup(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        follower.close()
        _await_free_slot(sql)
        follower.position["lsn"] = "7FFF/0"  # as it was before the server's log went back
        with pytest.raises(
            CaptureError, match=r"ends at .*before 7FFF/0.*headwater capture snapshot"
        ) as told:
            follower.step()
        assert not isinstance(told.value, TryAgain)


def test_rows_that_a_policy_hides_are_not_left_out_in_silence(
    server: RealPostgres, url: str, sql: Sql, clerk: str
) -> None:
    sql.execute(USERS)
    sql.execute("INSERT INTO users VALUES (1, 'clerk'), (2, 'others')")
    sql.execute("ALTER TABLE users ENABLE ROW LEVEL SECURITY")
    sql.execute("CREATE POLICY own ON users FOR SELECT USING (name = current_user)")
    sql.execute("ALTER ROLE clerk REPLICATION")
    sql.execute("GRANT SELECT ON users TO clerk")
    sql.execute("CREATE PUBLICATION shop FOR TABLE users WITH (publish_via_partition_root = true)")
    address = f"{as_user(server, url, clerk)}?publication=shop"
    with pytest.raises(CaptureError, match=r"leave out rows that a policy hides.*BYPASSRLS") as told:
        follow_once(address, ["users"])
    assert not isinstance(told.value, TryAgain)
    _await_free_slot(sql)
    sql.execute("ALTER ROLE clerk BYPASSRLS")
    with Follower(address, ["users"]) as follower:
        follower.settle()
        assert len(follower.rows["public.users"]) == 2


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        ("DROP TABLE users", r"there is no table public\.users"),
        ("ALTER TABLE users RENAME TO people", r"there is no table public\.users"),
        ("ALTER TABLE users DROP CONSTRAINT users_pkey", "has no primary key"),
    ],
)
def test_a_table_that_goes_while_it_is_followed(url: str, sql: Sql, happens: str, told: str) -> None:
    sql.execute(USERS)
    with Follower(f"{url}?heartbeat=0.2", ["users"]) as follower:
        follower.settle()
        sql.execute(happens.encode())
        if "CONSTRAINT" in happens:
            sql.execute("INSERT INTO users VALUES (1, 'a')")
        with pytest.raises(CaptureError):
            follower.until(lambda: False, 10)
        follower.close()
        _await_free_slot(sql)
        with pytest.raises(CaptureError, match=told) as error:
            follower.step()
        assert not isinstance(error.value, TryAgain)


def test_a_cut_connection_is_tried_again(url: str, sql: Sql) -> None:
    sql.execute(USERS)
    with Follower(url, ["users"]) as follower:
        follower.settle()
        sql.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()"
        )
        with pytest.raises(TryAgain, match="broke off while following its log"):
            follower.until(lambda: False, 10)
        follower.close()
        _await_free_slot(sql)
        sql.execute("INSERT INTO users VALUES (1, 'a')")
        follower.settle()
        assert follower.rows == rows_of(url, ["users"])


class Cable:
    """A way to a server that can be cut so that neither end notices."""

    def __init__(self, port: int) -> None:
        self.is_cut = threading.Event()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if not self.is_cut.is_set():
                    other.sendall(data)


@pytest.mark.parametrize("server", [15], indirect=True, ids=["on-postgres-15"])
def test_a_server_that_is_not_heard_of_any_more(
    server: RealPostgres, url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_SILENCE_SECONDS", 0.5)
    sql.execute(USERS)
    cable = Cable(server.port)
    try:
        with Follower(
            f"{url.replace(str(server.port), str(cable.port))}?heartbeat=0.2", ["users"]
        ) as follower:
            follower.settle()
            cable.is_cut.set()
            with pytest.raises(TryAgain, match="the network may be cut"):
                follower.until(lambda: False, 20)
    finally:
        cable.close()


def test_settings_of_the_server() -> None:
    need("psql", "postgresql")
    with RealPostgres(settings={"fsync": "off", "wal_level": "replica"}) as server:
        url = server.database("shop")
        with psycopg.connect(url, autocommit=True) as sql:
            sql.execute(USERS)
        with pytest.raises(CaptureError, match=r"wal_level = replica.*ALTER SYSTEM SET wal_level = logical"):
            follow_once(url, ["users"])
        server.settings = {"fsync": "off", "wal_level": "logical", "max_replication_slots": "1"}
        server.restart()
        with psycopg.connect(url, autocommit=True) as sql:
            sql.execute("SELECT pg_create_logical_replication_slot('old', 'pgoutput')")
        with pytest.raises(
            CaptureError, match=r"no replication slot left.*max_replication_slots.*inactive are: old"
        ):
            follow_once(url, ["users"])
        with psycopg.connect(url, autocommit=True) as sql:
            sql.execute("SELECT pg_drop_replication_slot('old')")
            _restart_in_the_middle_of_a_large_transaction(server, url)


def _restart_in_the_middle_of_a_large_transaction(server: RealPostgres, url: str) -> None:
    with Follower(url, ["users"]) as follower:
        follower.settle()
        with psycopg.connect(url, autocommit=True) as sql:
            sql.execute("INSERT INTO users SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
        follower.until(lambda: len(follower.changes) >= 4000)
        follower.acknowledge()
        server.kill()
        with pytest.raises(TryAgain, match=r"broke off|does not answer"):
            follower.until(lambda: False, 30)
        follower.close()
        with pytest.raises(TryAgain, match="does not answer"):
            follower.step()
        server.start()
        follower.close()
        follower.retrying = True
        follower.until(lambda: len(follower.changes) == 20000)
        follower.settle()
        assert follower.rows == rows_of(url, ["users"])


def _drop_slot(sql: Sql) -> None:
    _await_free_slot(sql)
    sql.execute("SELECT pg_drop_replication_slot('headwater_test')")


def _await_free_slot(sql: Sql) -> None:
    deadline = time.monotonic() + 20
    while sql.execute(
        "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
    ).fetchall():
        assert time.monotonic() < deadline
        time.sleep(0.01)
