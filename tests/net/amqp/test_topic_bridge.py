"""Queues that are fed from topics and exchanges that append to them, beyond what tests/amqp_clients show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pika.adapters.blocking_connection import BlockingChannel

from amqp_clients.brokers import Broker, broker_of
from amqp_clients.pika_client import Inbox, bodies, channel_closed, count, get, opened, publish, take
from clients.brokers import unique
from headwater.testing.process import BrokerProcess

pytestmark = pytest.mark.real

SECONDS = 15
TOPIC, OFFSET = "x-headwater-topic", "x-headwater-offset"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Headwater, which makes no topic by itself."""
    data = tmp_path_factory.mktemp("bridge") / "data"
    with BrokerProcess(data, amqp=True, settings={"auto.create.topics.enable": "false"}) as process:
        yield broker_of(process)


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    """A channel that confirms."""
    with opened(broker) as made:
        made.confirm_delivery()
        yield made


@pytest.fixture
def name() -> str:
    """A name that nobody has used."""
    return unique("b")


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, num_partitions=partitions, config=settings)])[topic].result(SECONDS)


def produce(broker: Broker, topic: str, *values: bytes | None, **options: Any) -> None:
    compression = options.pop("compression", "none")
    producer = Producer({"bootstrap.servers": broker.kafka, "compression.type": compression, "linger.ms": 50})
    for value in values:
        producer.produce(topic, value, **options)
    assert producer.flush(SECONDS) == 0


def fed(
    channel: BlockingChannel, name: str, arguments: dict[str, Any] | None = None, *, durable: bool = True
) -> None:
    arguments = {TOPIC: name, **(arguments or {})}
    channel.queue_declare(name, durable=durable, exclusive=not durable, arguments=arguments)


