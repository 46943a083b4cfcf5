"""Stores kept in step with a captured table, whatever is killed; built anew while changes come."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from redis import Redis

from clients.access.certificates import Authority
from headwater.derived.cache_redis import RedisCache
from headwater.derived.change import Position
from headwater.derived.errors import DerivedError, Switched, TryAgain
from headwater.testing.process import BrokerProcess, free_port
from headwater.testing.redis import RealRedis

from .conftest import application
from .parquet import ask
from .running import listed, made, ready, run, started, verified, written_to
from .store_contract import Opening, StoreContract, put, row_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

FILES = ["words", "profiles", "files"]


class TestRedisCache(StoreContract):
    @pytest.fixture
    def opening(self, redis: RealRedis, table: str) -> Opening:
        return lambda: RedisCache(redis.url(), f"cache:{table}")

    def test_a_key_that_another_program_uses(self, redis: RealRedis, table: str) -> None:
        client = Redis.from_url(redis.url())
        client.set(f"taken:{table}", "x")
        client.close()
        cache = RedisCache(redis.url(), f"taken:{table}")
        with pytest.raises(DerivedError, match="see whether another program uses the key"):
            cache.apply({"1": "{}"}, None, Position("articles"))
        cache.close()

    def test_a_redis_that_throws_keys_out_throws_the_position_out_too(self, opening: Opening) -> None:
        store = opening()
        put(store, {1: row_of(1)}, 1)
        base = store.position()
        assert base is not None
        assert isinstance(store, RedisCache)
        store._client.delete(store._name)
        with pytest.raises(Switched):
            store.apply({}, base, base.moved({0: 2}))
        assert store.position() is None

    def test_a_redis_that_does_not_let_us_in(self) -> None:
        with RealRedis(settings={"requirepass": "secret"}) as guarded:
            put(RedisCache(guarded.url(password="secret"), "c"), {1: row_of(1)}, 1)
            for url in (guarded.url(), guarded.url(password="wrong")):
                with pytest.raises(DerivedError, match="refuses the password") as raised:
                    RedisCache(url, "c").position()
                assert not isinstance(raised.value, TryAgain)
                assert "wrong" not in str(raised.value)
        with pytest.raises(TryAgain, match="does not answer"):
            RedisCache(guarded.url(), "c").position()


def test_an_encrypted_redis(openssl: str, tmp_path: Path) -> None:
    ours, foreign = (Authority(openssl, tmp_path, name) for name in ("ours", "foreign"))
    files, port = ours.issue("server"), free_port()
    settings = {
        "tls-port": str(port),
        "tls-cert-file": str(files.cert),
        "tls-key-file": str(files.key),
        "tls-ca-cert-file": str(ours.cert),
        "tls-auth-clients": "no",
    }
    with RealRedis(settings=settings):
        url = f"rediss://127.0.0.1:{port}/0"
        trusting = RedisCache(f"{url}?ssl_ca_certs={ours.cert}", "c")
        put(trusting, {1: row_of(1)}, 1)
        assert trusting.count() == 1
        trusting.close()
        for query in (f"?ssl_ca_certs={foreign.cert}", f"?ssl_ca_certs={tmp_path}/none.pem", ""):
            with pytest.raises(DerivedError, match=r"cannot be trusted .* \?ssl_ca_certs=FILE") as raised:
                RedisCache(url + query, "c").position()
            assert not isinstance(raised.value, TryAgain)


def test_stores_are_filled_searched_and_read(broker: BrokerProcess, app_file: Path, tmp_path: Path) -> None:
    address = f"--broker=kafka://{broker.bootstrap}"
    made(tmp_path / "shop.db", 50).close()
    run("capture", "run", app_file, address, "--once")
    run("derived", "run", app_file, address, f"--data={tmp_path}", "--once")
    found = json.loads(
        run("index", "search", "words", "example 7 age:[5 TO 9]", f"--data={tmp_path}", "--limit=1").stdout
    )
    assert (found["key"], found["row"]) == ("7", {"id": 7, "email": "user 7 example", "age": 7})
    assert json.loads(run("cache", "get", "profiles", "7", f"--data={tmp_path}").stdout) == found["row"]
    run("cache", "get", "profiles", "99", f"--data={tmp_path}", status=1)
    counted = ask(
        f"SELECT count(*), sum(age) FROM read_parquet('{tmp_path}/derived/files/current/*.parquet')"
    )
    assert counted == [(50, 1225)]
    stores = listed(app_file, address, f"--data={tmp_path}")
    assert [(row["store"], row["rows"], row["behind"]) for row in stores] == [
        ("words", 50, 0), ("profiles", 50, 0), ("files", 50, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("store", "boundaries"),
    [
        ("words", ["before_apply:2", "after_apply:1", "after_apply:4"]),
        ("profiles", ["before_apply:2", "after_apply:1", "after_apply:4"]),
        ("files", ["before_link:1", "before_apply:2", "after_apply:1", "before_link:3"]),
    ],
)
def test_killed_under_load(
    broker: BrokerProcess, tmp_path: Path, table: str, store: str, boundaries: list[str]
) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    app_file = tmp_path / "shop.py"
    app_file.write_text(application(tmp_path, table, store))
    made(tmp_path / "shop.db", 300).close()
    with started("capture", "run", app_file, address), written_to(tmp_path / "shop.db") as count:
        for where in boundaries:
            kill_at = f"derived.{where}"
            with started("derived", "run", app_file, address, data, HEADWATER_KILL_AT=kill_at) as process:
                assert process.wait(60) == -signal.SIGKILL
        with started("derived", "run", app_file, address, data) as process:
            ready(process)
            time.sleep(0.5)
            process.kill()
            process.wait()
    assert count[0] > 100
    run("capture", "run", app_file, address, "--once")
    run("derived", "run", app_file, address, data, "--once")
    [said] = verified(app_file, address, data, "--store", store)
    assert said["equal"], said
    assert said["rows"] > 100


def test_built_anew_while_changes_come(broker: BrokerProcess, app_file: Path, tmp_path: Path) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    made(tmp_path / "shop.db", 300).close()
    with (
        started("capture", "run", app_file, address) as capture,
        written_to(tmp_path / "shop.db"),
        started("derived", "run", app_file, address, data) as process,
    ):
        ready(capture)
        ready(process)
        # What is in the stores and not in the log is gone afterwards.
        with sqlite3.connect(tmp_path / "derived" / "profiles.db", timeout=30) as cache:
            cache.execute("INSERT INTO rows VALUES ('ghost', '{}')")
        cache.close()
        for name in FILES:
            assert "built anew" in run("derived", "rebuild", app_file, name, address, data).stderr
        # What is on its way is no difference.
        assert verified(app_file, address, data, "--store", "profiles", "--wait", "2")[0]["equal"]
        time.sleep(0.5)
        assert process.poll() is None
    run("capture", "run", app_file, address, "--once")
    run("derived", "run", app_file, address, data, "--once")
    for name in FILES:
        [said] = verified(app_file, address, data, "--store", name)
        assert said["equal"], said


def test_a_rebuild_that_is_killed_leaves_the_old_one(
    broker: BrokerProcess, app_file: Path, tmp_path: Path
) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    made(tmp_path / "shop.db", 30).close()
    run("capture", "run", app_file, address, "--once")
    run("derived", "run", app_file, address, data, "--once")
    for name in FILES:
        where = "derived.before_switch"
        with started("derived", "rebuild", app_file, name, address, data, HEADWATER_KILL_AT=where) as process:
            assert process.wait(60) == -signal.SIGKILL
        [said] = verified(app_file, address, data, "--store", name)
        assert (said["equal"], said["rows"]) == (True, 30)
        run("derived", "rebuild", app_file, name, address, data)


def test_the_broker_is_killed(app_file: Path, tmp_path: Path) -> None:
    data = f"--data={tmp_path}"
    made(tmp_path / "shop.db", 50).close()
    with BrokerProcess(tmp_path / "broker") as broker:
        address = f"--broker=kafka://{broker.bootstrap}"
        with started("derived", "run", app_file, address, data) as process:
            ready(process)  # the topic is not there yet, and is waited for
            run("capture", "run", app_file, address, "--once")
            broker.kill()
            time.sleep(0.5)
            broker.start()
            shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
            shop.execute("DELETE FROM users WHERE id = 7")
            shop.close()
            run("capture", "run", app_file, address, "--once")
            deadline = time.monotonic() + 60
            while any(row["behind"] != 0 for row in listed(app_file, address, data)):
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.2)
        for row in listed(app_file, address, data):
            assert (row["rows"], row["unreadable"]) == (49, 0)


def test_redis_is_killed_and_so_is_the_follower(
    broker: BrokerProcess, tmp_path: Path, table: str, redis: RealRedis
) -> None:
    app_file = tmp_path / "shop.py"
    with RealRedis(tmp_path / "redis") as own:
        app_file.write_text(
            f"""
