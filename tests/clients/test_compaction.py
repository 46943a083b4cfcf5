"""Compaction and retention, as clients see them."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .brokers import Broker, eventually, unique
from .tools import CONSOLE_CONSUMER, Tools

with warnings.catch_warnings():
    # It reads its schemas, when it is imported, with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.timeout(180),
]

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
# Kafka waits before it looks after its logs for the first time, and wants three copies of its transactions.
KAFKA_SETTINGS = {
    "log.initial.task.delay.ms": "200",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "100",
}
Pairs = list[tuple[int, bytes, bytes | None]]


@pytest.fixture(scope="module", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that looks after its logs all the time."""
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("quick") / "data", settings=SETTINGS) as ours:
            yield Broker("headwater", ours.host, ours.port)
    else:
        request.getfixturevalue("java")
        with RealKafka(properties=SETTINGS | KAFKA_SETTINGS) as kafka:
            yield Broker("kafka", kafka.host, kafka.port)


def create(broker: Broker, **config: str) -> str:
    name = unique("kept")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
    for future in admin.create_topics([topic]).values():
        future.result(20)
    return name


def compacted(broker: Broker, **config: str) -> str:
    return create(broker, **COMPACTED | config)


def write(broker: Broker, topic: str, pairs: list[tuple[bytes, bytes | None]]) -> None:
    """Produce records in batches of their own, so that whole batches vanish."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for key, value in pairs:
        producer.produce(topic, value, key)
        assert producer.flush(20) == 0


def roll(broker: Broker, topic: str) -> None:
    """Have the growing segment end, by what comes after its time."""
    time.sleep(0.15)
    write(broker, topic, [(b"end", b"end")])


def read(broker: Broker, topic: str) -> Pairs:
    """Read a topic from its beginning to its end with librdkafka."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "none",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    found: Pairs = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(20)
            assert message is not None, "the end was not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert key is not None
            found.append((offset, key, message.value()))


def without_end(found: Pairs) -> Pairs:
    return [row for row in found if row[1] != b"end"]


def fill(broker: Broker) -> tuple[str, Pairs]:
    """Return a topic that was compacted down to three keys, with many whole batches gone."""
    topic = compacted(broker)
    write(broker, topic, [(b"key-%d" % (i % 3), b"%d" % i) for i in range(30)])
    roll(broker, topic)
    expected: Pairs = [(27 + i, b"key-%d" % i, b"%d" % (27 + i)) for i in range(3)]
    eventually(lambda: without_end(read(broker, topic)), lambda seen: seen == expected, seconds=60)
    return topic, expected


def test_the_newest_of_every_key_stays_at_its_offset(quick: Broker) -> None:
    topic, expected = fill(quick)
    # What comes later replaces what is there, and nothing moves.
    write(quick, topic, [(b"key-1", b"new")])
    roll(quick, topic)
    wanted = [expected[0], expected[2], (31, b"key-1", b"new")]
    eventually(lambda: without_end(read(quick, topic)), lambda seen: seen == wanted, seconds=60)


def test_aiokafka_reads_a_compacted_topic(quick: Broker) -> None:
    topic, expected = fill(quick)

    async def consume() -> Pairs:
        consumer = AIOKafkaConsumer(bootstrap_servers=quick.bootstrap, isolation_level="read_committed")
        await consumer.start()
        try:
            partition = AioPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            rows = [await asyncio.wait_for(consumer.getone(), 20) for _ in range(4)]
            return [(row.offset, row.key or b"", row.value) for row in rows]
        finally:
            await consumer.stop()

    assert without_end(asyncio.run(consume())) == expected


def test_kafka_python_reads_a_compacted_topic(quick: Broker) -> None:
    topic, expected = fill(quick)
    with closing(KafkaConsumer(bootstrap_servers=quick.bootstrap, consumer_timeout_ms=20_000)) as consumer:
        partition = PythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        rows = [next(consumer) for _ in range(4)]
    assert without_end([(row.offset, row.key, row.value) for row in rows]) == expected


def test_javas_consumer_reads_a_compacted_topic(java: str, quick: Broker, tmp_path: Path) -> None:
    topic, expected = fill(quick)
    ended = Tools(quick, tmp_path).try_(
        CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "4", "--timeout-ms", "20000"
    )
    assert ended.lines[:3] == [value.decode() for _, _, value in expected if value is not None]


def test_tombstones_vanish(quick: Broker) -> None:
    topic = compacted(quick)
    write(quick, topic, [(b"gone", b"1"), (b"kept", b"1"), (b"gone", None)])

    def settle() -> Pairs:
        roll(quick, topic)  # Kafka looks again only at what was written to
        return without_end(read(quick, topic))

    eventually(settle, lambda seen: seen == [(1, b"kept", b"1")], seconds=60)


def test_aborted_records_are_compacted_away(quick: Broker) -> None:
    topic = compacted(quick)
    producer = Producer({"bootstrap.servers": quick.bootstrap, "transactional.id": unique("writer")})
    producer.init_transactions(30)
    for turn, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % turn, b"key")
        producer.produce(topic, b"%d" % turn, b"key-%d" % turn)
        producer.flush(20)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def settle() -> list[tuple[bytes, bytes | None]]:
        roll(quick, topic)
        return [(key, value) for _, key, value in without_end(read(quick, topic))]

    expected = [(b"key-0", b"0"), (b"key", b"2"), (b"key-2", b"2")]
    eventually(settle, lambda seen: seen == expected, seconds=60)
    for _ in range(5):
        assert settle() == expected, "and it stays so while the markers go"


def earliest(broker: Broker, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = {TopicPartition(topic, 0): OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
    [future] = admin.list_offsets(asked).values()
    return int(future.result(20).offset)


def test_records_expire_by_their_timestamps(quick: Broker) -> None:
    topic = create(quick, **{"retention.ms": "3600000", "segment.ms": "100"})
    producer = Producer({"bootstrap.servers": quick.bootstrap})
    hour_ago = int(time.time() * 1000) - 3_600_000
    for timestamp in (hour_ago - 5000, hour_ago - 4000, hour_ago + 600_000):
        producer.produce(topic, b"x", timestamp=timestamp)
        assert producer.flush(20) == 0
    eventually(lambda: earliest(quick, topic), lambda seen: seen == 2, seconds=30)
    with closing(
        Consumer({"bootstrap.servers": quick.bootstrap, "group.id": "none", "auto.offset.reset": "error"})
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1)])
        message = consumer.poll(20)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in error.str()


def test_a_topic_whose_records_all_expired_is_empty_and_goes_on(quick: Broker) -> None:
    topic = create(quick, **{"retention.ms": "300"})
    write(quick, topic, [(b"a", b"1"), (b"b", b"2")])
    eventually(lambda: earliest(quick, topic), lambda seen: seen == 2, seconds=30)
    write(quick, topic, [(b"c", b"3")])
    assert read(quick, topic) in ([(2, b"c", b"3")], [])


def test_a_topic_is_cut_to_its_size(quick: Broker) -> None:
    topic = create(quick, **{"retention.bytes": "2000000", "segment.bytes": str(1024 * 1024)})
    producer = Producer({"bootstrap.servers": quick.bootstrap, "linger.ms": 5})
    for _ in range(600):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(30) == 0
    start = eventually(lambda: earliest(quick, topic), lambda seen: seen > 250, seconds=30)
    assert start < 420, "what fits stays"