def records(broker: Broker, topic: str, partitions: int, number: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "none"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    try:
        return consumer.consume(number, timeout=SECONDS)
    finally:
        consumer.close()


# -- from topics to queues -----------------------------------------------------------------------


def test_a_queue_begins_where_it_is_told_to(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    for i in range(4):
        produce(broker, name, b"%d" % i, timestamp=1_700_000_000_000 + 1000 * i)
    expected = {
        "first": [b"0", b"1", b"2", b"3", b"new"],
        "last": [b"3", b"new"],
        "next": [b"new"],
        2: [b"2", b"3", b"new"],
        datetime.fromtimestamp(1_700_000_001, UTC): [b"1", b"2", b"3", b"new"],
    }
    for i, offset in enumerate(expected):
        channel.queue_declare(f"{name}-{i}", durable=True, arguments={TOPIC: name, OFFSET: offset})
    channel.queue_declare(f"{name}-default", durable=True, arguments={TOPIC: name})
    produce(broker, name, b"new")
    for i, values in enumerate(expected.values()):
        assert bodies(channel, f"{name}-{i}", len(values)) == values
    assert bodies(channel, f"{name}-default", 1) == [b"new"]


def test_every_record_says_where_it_is_from(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    fed(channel, name)
    produce(broker, name, b"v", key=b"k", headers={"h": b"x"}, timestamp=1_700_000_000_123)
    produce(broker, name, None, key=b"k")
    found, tombstone = take(channel, name, 2)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"v", "", "k")
    assert found.headers == {
        "h": "x",
        "x-headwater-topic": name,
        "x-headwater-partition": 0,
        "x-headwater-offset": 0,
        "x-headwater-timestamp": 1_700_000_000_123,
    }
    assert (tombstone.body, tombstone.headers["x-headwater-tombstone"]) == (b"", True)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_delivered(
    broker: Broker, channel: BlockingChannel, name: str, codec: str
) -> None:
    create(broker, name)
    fed(channel, name)
    values = [b"%d" % i * 50 for i in range(50)]
    produce(broker, name, *values, compression=codec)
    assert bodies(channel, name, 50) == values


def test_only_what_was_committed_is_delivered(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    fed(channel, name)
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": name})
    producer.init_transactions(SECONDS)
    for i in range(6):
        producer.begin_transaction()
        producer.produce(name, b"%d" % i)
        producer.flush(SECONDS)
        if i == 5:
            break
        if i % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    assert bodies(channel, name, 3) == [b"0", b"2", b"4"]
    producer.commit_transaction(SECONDS)
    assert bodies(channel, name, 1) == [b"5"]


def test_all_partitions_are_followed_and_new_ones_from_their_start(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name, 3)
    fed(channel, name)
    inbox = Inbox(channel)
    inbox.consume(name, auto_ack=True)
    for partition in range(3):
        produce(broker, name, b"%d" % partition, partition=partition)
    assert sorted(inbox.bodies(3)) == [b"0", b"1", b"2"]
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_partitions([NewPartitions(name, 5)])[name].result(SECONDS)
    produce(broker, name, b"4", partition=4)
    assert inbox.bodies(1) == [b"4"]


def test_order_within_a_partition_survives_a_slow_consumer(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name, 2)
    fed(channel, name)
    for partition in range(2):
        values = [b"%d-%05d-%s" % (partition, i, b"x" * 400) for i in range(2000)]
        produce(broker, name, *values, partition=partition)
    channel.basic_qos(prefetch_count=100)
    inbox = Inbox(channel)
    inbox.consume(name)
    seen: dict[bytes, list[bytes]] = {b"0": [], b"1": []}
    for _ in range(80):
        some = inbox.wait(50)
        for found in some:
            source, number, _ = found.body.split(b"-")
            seen[source].append(number)
        channel.basic_ack(some[-1].tag, multiple=True)
    assert seen == {key: [b"%05d" % i for i in range(2000)] for key in (b"0", b"1")}


def test_what_is_rejected_goes_to_the_dead_letter_exchange(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name)
    dead = str(channel.queue_declare("", exclusive=True).method.queue)
    fed(channel, name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    produce(broker, name, b"bad", key=b"k")
    [found] = take(channel, name, 1, auto_ack=False)
    channel.basic_reject(found.tag, requeue=False)
    [letter] = take(channel, dead, 1)
    assert letter.body == b"bad"
    death = letter.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["routing-keys"]) == (name, "rejected", ["k"])
    assert letter.headers["x-headwater-offset"] == 0


def test_records_expire_by_their_own_time(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    fed(channel, name, {"x-message-ttl": 3_600_000})
    produce(broker, name, b"old", timestamp=1_600_000_000_000)
    produce(broker, name, b"young")
    assert bodies(channel, name, 1) == [b"young"]


def test_a_purge_passes_over_what_is_there(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    fed(channel, name)
    produce(broker, name, *[b"x"] * 10)
    take(channel, name, 2)
    assert count(channel, name) == 8
    assert channel.queue_purge(name).method.message_count == 8
    assert count(channel, name) == 0
    produce(broker, name, b"after")
    assert bodies(channel, name, 1) == [b"after"]


def test_a_transient_queue_follows_a_topic_as_long_as_its_connection(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name)
    with opened(broker) as other:
        fed(other, name, durable=False)
        produce(broker, name, b"a")
        assert bodies(other, name, 1) == [b"a"]
    fed(channel, name, durable=False)
    produce(broker, name, b"b")
    assert bodies(channel, name, 1) == [b"b"]


def test_a_topic_made_again_begins_again(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    fed(channel, name)
    produce(broker, name, *[b"old"] * 5)
    [held] = take(channel, name, 1, auto_ack=False)
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.delete_topics([name])[name].result(SECONDS)
    assert count(channel, name) == 0
    channel.basic_nack(held.tag)
    create(broker, name)
    produce(broker, name, b"new")
    assert bodies(channel, name, 1) == [b"new"]


def test_retention_takes_records_from_the_queue_too(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name)
    fed(channel, name)
    produce(broker, name, *(b"%d" % i for i in range(10)))
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.delete_records([TopicPartition(name, 0, 6)])[TopicPartition(name, 0, 6)].result(SECONDS)
    assert bodies(channel, name, 4) == [b"6", b"7", b"8", b"9"]


def test_exchanges_put_nothing_into_such_a_queue(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    fed(channel, name)
    text = f"PRECONDITION_FAILED - queue '{name}' in vhost '/' takes messages from its topic alone"
    with channel_closed(406, text):
        channel.basic_publish("", name, b"x")


def test_a_topic_that_is_not_there_is_not_made_here(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    with opened(broker) as other, channel_closed(404, f"NOT_FOUND - no topic '{name}'"):
        fed(other, name)
    with opened(broker) as other:
        other.exchange_declare(name, TOPIC, arguments={"topic": name})
        other.confirm_delivery()
        with channel_closed(404, f"NOT_FOUND - no topic '{name}'"):
            other.basic_publish(name, "k", b"x")
    with opened(broker) as other:
        refused = "ACCESS_REFUSED - topic '__consumer_offsets' is the broker's own"
        with channel_closed(403, refused):
            other.queue_declare(name, arguments={TOPIC: "__consumer_offsets"})


def test_a_crash_brings_back_what_was_not_acknowledged_and_flags_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        with opened(broker) as channel:  # which makes the topic
            fed(channel, "work")
            produce(broker, "work", *(b"%d" % i for i in range(20)))
            held = take(channel, "work", 10, auto_ack=False)
            for found in held[::2]:
                channel.basic_ack(found.tag)
            channel.connection.sleep(0.5)
        process.kill()
        process.start()
        with opened(broker) as channel:
            left = take(channel, "work", 15)
            assert [int(found.body) for found in left] == [1, 3, 5, 7, 9, *range(10, 20)]
            assert all(found.redelivered for found in left[:5])
            channel.connection.sleep(0.3)
        process.restart()
        with opened(broker) as channel:
            assert get(channel, "work") is None
            produce(broker, "work", b"fresh")
            [found] = take(channel, "work", 1)
            assert (found.body, found.redelivered) == (b"fresh", False)


def test_a_crash_does_not_forget_how_often_a_record_was_tried(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        with opened(broker) as channel:
            fed(channel, "work", {"x-queue-type": "quorum", "x-delivery-limit": 3})
            produce(broker, "work", b"poison")
            for _ in range(3):
                [found] = take(channel, "work", 1, auto_ack=False)
                channel.basic_nack(found.tag, requeue=True)
            channel.connection.sleep(0.3)
        process.kill()
        process.start()
        with opened(broker) as channel:
            [found] = take(channel, "work", 1, auto_ack=False)
            assert found.headers["x-delivery-count"] == 3
            channel.basic_nack(found.tag, requeue=True)
            channel.connection.sleep(0.2)
            assert get(channel, "work") is None


# -- from exchanges to topics --------------------------------------------------------------------


def test_records_carry_headers_and_properties(broker: Broker, channel: BlockingChannel, name: str) -> None:
    create(broker, name)
    channel.exchange_declare(name, TOPIC, durable=True, arguments={"topic": name})
    properties = pika.BasicProperties(
        content_type="application/json",
        message_id="m",
        correlation_id="c",
        headers={"tenant": "acme", "n": 5},
    )
    channel.basic_publish(name, "key", b"{}", properties)
    channel.basic_publish(name, "", b"no key")
    first, second = records(broker, name, 1, 2)
    assert (first.key(), first.value()) == (b"key", b"{}")
    assert dict(first.headers()) == {
        "tenant": b"acme",
        "n": b"5",
        "amqp.content_type": b"application/json",
        "amqp.message_id": b"m",
        "amqp.correlation_id": b"c",
    }
    assert first.timestamp()[0] != TIMESTAMP_NOT_AVAILABLE
    assert (second.key(), second.value(), second.headers()) == (None, b"no key", None)


def test_keys_go_to_the_partitions_that_kafkas_clients_choose(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    theirs = f"{name}-theirs"
    for topic in (name, theirs):
        create(broker, topic, 7)
    channel.exchange_declare(name, TOPIC, arguments={"topic": name})
    keys = [f"key-{i}" for i in range(50)]
    for key in keys:
        channel.basic_publish(name, key, b"x")
    producer = Producer({"bootstrap.servers": broker.kafka, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs, b"x", key=key.encode())
    assert producer.flush(SECONDS) == 0
    ours = {found.key(): found.partition() for found in records(broker, name, 7, 50)}
    assert ours == {found.key(): found.partition() for found in records(broker, theirs, 7, 50)}


def test_what_a_topic_does_not_take_closes_the_channel(broker: Broker, name: str) -> None:
    create(broker, name, max_message_bytes="1000", cleanup_policy="compact")
    for routing_key, body, text in (
        ("k", b"x" * 2000, f"message size 2000 is too large for topic '{name}' (max.message.bytes=1000)"),
        ("", b"x", f"topic '{name}' is compacted: a message for it needs a routing key"),
    ):
        with opened(broker) as channel:
            channel.confirm_delivery()
            channel.exchange_declare(name, TOPIC, arguments={"topic": name})
            with channel_closed(406, f"PRECONDITION_FAILED - {text}"):
                channel.basic_publish(name, routing_key, body)
    with opened(broker) as channel:
        channel.confirm_delivery()
        publish(channel, "k", *[b"y" * 300] * 20, exchange=name)
    assert len(records(broker, name, 1, 20)) == 20


def test_many_messages_without_confirms_keep_their_order(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name)
    channel.exchange_declare(name, TOPIC, arguments={"topic": name})
    with opened(broker) as other:
        for i in range(2000):
            other.basic_publish(name, "k", b"%d" % i)
        other.basic_qos()
    found = records(broker, name, 1, 2000)
    assert [each.value() for each in found] == [b"%d" % i for i in range(2000)]


def test_a_confirmed_record_survives_a_crash(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        with opened(broker) as channel:
            channel.confirm_delivery()
            channel.exchange_declare("log", TOPIC, durable=True, arguments={"topic": "log"})
            for i in range(20):
                channel.basic_publish("log", "k", b"%d" % i)
        process.kill()
        process.start()
        assert [found.value() for found in records(broker, "log", 1, 20)] == [b"%d" % i for i in range(20)]


def test_a_dead_letter_exchange_may_append_to_a_topic(
    broker: Broker, channel: BlockingChannel, name: str
) -> None:
    create(broker, name)
    channel.exchange_declare(name, TOPIC, arguments={"topic": name})
    arguments = {"x-dead-letter-exchange": name}
    queue = str(channel.queue_declare("", exclusive=True, arguments=arguments).method.queue)
    channel.basic_publish("", queue, b"poison")
    [found] = take(channel, queue, 1, auto_ack=False)
    channel.basic_reject(found.tag, requeue=False)
    [record] = records(broker, name, 1, 1)
    assert record.value() == b"poison"
    assert b'"reason": "rejected"' in dict(record.headers())["x-death"]
