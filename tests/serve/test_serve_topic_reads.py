"""`GET /topics/NAME/PARTITION`: records of a topic over HTTP, from any offset on, whatever they hold."""

from __future__ import annotations

import json
import re
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from headwater.app import App
from headwater.core.urls import KafkaUrl
from headwater.serve import topic_reads
from headwater.serve.broker import Broker
from headwater.serve.event_stores import EventStores
from headwater.testing.process import BrokerProcess, free_port
from headwater.views import ViewStore

from .serve_helpers import Served, served

pytestmark = pytest.mark.real


@pytest.fixture
def reading(store: ViewStore, kafka: BrokerProcess) -> Iterator[Served]:
    with served(store, broker=at(kafka.bootstrap)) as server:
        yield server


def at(bootstrap: str) -> Broker:
    return Broker(KafkaUrl.parse(f"kafka://{bootstrap}"))


def write(kafka: BrokerProcess, topic: str, *values: bytes | None, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0, **options)
    assert producer.flush(10) == 0


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, first + count)]


def test_pages_lead_through_a_partition(reading: Served, kafka: BrokerProcess, topic: str) -> None:
    write(kafka, topic, *numbers(250))
    found: list[int] = []
    following = "earliest"
    sizes: list[int] = []
    while not sizes or sizes[-1]:
        page = reading.get(f"/topics/{topic}/0", offset=following, limit="120")
        assert (page["topic"], page["partition"], page["start"], page["end"]) == (topic, 0, 0, 250)
        assert all(record["offset"] == record["value"]["n"] for record in page["records"])
        found += [record["offset"] for record in page["records"]]
        sizes.append(len(page["records"]))
        following = str(page["next"])
    assert (found, sizes) == (list(range(250)), [120, 120, 10, 0])
    assert reading.get(f"/topics/{topic}/0", offset="17", limit="1")["records"][0]["value"] == {"n": 17}
    assert reading.get(f"/topics/{topic}/0", offset="latest")["next"] == 250
    empty = reading.get(f"/topics/{topic}/1")
    assert (empty["next"], empty["records"]) == (0, [])


def test_what_is_waited_for_comes_at_once(reading: Served, kafka: BrokerProcess, topic: str) -> None:
    write(kafka, topic, b"1")
    later = threading.Timer(0.5, write, (kafka, topic, b'{"late": true}'))
    later.start()
    began = time.monotonic()
    page = reading.get(f"/topics/{topic}/0", offset="latest", wait="20")
    assert 0.3 < time.monotonic() - began < 15
    assert [record["value"] for record in page["records"]] == [{"late": True}]
    assert reading.get(f"/topics/{topic}/0", offset="2", wait="1")["records"] == []
    later.join()


def test_values_keep_what_they_are(reading: Served, kafka: BrokerProcess, topic: str) -> None:
    exact = b'{"amount": 9.90, "id": 12345678901234567890}'
    write(kafka, topic, exact, b"plain", b"\xff\x00", None, b"NaN", b" [1]\n", "é".encode())
    write(kafka, topic, b"{}", key=b"\xfe", headers=[("trace", b"t1"), ("bin", b"\xff"), ("none", None)])
    answer = reading.client.get(f"/topics/{topic}/0")
    assert answer.headers["content-type"] == "application/json"
    assert exact in answer.content
    first, *others, last = answer.json()["records"]
    assert first["value"] == {"amount": 9.9, "id": 12345678901234567890}
    assert [record.get("value") for record in others] == ["plain", None, None, "NaN", [1], "é"]
    assert b64decode(others[1]["value_base64"]) == b"\xff\x00"
    assert "value_base64" not in others[2]
    assert (others[0]["key"], b64decode(last["key_base64"])) == (None, b"\xfe")
    assert last["headers"] == [
        {"name": "trace", "value": "t1"},
        {"name": "bin", "value_base64": "/w=="},
        {"name": "none", "value": None},
    ]


def test_only_what_is_committed_is_there(reading: Served, kafka: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(10)
    for number, commits in enumerate((False, True, False)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(10)
        (producer.commit_transaction if commits else producer.abort_transaction)(10)
    page = reading.get(f"/topics/{topic}/0")
    assert [record["value"] for record in page["records"]] == [1]
    rest = reading.get(f"/topics/{topic}/0", offset=str(page["next"]))
    assert (rest["records"], rest["next"]) == ([], page["end"])


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("TOPIC/0?offset=8", 416, "TOPIC-0 holds the offsets 0 to 1, and no 8"),
        ("TOPIC/7", 404, "TOPIC-7"),
        ("nothing/0", 404, "topic nothing"),
        ("__consumer_offsets/0", 404, "__consumer_offsets is not for reading here"),
        (
            "TOPIC/0?offset=-1",
            400,
            "offset=-1 does not fit: it is a whole number from 0 to .*, earliest or latest",
        ),
        ("TOPIC/0?limit=5000", 400, "limit=5000 does not fit: it is a whole number from 0 to 1000"),
        ("TOPIC/0?wait=x", 400, "wait=x does not fit: it is a whole number from 0 to 30"),
        ("TOPIC/x", 404, ""),
    ],
)
def test_what_is_refused(
    reading: Served, kafka: BrokerProcess, topic: str, path: str, status: int, reason: str
) -> None:
    write(kafka, topic, b"1")
    answer = reading.client.get(f"/topics/{path.replace('TOPIC', topic)}")
    assert answer.status_code == status, answer.text
    assert re.search(reason.replace("TOPIC", topic), answer.json()["error"])


def test_an_application_shows_its_own_topics_alone(
    store: ViewStore, kafka: BrokerProcess, topic: str
) -> None:
    app = App("shop")
    app.topic(topic.replace("-", "_"), "n int", key="n")
    with served(store, broker=at(kafka.bootstrap), app=app) as server:
        answer = server.client.get(f"/topics/{topic}/0")
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            f"the application has no topic {topic}: it has {topic.replace('-', '_')}",
        )


def test_the_keys_of_personal_data_are_nobodys(store: ViewStore, kafka: BrokerProcess, tmp_path: Any) -> None:
    stores = EventStores(KafkaUrl.parse(f"kafka://{kafka.bootstrap}"), ["people"], tmp_path)
    with served(store, broker=at(kafka.bootstrap), events=stores) as server:
        event = {"type": "Named", "data": {"name": "Ann"}, "personal": ["name"]}
        assert server.client.post("/events/people/1", json=event).status_code == 201
        assert server.client.get("/topics/people/0").status_code == 200
        assert server.client.get("/topics/people.keys/0").status_code == 404


def test_a_broker_that_is_away_is_503(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reads, "_ANSWER_SECONDS", 0.2)
    with served(store, broker=at(f"127.0.0.1:{free_port()}")) as server:
        assert server.client.get("/topics/orders/0").status_code == 503
    with served(store) as server:
        assert "no broker is given" in server.client.get("/topics/orders/0").json()["error"]


def test_more_at_once_than_there_are_threads_come_again(
    reading: Served, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reads, "_AT_ONCE", 1)
    waiting = threading.Thread(
        target=httpx.get, args=(f"{reading.url}/topics/{topic}/0?wait=3",), kwargs={"timeout": 20}
    )
    waiting.start()
    time.sleep(0.5)
    answer = reading.client.get(f"/topics/{topic}/0")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    waiting.join()
    assert reading.client.get(f"/topics/{topic}/0").status_code == 200
