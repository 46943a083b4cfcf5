"""The errors that confluent-kafka's users see."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .brokers import Broker, eventually, unique
from .confluent import SECONDS, consumer, produce, read, refused

pytestmark = pytest.mark.real


def test_a_record_that_is_too_large_is_refused_and_the_next_one_is_not(broker: Broker, topic: str) -> None:
    code = refused(broker, topic, b"x" * 1_100_000, **{"message.max.bytes": 5_000_000})
    assert code == KafkaError.MSG_SIZE_TOO_LARGE
    assert [each.offset for each in produce(broker, topic, [b"small"])] == [0]


def test_the_size_allowed_is_a_setting_of_the_topic(broker: Broker, admin: AdminClient) -> None:
    name = unique("narrow")
    admin.create_topics([NewTopic(name, 1, config={"max.message.bytes": "1000"})])[name].result(SECONDS)
    assert refused(broker, name, b"x" * 1_000) == KafkaError.MSG_SIZE_TOO_LARGE
    [delivery] = produce(broker, name, [b"x" * 800])
    assert delivery.error is None


def test_a_compacted_topic_wants_keys(broker: Broker, admin: AdminClient) -> None:
    name = unique("compacted")
    admin.create_topics([NewTopic(name, 1, config={"cleanup.policy": "compact"})])[name].result(SECONDS)
    assert refused(broker, name, b"no key") == KafkaError.INVALID_RECORD
    [delivery] = produce(broker, name, [b"v"], key=b"k")
    assert delivery.error is None


def test_a_record_from_the_future_is_refused(broker: Broker, topic: str) -> None:
    [delivery] = produce(broker, topic, [b"v"], timestamp=4_000_000_000_000)
    assert delivery.error is not None
    assert delivery.error.code() == KafkaError.INVALID_TIMESTAMP


def test_producing_to_a_topic_that_is_not_there_creates_it(broker: Broker, admin: AdminClient) -> None:
    name = unique("automatic")
    [delivery] = produce(broker, name, [b"first"])
    assert (delivery.error, delivery.offset) == (None, 0)
    assert len(admin.list_topics(timeout=SECONDS).topics[name].partitions) == 1


def test_a_partition_that_is_not_there_is_unknown(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    # The client queues a record while it has no metadata; with it, it refuses at once.
    assert len(producer.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == 1
    with pytest.raises(KafkaException) as unknown:
        producer.produce(topic, b"v", partition=7)
    assert unknown.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_a_name_that_is_not_allowed_is_an_error_of_the_topic(broker: Broker) -> None:
    assert refused(broker, "not allowed", b"v", **{"message.timeout.ms": 4000}) == KafkaError.TOPIC_EXCEPTION


def test_consuming_a_topic_that_is_not_there_is_an_error(broker: Broker, group: str) -> None:
    with consumer(broker, group) as made:
        made.subscribe([unique("absent")])
        message = eventually(lambda: made.poll(0.1), lambda seen: seen is not None)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_consumers_do_not_create_topics(broker: Broker, admin: AdminClient, group: str) -> None:
    name = unique("absent")
    with consumer(broker, group) as made:
        made.subscribe([name])
        eventually(lambda: made.poll(0.1), lambda seen: seen is not None)
    assert name not in admin.list_topics(timeout=SECONDS).topics


@pytest.mark.parametrize("offset", [5, 1_000_000])
def test_an_offset_out_of_range_is_reported(broker: Broker, topic: str, offset: int) -> None:
    produce(broker, topic, [b"a", b"b"])
    with consumer(broker, "reader", auto_offset_reset="error") as made:
        made.assign([TopicPartition(topic, 0, offset)])
        message = eventually(lambda: made.poll(0.1), lambda seen: seen is not None)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str()


def test_an_offset_out_of_range_is_reset_where_asked(broker: Broker, topic: str) -> None:
    produce(broker, topic, [b"a", b"b"])
    assert [message.offset() for message in read(broker, topic, 2, offset=1_000)] == [0, 1]
