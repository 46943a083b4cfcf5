"""The pages about pipelines: their Python runs, and gives what it says."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from headwater.testing import run_app

pytestmark = pytest.mark.real

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def python_of(page: str, directory: Path) -> Path:
    """Write a page's Python as one file."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    path = directory / page.replace(".md", "_page.py")
    path.write_text("\n\n".join(blocks))
    return path


@pytest.fixture(scope="module")
def requests() -> list[dict[str, Any]]:
    rng = random.Random(3)
    return [
        {
            "path": rng.choice(["/", "/", "/", "/a", "/a", "/b", "/c"]),
            "user": f"u{rng.randrange(40)}",
            "ms": float(rng.randrange(1, 400)),
            "at": NOON + timedelta(milliseconds=rng.randrange(180_000)),
        }
        for _ in range(300)
    ]


@pytest.fixture(scope="module")
def answers(requests: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = python_of("recipes.md", tmp_path_factory.mktemp("recipes"))
    places = (
        ("a", 9.8, 0),
        ("a", 9.95, 20),
        ("b", 9.95, 10),
        ("a", 9.8, 10),
        ("b", 9.95, 20),
        ("b", 9.8, 30),
    )
    follows = [[("ann", "bob"), ("ann", "cy"), ("dan", "bob")], [("eve", "bob")]]
    posts = [[("1", "bob"), ("2", "cy")], [("3", "bob")], [("4", "flo")]]
    inputs: dict[str, Any] = {
        "requests": requests,
        "positions": [
            {"truck": truck, "lat": 53.52, "lon": lon, "at": NOON + timedelta(seconds=second)}
            for truck, lon, second in places
        ],
        "follows": [
            *([{"follower": one, "author": other} for one, other in some] for some in follows),
            [{"follower": "dan", "author": "bob", "_deleted": True}],
        ],
        "posts": [[{"post_id": post, "author": author} for post, author in some] for some in posts],
    }
    return run_app(path, inputs, drain=True)


def in_minute(requests: list[dict[str, Any]], start: datetime, minutes: int = 1) -> list[dict[str, Any]]:
    return [row for row in requests if start <= row["at"] < start + timedelta(minutes=minutes)]


def test_rates(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    counts = Counter((row["at"].replace(second=0, microsecond=0), row["path"]) for row in requests)
    found = {(row["window"]["start"], row["path"]): row["per_second"] for row in answers["request_rate"]}
    assert found == {key: pytest.approx(n / 60) for key, n in counts.items()}


def test_rolling_mean(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    assert len(answers["rolling_mean"]) == 7
    for row in answers["rolling_mean"]:
        within = in_minute(requests, row["window"]["start"], 5)
        assert row["mean"] == pytest.approx(mean(each["ms"] for each in within))


def test_an_event_beside_the_mean_of_its_key(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    expected = []
    for row in requests:
        own = [each["ms"] for each in requests if each["user"] == row["user"] and each["at"] <= row["at"]]
        if len(own) >= 3 and row["ms"] > 2 * mean(own):
            expected.append((row["at"], row["ms"], pytest.approx(mean(own)), len(own)))
    found = [(row["at"], row["ms"], row["mean"], row["seen"]) for row in answers["slower_than_usual"]]
    assert len(expected) > 5
    assert sorted(found) == sorted(expected, key=lambda row: row[0])


def test_percentiles(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    assert len(answers["latency"]) == 3
    for row in answers["latency"]:
        values = sorted(each["ms"] for each in in_minute(requests, row["window"]["start"]))
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            place = int(len(values) * share)
            assert row[name] in values[max(0, place - 2) : place + 2]


def test_distinct_counts(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    (row,) = answers["visitors"]
    assert row["users"] == pytest.approx(len({each["user"] for each in requests}), rel=0.06)


def test_top_k(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    assert len(answers["top_paths"]) == 3
    for row in answers["top_paths"]:
        counts = Counter(each["path"] for each in in_minute(requests, row["window"]["start"]))
        assert [each["n"] for each in row["top"]] == [n for _, n in counts.most_common(3)]
        assert all(counts[each["path"]] == each["n"] for each in row["top"])


def test_compared_with_earlier(requests: list[dict[str, Any]], answers: dict[str, Any]) -> None:
    counts = Counter((row["at"].replace(second=0, microsecond=0), row["path"]) for row in requests)
    found = {(row["window"]["start"], row["path"]): row for row in answers["busier"]}
    assert {key: row["n"] for key, row in found.items()} == dict(counts)
    for (start, path), row in found.items():
        before = counts.get((start - timedelta(minutes=1), path))
        assert (row["previous_1_minute"], row["missing_1_minute"]) == (before, before is None)
        assert row["change_1_minute"] == (None if before is None else row["n"] - before)
        assert row["missing_1_day"]


def test_crossing_of_zones(answers: dict[str, Any]) -> None:
    found = [(row["truck"], (row["at"] - NOON).seconds, row["now"]) for row in answers["crossings"]]
    assert sorted(found) == [("a", 20, "inside"), ("b", 30, "outside")]
    assert {row["truck"]: row["lon"] for row in answers["last_seen"]} == {"a": 9.95, "b": 9.8}


def test_news_feeds(answers: dict[str, Any]) -> None:
    found = [(row["follower"], row["post_id"]) for row in answers["news_feed"]]
    assert sorted(found) == [("ann", "1"), ("ann", "2"), ("ann", "3"), ("eve", "1"), ("eve", "3")]


def test_the_page_on_testing_holds_tests_that_pass(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    path = python_of("testing.md", tmp_path)
    exec(compile(path.read_text(), str(path), "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


def test_the_page_on_time_runs(tmp_path: Path) -> None:
    orders = [
        {"order_id": str(n), "card": "c", "amount": 2.0, "placed_at": NOON + timedelta(seconds=n)}
        for n in range(3)
    ]
    reading = {
        "sensor": "s",
        "celsius": 4.0,
        "received": NOON,
        "sent": "1999-01-01T00:00:20Z",
        "occurred": "1999-01-01T00:00:00Z",
    }
    outputs = run_app(python_of("time.md", tmp_path), {"orders": orders, "readings": [reading]}, drain=True)
    assert outputs["per_minute"][0]["sum"] == 6.0
    assert outputs["per_day"][0]["window"]["start"] == NOON.replace(hour=23) - timedelta(days=1)
    assert len(outputs["last_hour"]) == 12
    assert outputs["samples"][0]["count"] == 3
    assert outputs["visits"][0]["window"]["end"] == NOON + timedelta(minutes=30, seconds=2)
    assert [row["spent"] for row in outputs["spending"]] == [2.0, 4.0, 6.0]
    assert [row["status"] for row in outputs["order_status"]] == ["Unpaid"] * 3
    assert outputs["temperature"][0]["window"]["start"] == NOON - timedelta(minutes=1)
