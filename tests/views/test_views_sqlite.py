"""The SQLite store: the contract, its bounded feed, and files that are not one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from views_contract import Open, StoreContract, row

from headwater.views import Change, TokenGone, ViewDefinition, ViewError, ViewStore, open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/views.db"


@pytest.fixture
def reopen(url: str) -> Iterator[Open]:
    opened: list[ViewStore] = []

    def reopen() -> ViewStore:
        opened.append(open_store(url))
        return opened[-1]

    yield reopen
    for store in opened:
        store.close()


class TestSqliteStore(StoreContract):
    """SQLite keeps the contract."""


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
            db.execute("INSERT INTO rows VALUES (1, 'DE', '{}', 2)")


@pytest.mark.parametrize(
    "url",
    ["views.db", "sqlite://", "sqlite:///", "sqlite://host/views.db", "postgresql://x/y", "sqlite:///a?b=c"],
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
