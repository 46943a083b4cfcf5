"""A MariaDB and a MySQL for all tests of this directory, and databases in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from headwater.testing.mariadb import RealMariaDB
from headwater.testing.mysql import RealMySQL
from needs import need, need_mysql

SETTINGS = {"sql_mode": "", "sync_binlog": "0", "max_connections": "200"}
_numbers = itertools.count()


@pytest.fixture(scope="session", params=[RealMariaDB, RealMySQL], ids=lambda kind: f"on-{kind.name.lower()}")
def kind(request: pytest.FixtureRequest) -> type[RealMariaDB]:
    """Which server a test runs on."""
    found: type[RealMariaDB] = request.param
    if found is RealMySQL:
        need_mysql()
    else:
        need("mariadbd", "mariadb-server")
    return found


@pytest.fixture(scope="session")
def server(kind: type[RealMariaDB]) -> Iterator[RealMariaDB]:
    with kind(settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def is_mysql(kind: type[RealMariaDB]) -> bool:
    """Whether it is MySQL and not MariaDB."""
    return kind is RealMySQL


def numbers(first: int, last: int) -> str:
    """Return what stands behind FROM and has the numbers `seq` in it."""
    zeros = f"concat('[0', repeat(',0', {last - first}), ']')"
    series = f"JSON_TABLE({zeros}, '$[*]' COLUMNS (place FOR ORDINALITY)) AS series"
    return f"(SELECT place + {first - 1} AS seq FROM {series}) AS numbers"


@pytest.fixture
def url(server: RealMariaDB) -> Iterator[str]:
    """The address of an empty database."""
    name = f"shop{next(_numbers)}"
    yield server.database(name)
    server.run(f"DROP DATABASE {name}")


class Session:
    """A session of an application."""

    def __init__(self, url: str) -> None:
        parts = url.partition("://")[2]
        login, _, place = parts.partition("@")
        user, _, password = login.partition(":")
        where, _, self.database = place.partition("?")[0].partition("/")
        host, _, port = where.partition(":")
        self.connection: Any = pymysql.connect(
            host=host,
            port=int(port),
            user=user,
            password=password,
            database=self.database,
            charset="utf8mb4",
            autocommit=True,
        )

    def __call__(self, statement: str, *values: Any) -> tuple[tuple[Any, ...], ...]:
        """Run a statement, and return the rows of its answer."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return tuple(cursor.fetchall())


@pytest.fixture
def sql(url: str) -> Iterator[Session]:
    session = Session(url)
    yield session
    session.connection.close()
