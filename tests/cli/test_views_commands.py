"""`headwater views list` and `show`, on a store with a view."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.cli import main
from headwater.testing.clock import ManualClock
from headwater.views import Change, ViewDefinition, open_store

NOW = 4_000_000_000_000  # long after any test runs, so that no history is over


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/views.db"
    clock = ManualClock(NOW)
    with open_store(url, clock=clock) as store:
        store.define(ViewDefinition("!fraud", ("id",)))
        store.define(ViewDefinition("sales", ("country",), 86_400_000, ("n",), 3_600_000))
        rows = {"DE": 3, "FR": 1, "IT": 2}
        store.commit(
            "q", 0, "sales", [Change(key, json.dumps({"k": key, "n": n})) for key, n in rows.items()]
        )
        clock.advance(1000)
        store.commit("q", 1, "sales", [Change("DE", '{"k":"DE","n":4}')])
    return url


def views(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["views", words[0], f"--views={url}", *words[1:]])


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_views_are_listed_with_what_they_ask_for_and_alerts_are_not(url: str) -> None:
    assert lines(views(url, "list")) == [
        {
            "view": "sales",
            "key": ["country"],
            "rows": 3,
            "changes": 4,
            "ttl": "1 day",
            "indexes": ["n"],
            "history": "1 hour",
        }
    ]


def test_rows_are_shown_filtered_and_in_order(url: str) -> None:
    assert [row["n"] for row in lines(views(url, "show", "sales"))] == [4, 1, 2]
    assert [row["n"] for row in lines(views(url, "show", "sales", "--order=-n", "--limit=2"))] == [4, 2]
    assert [row["k"] for row in lines(views(url, "show", "sales", "--where", "n=2"))] == ["IT"]
    assert lines(views(url, "show", "sales", "FR")) == [{"k": "FR", "n": 1}]


def test_what_was(url: str) -> None:
    then = "2096-10-02T07:06:40.500Z"
    assert [row["n"] for row in lines(views(url, "show", "sales", "--at", then))] == [3, 1, 2]
    assert lines(views(url, "show", "sales", "DE", "--at", then)) == [{"k": "DE", "n": 3}]
    first, second = lines(views(url, "show", "sales", "DE", "--history"))
    assert (first["n"], first["until"]) == (4, None)
    assert (second["n"], second["until"]) == (3, first["since"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "nothing"), "there is no view named nothing: headwater views list shows them"),
        (("show", "sales", "XX"), "the view sales has no row with the key XX"),
        (("show", "sales", "--history"), "--history is of one row: give its KEY"),
        (("show", "sales", "--at", "noon"), "noon is no time: write one like 2026-01-31T14:00:00Z"),
    ],
)
def test_what_cannot_be_shown(url: str, words: tuple[str, ...], says: str) -> None:
    result = views(url, *words)
    assert result.exit_code != 0
    assert says in result.stderr


def test_a_store_that_is_away_is_one_line_without_its_password() -> None:
    pytest.importorskip("psycopg")
    result = views("postgresql://ann:hidden@127.0.0.1:1/views", "list")
    assert result.exit_code == 1
    assert "cannot open the view store postgresql://ann:***@127.0.0.1:1/views" in result.stderr
    assert "hidden" not in result.stderr


@pytest.mark.parametrize("words", [("views", "list"), ("views", "show", "sales"), ("alerts", "list")])
def test_looking_in_the_wrong_directory_makes_nothing_and_says_so(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, [*words, f"--data={tmp_path}"])
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: there is no view store {tmp_path}/views.db: nothing has run there; start the application,"
        " or say with --data or --views where it runs\n",
    )
    assert list(tmp_path.iterdir()) == []
