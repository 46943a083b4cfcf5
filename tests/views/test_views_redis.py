"""The Redis store on a real server: the contracts, and what only a server can do to its clients."""

from __future__ import annotations

import logging
import time

import pytest
import redis as client
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from headwater.testing.redis import RealRedis
from headwater.views import Change, StoredRow, StoreUnavailable, ViewDefinition, open_store

from .views_contract import StoreContract, row
from .views_crash_contract import CrashContract, check_whole, writer
from .views_feature_contract import FeatureContract
from .views_model import StoreMachine

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SALES = ViewDefinition("sales", ("country",))


@pytest.fixture
def url(redis_url: str) -> str:
    return redis_url


class TestRedisStore(StoreContract):
    """Redis keeps the contract."""


class TestRedisFeatures(FeatureContract):
    """Redis keeps the contract of what a view may ask for."""


class TestRedisCrash(CrashContract):
    """Redis keeps what it said."""

    rounds = 2


def test_against_a_dictionary(url: str) -> None:
    class RedisMachine(StoreMachine):
        def new_store(self) -> str:
            with client.Redis.from_url(url) as connection:
                connection.flushdb()
            return url

    run_state_machine_as_test(
        RedisMachine, settings=settings(max_examples=12, stateful_step_count=25, deadline=None)
    )


def test_the_server_is_killed_in_the_middle_of_commits() -> None:
    with RealRedis() as server:
        process = writer(server.url(), "q")
        assert process.stdout is not None
        said = int(process.stdout.readline())
        time.sleep(0.05)
        server.kill()
        rest = process.stdout.read().split("\n")
        process.stdout.close()
        process.wait()
        server.start()
        check_whole(server.url(), "q", max([said, *map(int, rest[:-1])]))


def test_a_server_started_again_is_found_again() -> None:
    with RealRedis() as server, open_store(server.url()) as store:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        server.restart()
        assert store.rows("sales") == [StoredRow("DE", row(n=1), 1)]
        server.restart()
        assert store.commit("q", 1, "sales", [Change("DE", row(n=2))])
        server.stop()
        with pytest.raises(StoreUnavailable, match="Redis runs there"):
            store.rows("sales")


def test_what_keeps_us_out_is_told_with_a_fix_and_without_the_password() -> None:
    with RealRedis(settings={"requirepass": "right"}) as server:
        for password in (None, "hidden"):
            with pytest.raises(StoreUnavailable, match="check the user and the password") as caught:
                open_store(server.url(password=password))
            assert "hidden" not in str(caught.value)
        open_store(server.url(password="right")).close()
    with pytest.raises(StoreUnavailable, match="check the host and the port"):
        open_store("redis://127.0.0.1:1/0")


def test_a_server_that_may_lose_commits_or_keys_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    careless = {"appendonly": "no", "maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    with RealRedis(settings=careless) as server, caplog.at_level(logging.WARNING):
        open_store(server.url()).close()
    assert "set appendonly yes and appendfsync always" in caplog.text
    assert "set maxmemory-policy noeviction" in caplog.text


def test_a_store_that_is_safe_is_not_worth_a_word(url: str, caplog: pytest.LogCaptureFixture) -> None:
    open_store(url).close()
    assert caplog.text == ""
