"""`/events`: appending under an expected version, reading, and what is refused, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.core.urls import KafkaUrl
from headwater.serve.event_stores import EventStores
from headwater.testing.process import BrokerProcess, free_port
from headwater.views import ViewStore, open_store

from .serve_helpers import served

pytestmark = pytest.mark.real

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewStore]:
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('views')}/views.db") as store:
        yield store


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, views: ViewStore) -> Iterator[httpx.Client]:
    directory = tmp_path_factory.mktemp("serve-events")
    with BrokerProcess(directory / "data") as broker:
        stores = EventStores(
            KafkaUrl.parse(f"kafka://{broker.bootstrap}"), ["accounts"], directory / "events"
        )
        with served(views, events=stores) as server:
            yield server.client


def post(client: httpx.Client, stream: str, body: Any, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"/events/accounts/{stream}", json=body, headers=named)


def deposited(amount: int) -> dict[str, Any]:
    return {"type": "Deposited", "data": {"amount": amount}}


def test_append_and_read(client: httpx.Client) -> None:
    answer = post(client, "ann", [deposited(1), deposited(2)], If_None_Match="*", X_Correlation_Id="talk")
    assert (answer.status_code, answer.headers["etag"]) == (201, '"2"')
    assert answer.json()["version"] == 2
    ids = [event["id"] for event in answer.json()["events"]]
    answer = client.get("/events/accounts/ann")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    document = answer.json()
    assert (document["stream"], document["version"]) == ("accounts/ann", 2)
    assert [event["id"] for event in document["events"]] == ids
    assert document["events"][0]["data"] == {"amount": 1}
    assert document["events"][0]["correlation_id"] == "talk"
    assert client.get("/events/accounts/ann", headers={"If-None-Match": '"2"'}).status_code == 304
    page = client.get("/events/accounts/ann", params={"after": "1", "limit": "1"}).json()
    assert [event["version"] for event in page["events"]] == [2]
    time = document["events"][0]["time"]
    assert client.get("/events/accounts/ann", params={"at": time}).json()["version"] == 2
    assert client.get("/events/accounts/ann", params={"at": "2000-01-01"}).status_code == 404
    assert {"stream": "accounts/ann", "version": 2} in client.get("/events/accounts").json()["streams"]
    assert client.get("/events").json() == {"stores": ["accounts"]}


def test_a_conflict_names_the_version(client: httpx.Client) -> None:
    assert post(client, "bob", deposited(1), If_Match='"0"').status_code == 201
    for headers in ({"If_Match": '"0"'}, {"If_Match": "7"}, {"If_None_Match": "*"}):
        answer = post(client, "bob", deposited(1), **headers)
        assert (answer.status_code, answer.headers["etag"], answer.json()["version"]) == (412, '"1"', 1)
        assert "the stream bob is at version 1" in answer.json()["error"]
    assert post(client, "nobody", deposited(1), If_Match="*").status_code == 412
    assert post(client, "bob", deposited(1), If_Match="*").status_code == 201
    assert post(client, "bob", deposited(1), If_Match='"2"').json()["version"] == 3


def test_an_idempotency_key_appends_once(client: httpx.Client) -> None:
    first = post(client, "eve", deposited(1), Idempotency_Key="c1")
    again = post(client, "eve", deposited(1), Idempotency_Key="c1", If_None_Match="*")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "repeated": True}
    assert client.get("/events/accounts/eve").json()["version"] == 1


def test_many_clients_on_one_stream_leave_no_gap(client: httpx.Client) -> None:
    def work(number: int) -> None:
        version = 0
        while (
            answer := post(client, "shared", deposited(number), If_Match=f'"{version}"')
        ).status_code == 412:
            version = answer.json()["version"]
        assert answer.status_code == 201

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    document = client.get("/events/accounts/shared").json()
    assert [event["version"] for event in document["events"]] == list(range(1, 21))
    assert sorted(event["data"]["amount"] for event in document["events"]) == list(range(20))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the body is no JSON"),
        (b"7", "no JSON object"),
        (b"[]", "holds no events"),
        (b"\xff", "not UTF-8"),
        (b"{}", "an event has a type"),
        (b'{"type": 7}', "an event has a type"),
        (b'{"type": ""}', "an event's type is text of 1 to 255 characters"),
        (b'{"type": "A", "date": {}}', "an event has no field 'date'"),
        (b'{"type": "A", "data": 7}', "the data of A are a mapping"),
        (b'{"type": "A", "data": {"n": NaN}}', "NaN is no JSON number"),
        (b'{"type": "A", "schema": "x"}', "the schema of A is a number"),
        (b'{"type": "A", "id": 7}', "an event's id is text"),
        (b'{"type": "A", "data": {"t": "\\ud800"}}', "cannot be JSON"),
    ],
)
def test_a_malformed_body_is_refused_with_a_sentence(
    client: httpx.Client, body: bytes, sentence: str
) -> None:
    answer = client.post("/events/accounts/bad", content=body, headers=JSON)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]
    assert client.get("/events/accounts/bad").status_code == 404


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"If_Match": "abc"}, "If-Match: abc does not fit"),
        ({"If_Match": '"1", "2"'}, "does not fit"),
        ({"If_Match": "-1"}, "does not fit"),
        ({"If_None_Match": '"1"'}, "If-None-Match is * here"),
        ({"If_Match": "*", "If_None_Match": "*"}, "do not go together"),
        ({"Idempotency_Key": "x" * 300}, "a command_id is text of 1 to 255 characters"),
    ],
)
def test_malformed_headers_are_refused(client: httpx.Client, headers: dict[str, str], sentence: str) -> None:
    answer = post(client, "bad", deposited(1), **headers)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize(
    "query", ["after=x", "after=-1", "limit=1&limit=2", "until=1e3", "at=yesterday", "limit=99999"]
)
def test_malformed_queries_are_refused(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/events/accounts/ann?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]


def test_what_is_not_there(client: httpx.Client) -> None:
    answer = client.get("/events/orders/1")
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "there is no event store orders here; there are accounts",
    )
    assert client.get("/events/accounts/none").status_code == 404
    assert client.put("/events/accounts/ann").status_code == 405
    assert client.post("/events/accounts/ann", content=b"{}").status_code == 415


def test_a_broker_that_is_away_is_503(views: ViewStore, tmp_path: Path) -> None:
    away = KafkaUrl.parse(f"kafka://127.0.0.1:{free_port()}")
    with served(views, events=EventStores(away, ["accounts"], tmp_path)) as server:
        answer = server.client.get("/events/accounts/ann")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    with served(views, events=EventStores(None, ["accounts"], tmp_path)) as server:
        assert "--broker" in server.client.get("/events/accounts/ann").json()["error"]


def test_personal_data_are_erased_and_the_event_stays(client: httpx.Client) -> None:
    event = {
        "type": "Registered",
        "data": {"name": "Ann", "plan": "basic"},
        "personal": ["name"],
        "subject": "p/1",
    }
    assert post(client, "17", [event, deposited(1)]).status_code == 201
    [first, last] = client.get("/events/accounts/17").json()["events"]
    assert first["data"] == {"name": "Ann", "plan": "basic"}
    assert (first["personal"], first["erased"]) == (["name"], False)
    assert "personal" not in last
    answer = client.delete("/events/accounts/p/1")
    assert answer.json() == {"store": "accounts", "subject": "p/1", "events": 1}
    [first, last] = client.get("/events/accounts/17").json()["events"]
    assert (first["data"], first["erased"]) == ({"name": None, "plan": "basic"}, True)
    assert last["data"] == {"amount": 1}
    answer = client.delete("/events/accounts/p/1")
    assert answer.status_code == 404
    assert answer.json()["error"] == "no event of accounts has personal data about p/1"
    for personal in ("name", [1], ["age"]):
        assert post(client, "18", event | {"personal": personal}).status_code == 400