from headwater import App

app = App("shop{table}")
app.table("{table}", key="id", source="sqlite:///{tmp_path}/shop.db#users")
app.cache("profiles", of="{table}", url="{own.url()}")
"""
        )
        address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
        made(tmp_path / "shop.db", 300).close()
        with started("capture", "run", app_file, address), written_to(tmp_path / "shop.db"):
            where = "derived.after_apply:3"
            with started("derived", "run", app_file, address, data, HEADWATER_KILL_AT=where) as process:
                assert process.wait(60) == -signal.SIGKILL
            with started("derived", "run", app_file, address, data) as process:
                ready(process)
                time.sleep(0.3)
                own.kill()
                time.sleep(0.7)
                own.start()
                time.sleep(1)
                assert process.poll() is None, "a Redis that comes back ends nothing"
                process.kill()
                process.wait()
            run("derived", "rebuild", app_file, "profiles", address, data)
        run("capture", "run", app_file, address, "--once")
        run("derived", "run", app_file, address, data, "--once")
        [said] = verified(app_file, address, data, "--store", "profiles")
        assert said["equal"], said
        got = run("cache", "get", "profiles", "no such row", "--url", own.url(), status=1)
        assert "has no row" in got.stderr


def test_differences_of_every_kind_are_found(broker: BrokerProcess, app_file: Path, tmp_path: Path) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    shop = made(tmp_path / "shop.db", 2000)
    run("capture", "run", app_file, address, "--once")
    run("derived", "run", app_file, address, data, "--once")
    [said] = verified(app_file, address)
    assert said["equal"]
    for name in ("profiles", "words", "files"):
        assert verified(app_file, address, data, "--store", name)[0]["equal"]
    # Nobody captures them.
    shop.execute("DELETE FROM users WHERE id = 3")
    shop.execute("UPDATE users SET email = 'other', age = 1 WHERE id = 1999")
    shop.execute("INSERT INTO users VALUES (5000, 'new', NULL)")
    shop.close()
    expected = [
        {
            "kind": "different",
            "key": "1999",
            "columns": {"email": ["other", "user 1999 example"], "age": [1, 19]},
        },
        {"kind": "extra", "key": "3", "columns": {}},
        {"kind": "missing", "key": "5000", "columns": {}},
    ]
    topic = verified(app_file, address, status=1)
    stores = [verified(app_file, address, data, "--store", name, status=1) for name in FILES]
    for [said] in (topic, *stores):
        assert said["first"] == expected, said
        assert [said[kind] for kind in ("rows", "missing", "extra", "different", "changing")] == [
            2000,
            1,
            1,
            1,
            0,
        ]
