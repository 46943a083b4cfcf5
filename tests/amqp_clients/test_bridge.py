"""The bridge between queues and topics, which RabbitMQ does not have: Headwater alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Broker, broker_of, new_process
from .pika_client import Inbox, count, declare, opened, publish, take

pytestmark = pytest.mark.real

SECONDS = 15
TOPIC = "x-headwater-topic"


def create(broker: Broker, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result(SECONDS)


def produce(broker: Broker, topic: str, *values: bytes, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka})
    for value in values:
        producer.produce(topic, value, key=key, headers={"h": b"x"})
    assert producer.flush(SECONDS) == 0


def read(broker: Broker, topic: str, number: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        found = consumer.consume(number, timeout=SECONDS)
        return [(message.key(), message.value()) for message in found]
    finally:
        consumer.close()


@pytest.fixture
def channel(headwater: Broker) -> Iterator[BlockingChannel]:
    """A channel that confirms."""
    with opened(headwater) as made:
        made.confirm_delivery()
        yield made


def test_a_queue_is_fed_from_a_topic(headwater: Broker, channel: BlockingChannel, name: str) -> None:
    create(headwater, name)
    produce(headwater, name, b"before")
    channel.queue_declare(name, durable=True, arguments={TOPIC: name, "x-headwater-offset": "first"})
    inbox = Inbox(channel)
    inbox.consume(name)
    produce(headwater, name, b"after", b"that", key=b"k")
    found = inbox.wait(3)
    assert [each.body for each in found] == [b"before", b"after", b"that"]
    channel.queue_delete(name)


def test_records_are_acknowledged_refused_and_given_again(
    headwater: Broker, channel: BlockingChannel, name: str
) -> None:
    create(headwater, name)
    channel.queue_declare(name, durable=True, arguments={TOPIC: name})
    produce(headwater, name, *(b"%d" % each for each in range(6)))
    with opened(headwater) as worker:
        held = take(worker, name, 4, auto_ack=False)
        worker.basic_ack(held[0].tag)
        worker.basic_reject(held[1].tag, requeue=False)
        worker.basic_nack(held[2].tag, requeue=True)
    found = take(channel, name, 4)
    assert [(each.body, each.redelivered) for each in found] == [
        (b"2", True),
        (b"3", True),
        (b"4", False),
        (b"5", False),
    ]
    assert count(channel, name) == 0
    assert [value for _key, value in read(headwater, name, 6)] == [b"%d" % each for each in range(6)]
    channel.queue_delete(name)


def test_an_exchange_appends_to_a_topic(headwater: Broker, channel: BlockingChannel, name: str) -> None:
    create(headwater, name)
    channel.exchange_declare(name, TOPIC, durable=True, arguments={"topic": name})
    publish(channel, "customer-1", b"a", b"b", exchange=name, delivery_mode=2)
    assert read(headwater, name, 2) == [(b"customer-1", b"a"), (b"customer-1", b"b")]
    channel.exchange_delete(name)


def test_a_message_goes_to_queues_and_a_topic_at_once(
    headwater: Broker, channel: BlockingChannel, name: str
) -> None:
    create(headwater, name)
    archive = f"{name}-archive"
    channel.exchange_declare(archive, TOPIC, arguments={"topic": name})
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.exchange_bind(archive, name)
    queue = declare(channel)
    channel.queue_bind(queue, name)
    publish(channel, "key", b"m", exchange=name)
    assert [each.body for each in take(channel, queue, 1)] == [b"m"]
    assert read(headwater, name, 1) == [(b"key", b"m")]


def test_the_place_in_the_topic_survives_a_crash(tmp_path: Path) -> None:
    with new_process("headwater", tmp_path / "data") as process:
        broker = broker_of(process)
        create(broker, "events", partitions=2)
        with opened(broker) as channel:
            channel.queue_declare("work", durable=True, arguments={TOPIC: "events"})
            produce(broker, "events", *(b"%d" % each for each in range(100)))
            done = take(channel, "work", 40, auto_ack=False)
            for found in done:
                channel.basic_ack(found.tag)
            channel.connection.sleep(1)
        process.kill()
        process.start()
        with opened(broker) as channel:
            left = take(channel, "work", 60)
            assert sorted(int(each.body) for each in [*done, *left]) == list(range(100))
            assert count(channel, "work") == 0
