"""A disk that runs full: publishers wait, consumers do not, and nothing that was confirmed is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest
from confluent_kafka import Producer
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from amqp_clients.brokers import broker_of
from amqp_clients.pika_client import take
from clients.brokers import eventually
from headwater.testing.process import BrokerProcess
from net.test_crash import small_disk

__all__ = ["small_disk"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

MB = 1_000_000
SETTINGS = {"headwater.disk.reserve.bytes": "8000000"}


class Publisher:
    """A client that notes whether it was told to wait."""

    def __init__(self, url: str, heartbeat: int = 0) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = heartbeat
        self.connection = BlockingConnection(parameters)
        self.told: list[str] = []
        self.connection.add_on_connection_blocked_callback(lambda *_: self.told.append("blocked"))
        self.connection.add_on_connection_unblocked_callback(lambda *_: self.told.append("unblocked"))
        self.channel: BlockingChannel = self.connection.channel()

    def wait(self, *told: str) -> None:
        deadline = time.monotonic() + 10
        while self.told != list(told):
            assert time.monotonic() < deadline, self.told
            self.connection.process_data_events(0.05)


def test_publishers_are_told_and_not_read_from_until_there_is_room(small_disk: Path) -> None:
    with BrokerProcess(small_disk / "data", amqp=True, settings=SETTINGS) as process:
        broker = broker_of(process)
        publisher, consumer = Publisher(broker.url(), heartbeat=1), Publisher(broker.url())
        publisher.channel.queue_declare("work", durable=True)
        for i in range(3):
            publisher.channel.basic_publish("", "work", b"%d" % i, pika.BasicProperties(delivery_mode=2))
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(18 * MB))
        publisher.wait("blocked")
        for i in range(3, 8):
            publisher.channel.basic_publish(
                "", "work", b"%d" % i * 1000, pika.BasicProperties(delivery_mode=2)
            )
        # More than two heartbeats: whoever is not read from is not taken for dead.
        publisher.connection.sleep(3)
        for found in take(consumer.channel, "work", 3, auto_ack=False):
            consumer.channel.basic_ack(found.tag)
        consumer.wait("blocked")
        ballast.unlink()
        publisher.wait("blocked", "unblocked")
        late = take(consumer.channel, "work", 5)
        assert [int(each.body[:1]) for each in late] == [3, 4, 5, 6, 7]
        publisher.connection.close()
        consumer.connection.close()


def test_who_connects_to_a_full_disk_is_told_at_once(small_disk: Path) -> None:
    with BrokerProcess(small_disk / "data", amqp=True, settings=SETTINGS) as process:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(18 * MB))
        eventually(process.errors, lambda seen: "records are refused" in seen)
        publisher = Publisher(broker_of(process).url())
        publisher.wait("blocked")
        producer = Producer({"bootstrap.servers": process.bootstrap, "message.timeout.ms": 1000})
        producer.produce("t", b"x")
        producer.flush(3)
        ballast.unlink()
        publisher.wait("blocked", "unblocked")
        publisher.connection.close()
