"""Records over HTTP: under idempotency keys, as lines, and waited for by whoever wrote them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.core.urls import KafkaUrl
from headwater.serve.broker import Broker
from headwater.testing.process import BrokerProcess
from headwater.views import ViewDefinition, ViewStore

from .serve_helpers import Served, served

pytestmark = pytest.mark.real


@pytest.fixture
def posting(store: ViewStore, kafka: BrokerProcess) -> Iterator[Served]:
    with served(store, broker=Broker(KafkaUrl.parse(f"kafka://{kafka.bootstrap}"))) as server:
        yield server


def values(kafka: BrokerProcess, topic: str) -> list[bytes]:
    """Return what is committed in a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: list[bytes] = []
    ends = 0
    while ends < 2:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append(message.value() or b"")
        else:
            ends += 1
    consumer.close()
    return found


def post(url: str, topic: str, body: str, key: str | None, kind: str = "application/json") -> httpx.Response:
    headers = {"Content-Type": kind} | ({"Idempotency-Key": key} if key is not None else {})
    return httpx.post(f"{url}/topics/{topic}", content=body, headers=headers, timeout=40, trust_env=False)


def test_a_key_is_written_once_and_answered_alike(posting: Served, kafka: BrokerProcess, topic: str) -> None:
    body = '[{"n": 1}, {"n": 2.50}]'
    first = post(posting.url, topic, body, "k1")
    assert first.status_code == 200, first.text
    again = post(posting.url, topic, body, "k1")
    assert again.json() == first.json()
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    other = post(posting.url, topic, '{"n": 3}', "k1")
    assert (other.status_code, "came with other records before" in other.json()["error"]) == (422, True)
    assert post(posting.url, topic, body, "k" * 201).status_code == 400
    assert post(posting.url, "nothing", body, "k2").status_code == 404
    assert post(posting.url, topic, json.dumps({"n": "x" * 3_000_000}), "k3").status_code == 413
    healed = post(posting.url, topic, body, "k4")
    assert healed.status_code == 200, healed.text
    assert sorted(values(kafka, topic)) == sorted([b'{"n": 1}', b'{"n": 2.50}'] * 2)


def test_keys_outlive_the_server_and_another_server_knows_them(
    store: ViewStore, kafka: BrokerProcess, topic: str
) -> None:
    def start() -> Broker:
        return Broker(KafkaUrl.parse(f"kafka://{kafka.bootstrap}"))

    with served(store, broker=start()) as one:
        first = post(one.url, topic, '{"n": 1}', "k").json()
    with served(store, broker=start()) as one, served(store, broker=start()) as two:
        assert post(one.url, topic, '{"n": 1}', "k").json() == first
        # Each takes over from the other, and knows what it wrote.
        for n in range(3):
            made = post(one.url, topic, f'{{"m": {n}}}', f"m{n}").json()
            assert post(two.url, topic, f'{{"m": {n}}}', f"m{n}").json() == made
    assert len(values(kafka, topic)) == 4


def test_many_clients_that_ask_again_and_again(posting: Served, kafka: BrokerProcess, topic: str) -> None:
    answers: dict[str, set[str]] = {f"k{n}": set() for n in range(20)}

    def work() -> None:
        for key, seen in answers.items():
            found = post(posting.url, topic, json.dumps({"key": key}), key)
            assert found.status_code == 200, found.text
            seen.add(found.text)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(len(seen) == 1 for seen in answers.values())
    assert sorted(values(kafka, topic)) == sorted(json.dumps({"key": key}).encode() for key in answers)


def test_lines_are_taken_as_they_come(posting: Served, kafka: BrokerProcess, topic: str) -> None:
    def body() -> Iterator[bytes]:
        for n in range(2500):
            text = f'{{"n": {n}}}\n'.encode()
            yield text[:4]
            yield text[4:]

    answer = posting.client.post(
        f"/topics/{topic}", content=body(), headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["count"] == 2500
    assert {int(json.loads(value)["n"]) for value in values(kafka, topic)} == set(range(2500))
    assert answer.json()["token"].startswith(f"{topic}:")
    bad = post(posting.url, topic, '{"n": 1}\n' * 1500 + "nonsense\n", None, "application/x-ndjson")
    assert bad.status_code == 400
    assert "record 1500: the body is no JSON" in bad.json()["error"]
    assert "the 1000 records before this part are in the topic" in bad.json()["error"]
    listed = post(posting.url, topic, "[{}]\n", None, "application/x-ndjson")
    assert (listed.status_code, "a line is one object" in listed.json()["error"]) == (400, True)


def test_lines_under_a_key_are_one_request(posting: Served, kafka: BrokerProcess, topic: str) -> None:
    for _ in range(2):
        answer = post(posting.url, topic, '{"n": 1}\n\n{"n": 2}\n', "lines", "application/x-ndjson")
        assert (answer.status_code, len(answer.json()["records"])) == (200, 2)
    assert post(posting.url, topic, '{"n": 1}\nnonsense', "others", "application/jsonl").status_code == 400
    assert len(values(kafka, topic)) == 2


def test_a_read_waits_for_what_was_written(
    posting: Served, store: ViewStore, kafka: BrokerProcess, topic: str
) -> None:
    token = post(posting.url, topic, '[{"n": 1}, {"n": 2}]', None).json()["token"]
    early = posting.client.get("/views/sales", params={"wait": token, "timeout": "0.1"})
    assert (early.status_code, "no pipeline has written sales yet" in early.json()["error"]) == (503, True)
    store.put_status("shop.sales", "{}")
    late = posting.client.get("/views/sales/DE", params={"wait": token, "timeout": "0.1"})
    assert late.status_code == 504
    assert "and not " in late.json()["error"]
    assert "has read the offsets before 0 of partition" in late.json()["error"]

    def commit() -> None:
        time.sleep(0.3)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "headwater.shop.sales"})
        consumer.commit(
            offsets=[TopicPartition(topic, partition, 10) for partition in range(2)], asynchronous=False
        )
        consumer.close()

    thread = threading.Thread(target=commit)
    began = time.monotonic()
    thread.start()
    assert posting.client.get("/views/sales/DE", params={"wait": token}).status_code == 200
    assert time.monotonic() - began >= 0.3
    thread.join()
    assert posting.client.get("/views/sales", params={"wait": token}).status_code == 200
    wrong = posting.client.get("/views/sales", params={"wait": "nowhere:0:1", "timeout": "0"})
    assert (wrong.status_code, "does not read the topic nowhere" in wrong.json()["error"]) == (504, True)
    for text in ("orders", "orders:0", "orders:x:1", ":0:1", "a:0:1,"):
        assert posting.client.get("/views/sales", params={"wait": text}).status_code == 400
    store.define(ViewDefinition("quiet", ("k",)))
    assert posting.client.get("/views/nothing", params={"wait": token}).status_code == 404
