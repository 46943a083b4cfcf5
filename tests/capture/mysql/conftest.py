"""A MariaDB for all tests of this directory, and databases in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from headwater.testing.mariadb import RealMariaDB
from needs import need

SETTINGS = {"sql_mode": "", "sync_binlog": "0", "max_connections": "200"}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[RealMariaDB]:
    need("mariadbd", "mariadb-server")
    with RealMariaDB(settings=SETTINGS) as running:
        yield running


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
