"""The SQLite store: the contract, its bounded feed, and files that are not one."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.testing.clock import ManualClock
from headwater.views import (
    Change,
    Query,
    StoredChange,
    StoredRow,
    TokenGone,
    ViewDefinition,
    ViewError,
    ViewStore,
    open_store,
)
from headwater.views.sqlite.select import select

from .views_contract import Open, StoreContract, row
from .views_feature_contract import FeatureContract

VERSION_1 = """
PRAGMA application_id = 0x48576174;
PRAGMA user_version = 1;
CREATE TABLE store (identity TEXT NOT NULL);
CREATE TABLE views (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
    token INTEGER NOT NULL DEFAULT 0, floor INTEGER NOT NULL DEFAULT 0, rows INTEGER NOT NULL DEFAULT 0,
    taken INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE rows (
    view INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL, token INTEGER NOT NULL,
    PRIMARY KEY (view, key)
) WITHOUT ROWID;
CREATE TABLE changes (
    view INTEGER NOT NULL, token INTEGER NOT NULL, key TEXT NOT NULL, row TEXT,
    PRIMARY KEY (view, token)
) WITHOUT ROWID;
CREATE TABLE epochs (query TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE statuses (name TEXT PRIMARY KEY, status TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE deliveries (
    view INTEGER NOT NULL, token INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, next_at REAL NOT NULL DEFAULT 0, error TEXT,
    dead INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, token)
) WITHOUT ROWID;
CREATE INDEX deliveries_by_time ON deliveries (view, dead, next_at);
INSERT INTO store VALUES ('abc');
INSERT INTO views (id, name, key, token, rows) VALUES (1, 'sales', '["country"]', 1, 1);
INSERT INTO rows VALUES (1, 'DE', '{"n": 1}', 1);
INSERT INTO changes VALUES (1, 1, 'DE', '{"n": 1}');
INSERT INTO epochs VALUES ('q', 0);
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/views.db"


@pytest.fixture
def reopen(url: str) -> Iterator[Open]:
    opened: list[ViewStore] = []

    def reopen(**options: Any) -> ViewStore:
        opened.append(open_store(url, **options))
        return opened[-1]

    yield reopen
    for store in opened:
        store.close()


class TestSqliteStore(StoreContract):
    """SQLite keeps the contract."""


class TestSqliteFeatures(FeatureContract):
    """SQLite keeps the contract of what a view may ask for."""


def plan(store: ViewStore, query: Query) -> str:
    [view] = store.definitions()
    with store._file.read() as db:  # type: ignore[attr-defined]
        [number] = db.execute("SELECT id FROM views").fetchone()
        sql, parameters = select(number, query, view.indexes)
        return " ".join(step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))


def test_an_index_is_used_instead_of_a_scan(url: str) -> None:
    with open_store(url) as store:
        store.define(ViewDefinition("sales", ("id",), indexes=("country", "n")))
        for query in (
            Query(where={"country": "DE"}),
            Query(where={"n": "7"}),
            Query(where={"n": "true"}),
            Query(order="n"),
            Query(order="country", descending=True),
        ):
            used = f"field 1 {query.order or next(iter(query.where))}"
            assert used in plan(store, query), query
        assert "field" not in plan(store, Query(where={"city": "Bonn"}))
        store.define(ViewDefinition("sales", ("id",)))
        assert "field" not in plan(store, Query(where={"country": "DE"}))


def test_a_file_of_the_first_version_is_brought_up_to_date(url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "views.db")) as db:
        db.executescript(VERSION_1)
    clock = ManualClock(1_700_000_000_000)
    with open_store(url, clock=clock) as store:
        assert store.rows("sales") == [StoredRow("DE", row(n=1), 1)]
        store.define(ViewDefinition("sales", ("country",), 1000, ("n",), 1000))
        clock.advance(10)
        assert store.commit("q", 1, "sales", [Change("DE", row(n=2))])
        assert [version.row for version in store.history("sales", "DE")] == [row(n=2), row(n=1)]
    with open_store(url) as store:
        assert store.changes("sales", 1) == [StoredChange(2, "DE", row(n=2))]


def test_the_feed_is_bounded_and_says_where_it_starts(url: str) -> None:
    with open_store(url, keep_changes=10) as store:
        store.define(ViewDefinition("sales", ("country",)))
        for epoch in range(5):
            store.commit("q", epoch, "sales", [Change(f"{epoch}{n}", row(n=n)) for n in range(4)])
        with pytest.raises(TokenGone):
            store.changes("sales", 9)
        assert [change.token for change in store.changes("sales", 10)] == list(range(11, 21))
        assert store.count("sales") == 20


def test_a_commit_waits_for_the_disk(url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        store.define(ViewDefinition("sales", ("country",)))
        modes = [
            store._file._writer.execute(f"PRAGMA {name}").fetchone()[0]  # type: ignore[attr-defined]
            for name in ("journal_mode", "synchronous")
        ]
    assert modes == ["wal", 2]


def test_reading_does_not_wait_for_a_writer(url: str) -> None:
    with open_store(url) as store, open_store(url) as other:
        store.define(ViewDefinition("sales", ("country",)))
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        with other._file.write() as db:  # type: ignore[attr-defined]
            db.execute("DELETE FROM rows")
            assert [found.key for found in store.rows("sales")] == ["DE"]
            db.execute("INSERT INTO rows VALUES (1, 'DE', '{}', 2, 0, 0)")


@pytest.mark.parametrize(
    "url",
    [
        "views.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/v.db",
        "postgresql://x",
        "redis://",
        "sqlite:///a?b=c",
    ],
)
def test_an_address_that_is_none_says_how_one_looks(url: str) -> None:
    with pytest.raises(ViewError, match=r"write sqlite:///PATH, like sqlite:///views.db"):
        open_store(url)


def test_another_programs_database_is_left_alone(url: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "views.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(ViewError, match="is another program's database"):
        open_store(url)


def test_a_file_from_a_later_version_is_left_alone(url: str, tmp_path: Path) -> None:
    open_store(url).close()
    with sqlite3.connect(tmp_path / "views.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ViewError, match="later version of Headwater: upgrade"):
        open_store(url)


def test_a_file_that_is_no_database(url: str, tmp_path: Path) -> None:
    (tmp_path / "views.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ViewError, match=r"cannot open .*views.db as a view store: file is not a database"):
        open_store(url)


def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    store.close()
    with pytest.raises(ViewError, match="is closed"):
        store.define(ViewDefinition("sales", ("country",)))


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_new_file_that_another_process_has_locked_is_waited_for(
    url: str, tmp_path: Path, lock: str
) -> None:
    connection = sqlite3.connect(tmp_path / "views.db", isolation_level=None, check_same_thread=False)
    with closing(connection) as other:
        other.execute(f"BEGIN {lock}")
        release = threading.Timer(0.1, other.execute, ["ROLLBACK"])
        release.start()
        open_store(url).close()
        release.join()


def test_a_file_that_stays_locked_is_an_error(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.views.sqlite.file._BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(tmp_path / "views.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ViewError, match=r"cannot open .*views.db as a view store: database is locked"):
            open_store(url)
