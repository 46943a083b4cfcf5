"""kombu: producers and consumers, serializers, pools, and its simple queues."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Queue
from kombu.pools import producers, reset

from clients.brokers import eventually

from .brokers import Broker

pytestmark = pytest.mark.real

SECONDS = 15


@pytest.fixture
def kombu(broker: Broker) -> Iterator[Connection]:
    """A connection of kombu's."""
    with Connection(broker.url(), heartbeat=10) as made:
        yield made


@pytest.mark.parametrize("serializer", ["json", "pickle", "raw"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_payloads_come_back(kombu: Connection, name: str, serializer: str, compression: str | None) -> None:
    payload: Any = b"bytes" if serializer == "raw" else {"order": 1, "lines": ["a", "ü"]}
    exchange = Exchange(name, type="direct", auto_delete=True)
    queue = Queue(name, exchange, routing_key="key", auto_delete=True)
    seen: list[Any] = []

    def note(received: Any, message: Any) -> None:
        seen.append(received)
        message.ack()

    with Consumer(kombu, queue, accept=["json", "pickle", "application/data"]) as consumer:
        consumer.register_callback(note)
        kombu.Producer().publish(
            payload,
            exchange=exchange,
            routing_key="key",
            serializer=None if serializer == "raw" else serializer,
            compression=compression,
            content_type="application/data" if serializer == "raw" else None,
            content_encoding="binary" if serializer == "raw" else None,
        )
        kombu.drain_events(timeout=SECONDS)
    assert seen == [payload]


def test_a_pool_of_producers_declares_and_retries(broker: Broker, name: str) -> None:
    exchange = Exchange(name, type="topic", durable=True)
    queue = Queue(name, exchange, routing_key="a.#", durable=True)
    with Connection(broker.url(), transport_options={"confirm_publish": True}) as connection:
        with producers[connection].acquire(block=True) as producer:
            for number in range(50):
                producer.publish(number, exchange=exchange, routing_key="a.b", declare=[queue], retry=True)
        bound = queue(connection.default_channel)
        seen = []
        while (message := bound.get()) is not None:
            seen.append(message.payload)
            message.ack()
        assert seen == list(range(50))
        bound.delete()
        exchange(connection.default_channel).delete()
    reset()


def test_simple_queues(kombu: Connection, name: str) -> None:
    with kombu.SimpleQueue(name) as queue:
        for number in range(5):
            queue.put({"n": number})
        eventually(queue.qsize, lambda seen: bool(seen == 5))
        seen = []
        for _each in range(5):
            message = queue.get(block=True, timeout=SECONDS)
            seen.append(message.payload["n"])
            message.ack()
        with pytest.raises(queue.Empty):
            queue.get(block=False)
    kombu.default_channel.queue_delete(name)
    assert seen == list(range(5))


def test_requeue_and_reject(kombu: Connection, name: str) -> None:
    queue = Queue(name, auto_delete=True, channel=kombu.default_channel)
    queue.declare()
    kombu.Producer().publish("m", routing_key=name)
    first = _get(queue)
    first.requeue()
    second = _get(queue)
    assert (first.delivery_info["redelivered"], second.delivery_info["redelivered"]) == (False, True)
    second.reject()
    assert queue.get() is None
    queue.delete()


def _get(queue: Queue) -> Any:
    for _turn in range(300):
        if (message := queue.get()) is not None:
            return message
    raise AssertionError("no message came")


def test_prefetch(kombu: Connection, name: str) -> None:
    queue = Queue(name, auto_delete=True, max_priority=9)
    seen: list[Any] = []
    with Consumer(kombu, queue, prefetch_count=2) as consumer:
        consumer.register_callback(lambda body, message: seen.append(body))
        producer = kombu.Producer()
        for number in range(5):
            producer.publish(number, routing_key=name)
        while len(seen) < 2:
            kombu.drain_events(timeout=SECONDS)
        with pytest.raises(socket.timeout):
            kombu.drain_events(timeout=0.3)
    assert seen == [0, 1]


def test_heartbeats(broker: Broker) -> None:
    with Connection(broker.url(), heartbeat=2) as connection:
        connection.connect()
        for _turn in range(8):
            connection.heartbeat_check(rate=2)
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.5)
        assert connection.connected
