"""confluent-kafka's transactional producer: commit, abort, fencing, offsets, and who sees what."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .brokers import Broker, eventually, unique
from .confluent import SECONDS, consumer

pytestmark = pytest.mark.real


def transactional(broker: Broker, name: str, **config: object) -> Producer:
    """Give a producer of a transactional id that has fenced whoever had it before."""
    made = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, **config}
    )
    made.init_transactions(SECONDS)
    return made


def send(made: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Produce to a partition, and wait until the records are stored."""
    for value in values:
        made.produce(topic, value, partition=partition)
    assert made.flush(SECONDS) == 0


def seen(broker: Broker, topic: str, *, committed: bool, partition: int = 0) -> list[bytes | None]:
    """Read a partition up to where its reader is told that it ends."""
    isolation = "read_committed" if committed else "read_uncommitted"
    found: list[bytes | None] = []
    with consumer(broker, unique("reader"), isolation_level=isolation, enable_partition_eof=True) as made:
        made.assign([TopicPartition(topic, partition, 0)])
        while True:
            for message in made.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    found.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    assert error.retriable(), error


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker: Broker, topic: str) -> None:
    made = transactional(broker, unique("txn"))
    for number in range(6):
        made.begin_transaction()
        send(made, topic, b"%d-a" % number, b"%d-b" % number)
        if number % 2:
            made.abort_transaction(SECONDS)
        else:
            made.commit_transaction(SECONDS)
    wanted = [b"%d-%s" % (number, part) for number in (0, 2, 4) for part in (b"a", b"b")]
    # Kafka answers a commit before its markers are in the partitions.
    assert eventually(lambda: seen(broker, topic, committed=True), lambda found: len(found) == 6) == wanted
    everything = [b"%d-%s" % (number, part) for number in range(6) for part in (b"a", b"b")]
    assert seen(broker, topic, committed=False) == everything


def test_an_open_transaction_holds_readers_of_committed_records_back(broker: Broker, topic: str) -> None:
    made = transactional(broker, unique("txn"))
    made.begin_transaction()
    send(made, topic, b"open")
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, topic, b"after it")
    assert seen(broker, topic, committed=True) == []
    assert seen(broker, topic, committed=False) == [b"open", b"after it"]
    made.commit_transaction(SECONDS)
    found = eventually(lambda: seen(broker, topic, committed=True), lambda found: len(found) == 2)
    assert found == [b"open", b"after it"]


def test_all_partitions_of_a_transaction_end_together(broker: Broker, wide_topic: str) -> None:
    made = transactional(broker, unique("txn"))
    for commit in (False, True):
        made.begin_transaction()
        for partition in range(4):
            send(made, wide_topic, b"%d" % commit, partition=partition)
        (made.commit_transaction if commit else made.abort_transaction)(SECONDS)
    for partition in range(4):

        def look(partition: int = partition) -> list[bytes | None]:
            return seen(broker, wide_topic, committed=True, partition=partition)

        assert eventually(look, lambda found: len(found) == 1) == [b"1"]


def test_a_second_instance_fences_the_first(broker: Broker, topic: str) -> None:
    name = unique("txn")
    first = transactional(broker, name)
    first.begin_transaction()
    send(first, topic, b"zombie")
    second = transactional(broker, name)
    second.begin_transaction()
    send(second, topic, b"heir")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    second.commit_transaction(SECONDS)
    found = eventually(lambda: seen(broker, topic, committed=True), lambda found: len(found) == 1)
    assert found == [b"heir"]


def test_a_fenced_instance_cannot_produce(broker: Broker, topic: str) -> None:
    name = unique("txn")
    first = transactional(broker, name)
    first.begin_transaction()
    send(first, topic, b"zombie")
    transactional(broker, name)
    first.produce(topic, b"late", partition=0)
    with pytest.raises(KafkaException) as caught:
        first.flush(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert seen(broker, topic, committed=True) == []
    assert seen(broker, topic, committed=False) == [b"zombie"]


def committed_offset(made: Consumer, topic: str) -> int:
    [position] = made.committed([TopicPartition(topic, 0)], timeout=SECONDS)
    assert position.error is None
    return position.offset


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: Broker, topic: str, group: str
) -> None:
    made = transactional(broker, unique("txn"))
    with consumer(broker, group) as reader:
        reader.subscribe([topic])
        eventually(lambda: (reader.poll(0.2), reader.assignment())[1], bool)
        metadata = reader.consumer_group_metadata()
        for offset, commit in ((5, True), (9, False), (12, True)):
            before = committed_offset(reader, topic)
            made.begin_transaction()
            send(made, topic, b"%d" % offset)
            made.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, SECONDS)
            (made.commit_transaction if commit else made.abort_transaction)(SECONDS)
            wanted = offset if commit else before
            eventually(lambda: committed_offset(reader, topic), wanted.__eq__)


def test_a_member_of_an_old_generation_cannot_commit(broker: Broker, topic: str, group: str) -> None:
    made = transactional(broker, unique("txn"))
    with consumer(broker, group) as reader:
        reader.subscribe([topic])
        eventually(lambda: (reader.poll(0.2), reader.assignment())[1], bool)
        stale = reader.consumer_group_metadata()
    with consumer(broker, group) as heir:
        heir.subscribe([topic])
        eventually(lambda: (heir.poll(0.2), heir.assignment())[1], bool)
        made.begin_transaction()
        with pytest.raises(KafkaException) as caught:
            made.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], stale, SECONDS)
        assert caught.value.args[0].txn_requires_abort()
        made.abort_transaction(SECONDS)


def test_an_abandoned_transaction_is_aborted_when_its_time_is_over(broker: Broker, topic: str) -> None:
    made = transactional(broker, unique("txn"), **{"transaction.timeout.ms": 1000})
    made.begin_transaction()
    began = time.monotonic()
    send(made, topic, b"abandoned")
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, topic, b"after it")
    # Kafka looks every ten seconds, Headwater every half.
    found = eventually(lambda: seen(broker, topic, committed=True), bool, seconds=20)
    assert found == [b"after it"]
    if broker.name == "headwater":
        assert time.monotonic() - began < 1 + 1 + 0.5
    with pytest.raises(KafkaException):
        made.commit_transaction(SECONDS)


def test_a_timeout_beyond_the_limit_is_refused(broker: Broker) -> None:
    with pytest.raises(KafkaException) as caught:
        transactional(broker, unique("txn"), **{"transaction.timeout.ms": 900_001})
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
