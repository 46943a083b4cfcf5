"""Stored searches in Spark: over several batches, changed while running, with every type of column."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import App, matching, tumbling, unreadable_searches
from headwater.pipeline.searches.matching import SHARDS, SearchError
from headwater.pipeline.source import TopicSource
from headwater.pipeline.tables import Table
from headwater.testing import replay, run_app
from headwater.testing.rows_source import ScriptedTopic

pytestmark = pytest.mark.real

FLATS = "id int, city string, rent bigint, price decimal(12,2), since date, tags array<string>, at timestamp"
CHEAP = json.dumps({"where": {"field": "rent", "<": 500}, "to": "ann@example.org"})
BERLIN = json.dumps({"where": {"field": "city", "=": "Berlin"}})
PRECISE = json.dumps(
    {
        "where": {
            "all": [
                {"field": "price", "=": 1234567890.01},
                {"field": "since", ">": "2026-01-31"},
                {"field": "at", ">=": "2026-03-01T12:00:00Z"},
            ]
        }
    }
)


def flat(number: int, city: str, rent: int | None, **other: Any) -> dict[str, Any]:
    return {
        "id": number,
        "city": city,
        "rent": rent,
        "price": "1234567890.01",
        "since": "2026-02-01",
        "tags": ["new", city],
        "at": f"2026-03-01T12:00:{number:02}Z",
        **other,
    }


def search(name: str | None, text: str | None) -> dict[str, Any]:
    return {"key": name, "value": text}


def declared() -> App:
    app = App("flats")
    app.topic("flats", FLATS, event_time="at", metadata=["_partition", "_offset"])
    app.topic("searches", "key string, value string", format="raw", metadata=["_offset"])
    return app


def test_searches_come_change_and_go_while_events_flow() -> None:
    app = declared()

    @app.stream(key="id")
    def found(flats: DataFrame, searches: DataFrame) -> DataFrame:
        return matching(flats, searches)

    @app.view(key="search", mode="changes")
    def broken(flats: DataFrame, searches: DataFrame) -> DataFrame:
        return unreadable_searches(searches, flats)

    outputs = run_app(
        app,
        {
            "flats": [
                [flat(1, "Berlin", 900), flat(2, "Bonn", 400), flat(3, "Bonn", None)],
                [flat(4, "Berlin", 400), flat(5, "Bonn", 499), flat(6, "Bonn", 1, price="1234567890.02")],
                [flat(7, "Berlin", 400)],
                [flat(8, "Berlin", 2**60 + 1)],
            ],
            "searches": [
                [search("cheap", BERLIN), search("cheap", CHEAP), search("worse", "{"), search(None, CHEAP)],
                [search("berlin", BERLIN), search("exact", PRECISE)],
                [search("cheap", None), search("worse", BERLIN), search("exact", '{"where": 5}')],
                [search("berlin", json.dumps({"where": {"field": "rent", "=": 2**60 + 1}}))],
            ],
        },
    )
    rows = sorted((row["id"], row["search"]) for row in outputs["found"])
    assert rows == [
        (2, "cheap"),
        (4, "berlin"),
        (4, "cheap"),
        (4, "exact"),
        (5, "cheap"),
        (5, "exact"),
        (6, "cheap"),
        (7, "berlin"),
        (7, "worse"),
        (8, "berlin"),
        (8, "worse"),
    ]
    cheap = next(row for row in outputs["found"] if row["id"] == 5 and row["search"] == "cheap")
    assert cheap["search_json"] == CHEAP
    assert cheap["tags"] == ["new", "Bonn"]
    assert str(cheap["price"]) == "1234567890.01"
    assert cheap["since"].isoformat() == "2026-02-01"
    assert [(row["search"], row["reason"]) for row in outputs["broken"]] == [
        ("", "the search has no name: its record has no key"),
        ("exact", "where: a condition is an object with one of all, any, not, field, and is 5"),
    ]


def test_matches_have_the_time_of_their_events() -> None:
    app = declared()

    @app.view(key=["window", "search"])
    def per_minute(flats: DataFrame, searches: DataFrame) -> DataFrame:
        found = matching(flats, searches).transform(tumbling("at", "1 minute"))
        return found.groupBy("window", "search").agg(F.count("*").alias("n"))

    flats = [
        [flat(n, "Berlin", 100) for n in range(first, first + SHARDS // 2)] for first in (0, SHARDS // 2)
    ]
    outputs = run_app(app, {"flats": flats, "searches": [[search("berlin", BERLIN)]]}, drain=True)
    assert [(row["search"], row["n"]) for row in outputs["per_minute"]] == [("berlin", SHARDS)]


def test_a_table_holds_searches_too_and_a_crash_around_every_commit_changes_nothing() -> None:
    app = App("flats")
    app.topic("flats", "id int, city string")
    app.table("searches", "name int, search string", key="name")

    @app.stream(key="id")
    def found(flats: DataFrame, searches: Table) -> DataFrame:
        return matching(flats, searches)

    flats = [[{"id": n, "city": "Berlin"}] for n in range(3)]
    searches: list[Any] = [
        [{"name": 7, "search": BERLIN}],
        [{"name": 8, "search": BERLIN}],
        [{"name": 7, "_deleted": True}],
    ]
    outputs = replay(app, {"flats": flats, "searches": searches})
    matches = sorted((row["id"], row["search"]) for row in outputs["found"])
    assert matches == [(0, "7"), (1, "7"), (1, "8"), (2, "8")]


def test_what_cannot_be_searched_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def topic(name: str, schema: str) -> DataFrame:
        return ScriptedTopic(tmp_path / name, TopicSource("kafka://rows:9092", name, schema)).read(spark)

    flats = topic("flats", "id int, city string")
    raw = topic("raw", "key string, value string, _offset long")
    changes = topic("table", "name string, search string, to string, _deleted boolean, _version long")
    with pytest.raises(SearchError, match="the columns key, value and _offset, and this has id, city"):
        matching(flats, flats)
    with pytest.raises(SearchError, match="the table searches has the columns name, search, to"):
        matching(flats, Table("searches", ("name",), changes))
    with pytest.raises(SearchError, match="adds a column search, and the events have one"):
        matching(flats.withColumn("search", F.lit(1)), raw)
    with pytest.raises(SearchError, match="none of the events' columns can be searched: a"):
        matching(flats.select(F.array("id").alias("a")), raw)
    with pytest.raises(SearchError, match="is a text, and is declared binary"):
        matching(flats, raw.withColumn("value", F.col("value").cast("binary")))


def test_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "searches.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    [query] = re.findall(r"^```json\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    path = tmp_path / "flats.py"
    path.write_text(code)
    flats = [
        {
            "id": "1",
            "city": "Berlin",
            "rent": 800,
            "text": "Roof terrace",
            "listed_at": "2026-03-01T12:00:00Z",
        },
        {
            "id": "2",
            "city": "Berlin",
            "rent": 900,
            "text": "Roof terrace",
            "listed_at": "2026-03-01T12:00:00Z",
        },
    ]
    outputs = run_app(path, {"flats": flats, "searches": [search("ann", query), search("bob", "[]")]})
    assert [(row["id"], row["search"], row["search_json"]) for row in outputs["found"]] == [
        ("1", "ann", query)
    ]
    assert [row["search"] for row in outputs["broken_searches"]] == ["bob"]
