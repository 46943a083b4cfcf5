"""Views over HTTP: rows, pages, filters, single rows, long polls."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from headwater.testing.clock import ManualClock
from headwater.views import Change, ViewDefinition, ViewStore, open_store

from .serve_helpers import Served, served


def row(**columns: object) -> str:
    return json.dumps(columns)


def keys(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [entry["key"] for entry in answer["rows"]]


def test_the_index_names_every_view(server: Served, store: ViewStore) -> None:
    [view] = server.get("/views")["views"]
    assert view == {"name": "sales", "key": ["country"], "rows": 4, "token": f"{store.identity}-sales-4"}


def test_rows_come_with_keys_and_a_token(server: Served, store: ViewStore) -> None:
    answer = server.get("/views/sales")
    assert answer["token"] == f"{store.identity}-sales-4"
    assert answer["next"] is None
    assert answer["rows"][0] == {"key": "DE", "row": {"country": "DE", "revenue": 3}}


def test_order_limit_and_filters(server: Served) -> None:
    assert keys(server.get("/views/sales", order="-revenue", limit="2")) == ["a/b", "DE"]
    assert keys(server.get("/views/sales", order="revenue")) == ["FR", "IT", "DE", "a/b"]
    assert keys(server.get("/views/sales", country="DE")) == ["DE"]
    assert keys(server.get("/views/sales", revenue="2")) == ["IT"]
    assert keys(server.get("/views/sales", country="DE", revenue="2")) == []


def test_pages_follow_next_and_belong_together(server: Served, store: ViewStore) -> None:
    first = server.get("/views/sales", limit="2")
    store.commit("q", 1, "sales", [Change("IT", row(n=0)), Change("ZZ", row(n=0))])
    second = server.get(first["next"])
    third = server.get(second["next"]) if second["next"] else {"rows": []}
    # What changed meanwhile is not among the pages, but behind the token that they share.
    assert keys(first) + keys(second) + keys(third) == ["DE", "FR", "a/b"]
    assert second["token"] == first["token"]
    changes = server.get("/views/sales/changes", since=first["token"])["changes"]
    assert [change["key"] for change in changes] == ["IT", "ZZ"]


def test_one_row_and_none(server: Served) -> None:
    assert server.get("/views/sales/DE") == {"key": "DE", "row": {"country": "DE", "revenue": 3}}
    assert server.get("/views/sales/a%2Fb")["row"]["revenue"] == 9
    missing = server.client.get("/views/sales/XX")
    assert (missing.status_code, missing.json()) == (
        404,
        {"error": "the view sales has no row with the key XX"},
    )


@pytest.mark.parametrize("path", ["/views/nothing", "/views/nothing/x", "/views/nothing/changes?since=x-1"])
def test_an_unknown_view(server: Served, path: str) -> None:
    answer = server.client.get(path.replace("x-1", server.get("/views/sales")["token"]))
    says = "there is no view named nothing: GET /views lists what there is"
    assert (answer.status_code, answer.json()["error"]) == (404, says)
    live = server.client.get("/views/nothing/changes", headers={"Accept": "text/event-stream"})
    assert live.status_code == 404


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("limit=0", "limit=0 does not fit: it is a whole number from 1 to 10000"),
        ("limit=many", "limit=many does not fit"),
        ("limit=nan", "limit=nan does not fit"),
        ("limit=10001", "limit=10001 does not fit"),
        ("order=revenue&after=DE", "order is the name of a column, and does not go together with after"),
        ("a%22b=1", "is no name of a column"),
        ("order=a..b", "order is the name of a column"),
        ("country=DE&country=FR", "country is given more than once"),
        ("token=7", "is no token"),
    ],
)
def test_a_query_that_does_not_fit_says_why(server: Served, query: str, text: str) -> None:
    answer = server.client.get(f"/views/sales?{query}")
    assert answer.status_code == 400
    assert text in answer.json()["error"]


def test_changes_since_a_token(server: Served, store: ViewStore) -> None:
    token = server.get("/views/sales")["token"]
    assert server.get("/views/sales/changes", since=token) == {"view": "sales", "token": token, "changes": []}
    store.commit("q", 1, "sales", [Change("DE", None), Change("FR", row(revenue=5))])
    answer = server.get("/views/sales/changes", since=token)
    assert answer["changes"] == [{"key": "DE", "row": None}, {"key": "FR", "row": {"revenue": 5}}]
    assert server.get("/views/sales/changes", since=answer["token"])["changes"] == []


def test_a_long_poll_returns_with_the_first_change(server: Served, store: ViewStore) -> None:
    token = server.get("/views/sales")["token"]
    other = open_store(f"sqlite:///{store._file.path}")  # type: ignore[attr-defined]

    def write() -> None:
        time.sleep(0.3)
        other.commit("q", 1, "sales", [Change("DE", row(revenue=4))])
        other.close()

    writer = threading.Thread(target=write)
    began = time.monotonic()
    writer.start()
    answer = server.get("/views/sales/changes", since=token, wait="20")
    writer.join()
    assert [change["key"] for change in answer["changes"]] == ["DE"]
    assert 0.25 < time.monotonic() - began < 5


def test_a_long_poll_ends_when_its_time_is_over(server: Served) -> None:
    token = server.get("/views/sales")["token"]
    began = time.monotonic()
    assert server.get("/views/sales/changes", since=token, wait="0.4")["changes"] == []
    assert 0.35 < time.monotonic() - began < 5


def test_a_token_that_is_gone_says_how_to_start_over(server: Served, store: ViewStore) -> None:
    for token in ("0123456789ab-3", f"{store.identity}-sales-99"):
        answer = server.client.get("/views/sales/changes", params={"since": token})
        assert answer.status_code == 410
        assert "read the rows of the view and go on from the token" in answer.json()["error"]
    assert server.client.get("/views/sales/changes").status_code == 400
    assert server.client.get("/views/sales/changes?since=abc").status_code == 400


def test_a_token_of_another_view_is_refused(server: Served, store: ViewStore) -> None:
    store.define(ViewDefinition("sales-by-day", ("day",)))
    store.commit("other", 0, "sales-by-day", [Change("1", row(day=1)), Change("2", row(day=2))])
    other = server.get("/views/sales-by-day")["token"]
    assert server.get("/views/sales-by-day/changes", since=other)["changes"] == []
    for path, name in (("/changes", "since"), ("", "token")):
        answer = server.client.get(f"/views/sales{path}", params={name: other})
        assert answer.status_code == 400
        assert answer.json()["error"] == (
            f"{other!r} is a token of sales-by-day: go on with one that an answer about sales held"
        )


def test_a_token_from_before_tokens_told_their_view_starts_over(server: Served, store: ViewStore) -> None:
    since = f"{store.identity}-3"
    assert server.client.get("/views/sales/changes", params={"since": since}).status_code == 410


def test_what_is_not_there(server: Served) -> None:
    missing = server.client.get("/nothing")
    says = "there is nothing at /nothing: GET /openapi.json lists what there is"
    assert (missing.status_code, missing.json()) == (404, {"error": says})
    answer = server.client.delete("/views/sales")
    says = "DELETE is not served at /views/sales: there is GET, HEAD"
    assert (answer.status_code, answer.json()["error"]) == (405, says)


def test_a_store_that_fails_is_not_the_clients_fault(server: Served, store: ViewStore) -> None:
    store._file.close()  # type: ignore[attr-defined]
    assert server.client.get("/views/sales").status_code == 503
    assert server.client.get("/health").status_code == 503


def test_a_view_as_it_was_and_what_a_row_was(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with open_store(f"sqlite:///{tmp_path}/past.db", clock=clock) as store, served(store) as server:
        store.define(ViewDefinition("sales", ("country",), history_ms=60_000))
        for epoch, changes in enumerate(([("DE", 1), ("FR", 1)], [("DE", 2)], [("DE", 3)])):
            store.commit("q", epoch, "sales", [Change(key, row(n=n)) for key, n in changes])
            clock.advance(1000)
        then = "2023-11-14T22:13:21.500Z"
        answer = server.get("/views/sales", at=then, limit="1")
        assert (answer["rows"], answer["token"]) == ([{"key": "DE", "row": {"n": 2}}], None)
        following = server.get(answer["next"])
        assert (keys(following), following["next"]) == (["FR"], server.get(answer["next"])["next"])
        assert server.get("/views/sales", at="2023-11-14T23:13:21.5+01:00", n="2")["rows"][0]["key"] == "DE"
        assert server.get("/views/sales/DE", at=then) == {"key": "DE", "row": {"n": 2}}
        assert server.get("/views/sales/DE?history") == {
            "view": "sales",
            "key": "DE",
            "versions": [
                {"since": "2023-11-14T22:13:22.000Z", "until": None, "row": {"n": 3}},
                {"since": "2023-11-14T22:13:21.000Z", "until": "2023-11-14T22:13:22.000Z", "row": {"n": 2}},
                {"since": "2023-11-14T22:13:20.000Z", "until": "2023-11-14T22:13:21.000Z", "row": {"n": 1}},
            ],
        }
        for path, status, says in (
            ("/views/sales?at=noon", 400, "is no time: write one like"),
            ("/views/sales?at=2023-11-14T22:13:21", 400, "has no time zone"),
            ("/views/sales?at=2023-11-14", 400, "write it like 2023-11-14T00:00:00Z"),
            ("/views/sales?at=2023-11-14T22:00:00Z", 410, "begins at 2023-11-14T22:13:20.000Z"),
            ("/views/sales/XX?at=2023-11-14T22:13:21Z", 404, "has no row with the key XX"),
        ):
            refused = server.client.get(path)
            assert (refused.status_code, says in refused.json()["error"]) == (status, True), path


def test_a_view_without_history_says_so(server: Served) -> None:
    refused = server.client.get("/views/sales?at=2023-11-14T22:13:21Z")
    assert (refused.status_code, "keeps no history" in refused.json()["error"]) == (410, True)


def test_rows_whose_time_has_run_out_leave_while_somebody_follows(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(f"sqlite:///{tmp_path}/short.db", clock=clock) as store, served(store) as server:
        store.define(ViewDefinition("sales", ("country",), ttl_ms=1000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        token = server.get("/views/sales")["token"]
        clock.advance(1000)
        answer = server.get("/views/sales/changes", since=token, wait="20")
        assert answer["changes"] == [{"key": "DE", "row": None}]
