"""Producing and consuming with confluent-kafka in as few words as tests want."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from .brokers import Broker

SECONDS = 20.0
AWAY = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


@dataclass(frozen=True)
class Delivery:
    """What the broker answered for one record."""

    error: KafkaError | None
    partition: int
    offset: int


def produce(
    broker: Broker,
    topic: str,
    values: Iterable[bytes | None],
    *,
    config: dict[str, Any] | None = None,
    **fields: Any,
) -> list[Delivery]:
    """Produce values, all with the same key, partition, headers or timestamp, and wait for the answers."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **(config or {})})
    deliveries: list[Delivery] = []

    def note(error: KafkaError | None, message: Message) -> None:
        offset, partition = message.offset(), message.partition()
        deliveries.append(
            Delivery(error, -1 if partition is None else partition, -1 if offset is None else offset)
        )

    for value in values:
        producer.produce(topic, value, on_delivery=note, **fields)
    assert producer.flush(SECONDS) == 0
    return deliveries


@contextmanager
def consumer(broker: Broker, group: str, **config: Any) -> Iterator[Consumer]:
    """Give a consumer that reads from the beginning and commits only when told."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    if settings.get("group.protocol", "classic") == "classic":
        settings.setdefault("heartbeat.interval.ms", 500)
    made = Consumer(settings)
    try:
        yield made
    finally:
        made.close()


def take(made: Consumer, count: int, seconds: float = SECONDS) -> list[Message]:
    """Consume exactly that many records, failing on an error or when time is up.

    What librdkafka reports while a broker is away is not an error: it connects again by itself.
    """
    taken: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(taken) < count and time.monotonic() < deadline:
        for message in made.consume(count - len(taken), timeout=0.2):
            error = message.error()
            if error is None:
                taken.append(message)
            else:
                assert error.retriable() or error.code() in AWAY, error
    assert len(taken) == count
    return taken


def read(broker: Broker, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Message]:
    """Consume from one partition without a group's help."""
    with consumer(broker, "reader") as made:
        made.assign([TopicPartition(topic, partition, offset)])
        return take(made, count)


def refused(broker: Broker, topic: str, value: bytes, **config: Any) -> int:
    """Produce one record that must be refused, and return the error's code."""
    [delivery] = produce(broker, topic, [value], config=config)
    assert delivery.error is not None
    return int(delivery.error.code())
