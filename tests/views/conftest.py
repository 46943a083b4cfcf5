"""The databases that view stores are tested on, one of each for all tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.testing.postgres import RealPostgres
from headwater.testing.redis import RealRedis
from headwater.views import ViewStore, open_store
from needs import need

from .views_contract import Open

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    if not RealPostgres.installed():
        need("initdb", "postgresql")
    # What a test kills is a process, never the machine: nothing has to wait for the disk.
    with RealPostgres(settings={"fsync": "off"}) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: RealPostgres) -> str:
    """The address of an empty database; a new one each time would be a thousand files to make and remove."""
    postgres.psql("DROP SCHEMA IF EXISTS headwater CASCADE")
    return postgres.url()


@pytest.fixture(scope="session")
def redis() -> Iterator[RealRedis]:
    need("redis-server", "redis-server")
    with RealRedis(settings={"databases": "1000"}) as server:
        yield server


@pytest.fixture
def redis_url(redis: RealRedis) -> str:
    return redis.url(next(_numbers))


@pytest.fixture
def reopen(url: str) -> Iterator[Open]:
    opened: list[ViewStore] = []

    def reopen(**options: Any) -> ViewStore:
        opened.append(open_store(url, **options))
        return opened[-1]

    yield reopen
    for store in opened:
        store.close()
