"""What was acknowledged is there after a clean stop and after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .brokers import Broker, eventually
from .confluent import SECONDS, consumer, produce, read, take
from .conftest import SETTINGS
from .raw import SET, Raw, alter_group, batch, described_group, end_offsets, new_producer, topic_id
from .raw import produce as produce_raw

pytestmark = pytest.mark.real

SESSION = "consumer.session.timeout.ms"

Process = BrokerProcess | RealKafka


@pytest.fixture(params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Process:
    """A broker that is the test's own, not started."""
    if request.param == "headwater":
        return BrokerProcess(tmp_path / "data", settings=SETTINGS)
    request.getfixturevalue("java")
    return RealKafka(tmp_path / "data", properties=SETTINGS)


@pytest.fixture(params=["stop", "kill"])
def again(request: pytest.FixtureRequest, process: Process) -> Callable[[], None]:
    """Stop the broker, cleanly or not, and start it again."""

    def end_and_start() -> None:
        process.kill() if request.param == "kill" else process.stop()
        process.start()

    return end_and_start


def create(broker: Broker, name: str, partitions: int = 2, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=partitions, config=config or {})])[name].result(
        SECONDS
    )
    with Raw(broker) as raw:
        eventually(lambda: end_offsets(raw, name, partitions), lambda seen: seen == [0] * partitions)


def test_records_topics_groups_and_sequences_survive(process: Process, again: Callable[[], None]) -> None:
    with process:
        broker = Broker("restarted", process.host, process.port)
        create(broker, "kept", config={"retention.ms": "123456789"})
        assert [each.offset for each in produce(broker, "kept", [b"a", b"b", b"c"], partition=1)] == [0, 1, 2]
        with consumer(broker, "group") as made:
            made.commit(offsets=[TopicPartition("kept", 1, 2)], asynchronous=False)
        with Raw(broker) as raw:
            known = topic_id(raw, "kept")
            producer = new_producer(raw)
            assert produce_raw(raw, "kept", batch(2, producer=(producer, 0, 0))).base_offset == 0
            assert alter_group(raw, "group", (SESSION, SET, "50000"))[0] == ErrorCode.none

        again()

        with Raw(broker) as raw:
            eventually(lambda: end_offsets(raw, "kept", 2), lambda seen: seen == [2, 3])
            assert topic_id(raw, "kept") == known
            repeated = produce_raw(raw, "kept", batch(2, producer=(producer, 0, 0)))
            assert (repeated.error_code, repeated.base_offset) == (ErrorCode.none, 0)
            gap = produce_raw(raw, "kept", batch(producer=(producer, 0, 5)))
            assert gap.error_code == ErrorCode.out_of_order_sequence_number
            assert new_producer(raw) > producer
            assert described_group(raw, "group", SESSION)[SESSION].value == "50000"
        assert [message.value() for message in read(broker, "kept", 3, partition=1)] == [b"a", b"b", b"c"]
        with consumer(broker, "group") as made:
            [found] = made.committed([TopicPartition("kept", 1)], timeout=SECONDS)
        assert found.offset == 2


def test_a_producer_and_a_group_live_through_a_crash(process: Process) -> None:
    """Everything acknowledged is delivered, in order and, the producer being idempotent, once."""
    with process:
        broker = Broker("crashed", process.host, process.port)
        create(broker, "busy")
        acknowledged: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
            }
        )
        half_way = threading.Event()

        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None
            acknowledged.append(int(message.value() or b""))

        def send() -> None:
            for number in range(3_000):
                producer.produce("busy", b"%d" % number, partition=0, on_delivery=note)
                producer.poll(0.0005)
                if number == 1_000:
                    half_way.set()
            producer.flush(60)

        with consumer(broker, "group", reconnect_backoff_max_ms=200) as made:
            made.subscribe(["busy"])
            sender = threading.Thread(target=send)
            sender.start()
            half_way.wait(30)
            process.kill()
            process.start()
            seen = [int(message.value() or b"") for message in take(made, 3_000, seconds=60)]
            sender.join()
        assert acknowledged == list(range(3_000))
        assert seen == list(range(3_000))
