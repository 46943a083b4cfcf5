"""Files that rows are derived into, each by the contract; what is special to one of them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from headwater.app.schema import parse
from headwater.derived.cache_file import FileCache
from headwater.derived.change import Position, Row
from headwater.derived.decode import parse_object
from headwater.derived.errors import DerivedError, Unreadable
from headwater.derived.index import SearchIndex
from headwater.derived.search import BadQuery, Search
from headwater.derived.warehouse import Warehouse

from .parquet import ask
from .store_contract import COLUMNS, Opening, StoreContract, held, put, row_of, wanted


class TestFileCache(StoreContract):
    @pytest.fixture
    def opening(self, tmp_path: Path) -> Opening:
        return lambda: FileCache(tmp_path / "cache" / "articles.db")

    def test_anybody_can_read_it(self, tmp_path: Path) -> None:
        store = FileCache(tmp_path / "articles.db")
        put(store, {1: row_of(1)}, 1)
        with sqlite3.connect(tmp_path / "articles.db") as reader:
            [(row,)] = reader.execute("SELECT row FROM rows WHERE key = '1'").fetchall()
        reader.close()
        assert row == store.get("1") == row_of(1).text
        assert store.get("2") is None

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "articles.db").write_bytes(b"not a database" * 100)
        with pytest.raises(DerivedError, match="delete it and start again"):
            FileCache(tmp_path / "articles.db").position()


class TestSearchIndex(StoreContract):
    @pytest.fixture
    def opening(self, tmp_path: Path) -> Opening:
        return lambda: SearchIndex("articles", tmp_path / "index", COLUMNS, ["title"])


class TestWarehouse(StoreContract):
    @pytest.fixture
    def opening(self, tmp_path: Path) -> Opening:
        return lambda: Warehouse("articles", tmp_path / "parquet", COLUMNS, bucket_rows=10)

    def test_a_value_that_does_not_fit_its_column(self, tmp_path: Path) -> None:
        text = '{"id": "one"}'
        with pytest.raises(Unreadable, match='id: "one" is not a whole number'):
            Warehouse("articles", tmp_path, COLUMNS).take(Row(text, parse_object(text)))


@pytest.fixture
def articles(tmp_path: Path) -> Search:
    titles = ["The quick brown fox", "Quick, quick: a recipe", "Foxes of Norway", "On brown bears", "Nothing"]
    store = SearchIndex("articles", tmp_path, COLUMNS, ["title"])
    put(store, {n: row_of(n, title) for n, title in enumerate(titles)}, 1)
    return Search(tmp_path)


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("quick", {"0", "1"}),
        ("+quick +fox", {"0"}),
        ('"brown fox"', {"0"}),
        ("brown -fox", {"3"}),
        ('city:"New York"', {"1", "3"}),
        ("city:New", set()),
        ("id:[1 TO 3]", {"1", "2", "3"}),
        ("price:>0.5", {"3", "4"}),
        ("placed:[2026-01-02T00:00:00Z TO 2026-01-03T23:00:00Z]", {"1", "2"}),
        ("paid:true AND brown", {"0", "3"}),
        ("title:nothing OR id:0", {"0", "4"}),
        ("*", {"0", "1", "2", "3", "4"}),
        ("", {"0", "1", "2", "3", "4"}),
        ("zebra", set()),
    ],
)
def test_searches(articles: Search, query: str, keys: set[str]) -> None:
    found = articles.find(query)
    assert {hit.key for hit in found.hits} == keys
    assert found.total == len(keys)


def test_the_best_comes_first(articles: Search) -> None:
    hits = articles.find("quick fox").hits
    assert [hit.key for hit in hits] == ["0", "1"]
    assert hits[0].score > hits[1].score > 0
    assert hits[0].row["title"] == "The quick brown fox"
    assert hits[0].row["more"] == [0]
    assert [hit.key for hit in articles.find("quick fox", limit=1, offset=1).hits] == ["1"]


@pytest.mark.parametrize("query", ["nobody:x", '"open', "id:abc", "(a"])
def test_a_search_that_does_not_read(articles: Search, query: str) -> None:
    with pytest.raises(BadQuery, match="does not read as a search"):
        articles.find(query)


def test_a_value_that_an_index_cannot_hold_is_in_the_row_all_the_same(tmp_path: Path) -> None:
    store = SearchIndex("articles", tmp_path, COLUMNS, ["title"])
    texts = [
        '{"id":1,"placed":"9999-12-31T00:00:00Z"}',
        '{"id":2,"placed":"0001-01-01T00:00:00Z"}',
        '{"id":3,"title":"\\ud83d"}',
    ]
    rows = {str(n): store.take(Row(text, parse_object(text))) for n, text in enumerate(texts, 1)}
    store.apply(rows, None, Position("articles", shape=store.shape))
    search = Search(tmp_path)
    assert {hit.text for hit in search.find("*").hits} == {*texts}
    assert [hit.key for hit in search.find("placed:[2026-01-01T00:00:00Z TO *]").hits] == ["1"]
    assert [hit.key for hit in search.find("placed:[* TO 2026-01-01T00:00:00Z]").hits] == ["2"]


def test_no_index_yet(tmp_path: Path) -> None:
    with pytest.raises(DerivedError, match="headwater derived run"):
        Search(tmp_path).find("x")


def test_whoever_searches_sees_commits_and_a_switch(tmp_path: Path) -> None:
    store = SearchIndex("articles", tmp_path, COLUMNS, ["title"])
    put(store, {1: row_of(1, "first")}, 1)
    search = Search(tmp_path)
    assert search.find("first").total == 1
    put(store, {1: row_of(1, "second"), 2: row_of(2, "second")}, 2)
    assert (search.find("first").total, search.find("second").total) == (0, 2)
    beside = store.beside()
    put(beside, {3: row_of(3, "third")}, 2)
    assert search.find("third").total == 0
    store.switch(beside)
    assert (search.find("second").total, search.find("third").total) == (0, 1)
    put(store, {4: row_of(4, "third")}, 3)
    assert search.find("third").total == 2
    assert len([*tmp_path.glob("gen-*")]) == 1


def test_a_text_column_that_has_no_words(tmp_path: Path) -> None:
    with pytest.raises(DerivedError, match="cannot search the words of id"):
        SearchIndex("articles", tmp_path, COLUMNS, ["id"])


def test_duckdb_reads_a_warehouse_at_any_time(tmp_path: Path) -> None:
    store = Warehouse("articles", tmp_path, COLUMNS, bucket_rows=100)
    rows = {n: row_of(n) for n in range(1000)}
    put(store, rows, 1)
    query = f"SELECT count(*), sum(price), min(placed) FROM read_parquet('{tmp_path}/current/*.parquet')"
    [(count, price, first)] = ask(query)
    assert (count, float(price)) == (1000, sum(n / 4 for n in rows))
    assert first.isoformat().startswith("2026-01-01")
    old = (tmp_path / "current").resolve()
    put(store, {1: row_of(1, "changed"), 2: None}, 2)
    titles = f"SELECT title FROM read_parquet('{tmp_path}/current/*.parquet') WHERE id <= 2 ORDER BY id"
    assert ask(titles) == [("a title",), ("changed",)]
    # Who has begun to read the version before goes on with it.
    assert ask(f"SELECT count(*) FROM read_parquet('{old}/*.parquet')") == [(1000,)]


def test_parts_that_nothing_changed_are_not_written_again(tmp_path: Path) -> None:
    store = Warehouse("articles", tmp_path, COLUMNS, bucket_rows=50)
    rows = {n: row_of(n) for n in range(350)}
    put(store, rows, 1)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "current").glob("*.parquet")}
    put(store, {7: row_of(7, "changed")}, 2)
    after = {path.name: path.stat().st_ino for path in (tmp_path / "current").glob("*.parquet")}
    assert before.keys() == after.keys()
    assert sum(before[name] != after[name] for name in before) == 1
    assert held(store) == wanted({**rows, 7: row_of(7, "changed")})


def test_what_is_being_made_stays_and_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    store = Warehouse("articles", tmp_path, COLUMNS)
    left = tmp_path / ".new-1-1"
    left.mkdir()
    with Warehouse("articles", tmp_path, COLUMNS, link="building").versions.making() as made:
        put(store, {1: row_of(1)}, 1)
        assert made.exists()
        assert not left.exists()
    assert not made.exists()


def test_versions_go_once_nobody_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.derived.versions._KEEP_SECONDS", 0.0)
    store = Warehouse("articles", tmp_path, COLUMNS)
    for turn in range(5):
        put(store, {turn: row_of(turn)}, turn + 1)
    assert len([*tmp_path.glob("v-*")]) == 1
    assert not [*tmp_path.glob(".new-*")]


def test_nested_and_exact_values(tmp_path: Path) -> None:
    columns = parse(
        "id int, tags array<string>, place struct<x: double>, raw binary, n decimal(30,10), d date"
    )
    text = '{"id":1,"tags":["a"],"place":{"x":1.5},"raw":"AAE=","n":12345678901234567890.0123456789,"d":"2026-02-03"}'
    store = Warehouse("things", tmp_path, columns)
    row = Row(text, parse_object(text))
    store.apply({"1": store.take(row)}, None, Position("things", shape=store.shape))
    query = (
        f"SELECT tags, place.x, raw, n::varchar, d::varchar FROM read_parquet('{tmp_path}/current/*.parquet')"
    )
    assert ask(query) == [(["a"], 1.5, b"\0\1", "12345678901234567890.0123456789", "2026-02-03")]


def test_a_position_that_does_not_read() -> None:
    position = Position("t", "id", {3: 4, 1: 2}, "shape", 5)
    assert Position.decode(position.encode()) == position
    assert json.loads(position.encode())["offsets"] == {"1": 2, "3": 4}
    for text in ("{", "[]", '{"topic": "t"}'):
        with pytest.raises(DerivedError, match="build it anew"):
            Position.decode(text)
