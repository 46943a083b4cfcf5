"""The Postgres store on a real server: the contracts, and what only a server can do to its clients."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from headwater.testing.postgres import RealPostgres
from headwater.views import (
    Change,
    Query,
    StoredRow,
    StoreUnavailable,
    ViewDefinition,
    ViewError,
    open_store,
)
from headwater.views.postgres.select import select
from headwater.views.postgres.staging import copy_text

from .views_contract import StoreContract, row
from .views_crash_contract import CrashContract, check_whole, writer
from .views_feature_contract import FeatureContract
from .views_model import StoreMachine

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SALES = ViewDefinition("sales", ("country",))


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


class TestPostgresStore(StoreContract):
    """Postgres keeps the contract."""


class TestPostgresFeatures(FeatureContract):
    """Postgres keeps the contract of what a view may ask for."""


class TestPostgresCrash(CrashContract):
    """Postgres keeps what it said."""

    rounds = 2


def test_against_a_dictionary(postgres: RealPostgres) -> None:
    url = postgres.url()

    class PostgresMachine(StoreMachine):
        def new_store(self) -> str:
            postgres.psql("DROP SCHEMA IF EXISTS headwater CASCADE")
            return url

    run_state_machine_as_test(
        PostgresMachine, settings=settings(max_examples=8, stateful_step_count=25, deadline=None)
    )


def test_the_server_is_killed_in_the_middle_of_commits() -> None:
    with RealPostgres() as server:
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


def test_a_connection_cut_in_the_middle_of_a_commit_is_made_anew_and_the_commit_made_once(
    postgres: RealPostgres, url: str
) -> None:
    with open_store(url) as store:
        store.define(SALES)
        done = threading.Event()

        def cut() -> None:
            while not done.wait(0.02):
                postgres.psql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'headwater views'"
                    " AND query LIKE '%INTO headwater.changes%'"
                )

        cutting = threading.Thread(target=cut)
        cutting.start()
        committed = 0
        try:
            for epoch in range(20):
                changes = [Change(f"{n:05}", row(n=n, epoch=epoch)) for n in range(1000)]
                try:
                    store.commit("q", epoch, "sales", changes)
                except StoreUnavailable:  # cut twice in a row: the pipeline would start again
                    store.commit("q", epoch, "sales", changes)
                committed += 1
                assert (store.epoch("q"), store.token("sales")) == (epoch, 1000 * committed)
        finally:
            done.set()
            cutting.join()


def test_a_database_started_again_is_found_again() -> None:
    with RealPostgres(settings={"fsync": "off"}) as server, open_store(server.url()) as store:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        server.restart()
        assert store.rows("sales") == [StoredRow("DE", row(n=1), 1)]
        server.restart()
        assert store.commit("q", 1, "sales", [Change("DE", row(n=2))])
        server.restart()
        assert store.version() is not None
        server.stop()
        with pytest.raises(StoreUnavailable, match=r"postgresql://headwater:\*\*\*@.*Postgres runs there"):
            store.rows("sales")
        server.start()
        assert store.row("sales", "DE") == StoredRow("DE", row(n=2), 2)


def test_what_keeps_us_out_is_told_with_a_fix_and_without_the_password(postgres: RealPostgres) -> None:
    with pytest.raises(StoreUnavailable, match="check the user and the password") as caught:
        open_store(postgres.url(password="hidden"))
    assert "hidden" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="make the database with createdb"):
        open_store(postgres.url("nowhere"))
    with pytest.raises(StoreUnavailable, match="check the host and the port"):
        open_store("postgresql://headwater:hidden@127.0.0.1:1/views")
    postgres.psql("DROP SCHEMA IF EXISTS headwater CASCADE; CREATE ROLE guest LOGIN PASSWORD 'guest'")
    with pytest.raises(ViewError, match=r"may not make the schema headwater .*CREATE SCHEMA headwater AUTH"):
        open_store(postgres.url(user="guest", password="guest"))


def test_a_schema_of_a_later_version_is_left_alone(postgres: RealPostgres, url: str) -> None:
    open_store(url).close()
    postgres.psql("UPDATE headwater.store SET version = 99")
    with pytest.raises(ViewError, match="later version of Headwater: upgrade"):
        open_store(url)


def test_an_index_is_used_instead_of_a_scan(postgres: RealPostgres, url: str) -> None:
    with open_store(url) as store:
        store.define(ViewDefinition("sales", ("id",), indexes=("country", "n")))
        rows = [Change(f"{n:05}", row(n=n, country=f"C{n % 500}")) for n in range(10_000)]
        store.commit("q", 0, "sales", rows)
        postgres.psql("ANALYZE headwater.rows_1")
        for query in (
            Query(where={"country": "C7"}),
            Query(where={"n": "7"}),
            Query(order="n", limit=10),
            Query(order="country", descending=True, limit=10),
        ):
            sql, parameters = select(1, query)
            plan = store._database.fetch(f"EXPLAIN {sql}", tuple(parameters))  # type: ignore[attr-defined]
            assert "rows_1_field_" in str(plan), query


def test_nul_which_postgres_cannot_hold_becomes_another_character(url: str) -> None:
    with open_store(url) as store:
        store.define(ViewDefinition("sales", ("id",), indexes=("a",)))
        store.commit("q", 0, "sales", [Change("x\0", '{"a": "\\u0000\\\\u0000"}')])
        assert store.rows("sales") == [StoredRow("x\ufffd", '{"a": "\\ufffd\\\\u0000"}', 1)]
        assert store.row("sales", "x\0") is not None


@pytest.mark.parametrize("key", ["a", "\x1d", "\x1e", "\x1f", "\t\n\r\\", "\\N", ""])
def test_any_key_and_row_come_back_as_they_went(url: str, key: str) -> None:
    text = '{"a": "\\t\\\\ \\u001d",\r\n\t"b": 1}'
    with open_store(url) as store:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change(key, text), Change("other", row(n=1)), Change("gone", None)])
        assert store.row("sales", key) == StoredRow(key, text, 1 if key < "other" else 2)
    assert copy_text([(key, text)]).count("\n") == 1


def test_processes_that_open_a_new_database_at_once_make_it_once(url: str) -> None:
    found: list[str] = []

    def opened() -> None:
        with open_store(url) as store:
            found.append(store.identity)

    threads = [threading.Thread(target=opened) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
