"""What Prometheus would read about queues."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from amqp_clients.brokers import broker_of
from amqp_clients.pika_client import opened, take
from clients.brokers import eventually
from headwater.testing.process import BrokerProcess, free_port

pytestmark = pytest.mark.real


def scrape(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def test_messages_are_counted(tmp_path: Path) -> None:
    port = free_port()
    with BrokerProcess(tmp_path / "data", amqp=True, options=(f"--metrics=127.0.0.1:{port}",)) as process:
        with opened(broker_of(process)) as channel:
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
            for _ in range(10):
                channel.basic_publish("", "q", b"x" * 100)
            channel.basic_publish("later", "", b"", pika.BasicProperties(headers={"x-delay": 3_600_000}))
            with pytest.raises(pika.exceptions.UnroutableError):
                channel.basic_publish("", "nowhere", b"", mandatory=True)
            held = take(channel, "q", 6, auto_ack=False)
            channel.basic_ack(held[1].tag, multiple=True)
            channel.basic_nack(held[2].tag, requeue=True)
            take(channel, "q", 1)
            found = scrape(port)
            assert {name: found[f"headwater_{name}"] for name in EXPECTED} == EXPECTED
            assert found["headwater_queue_memory_bytes"] > 300
        after = eventually(lambda: scrape(port), lambda seen: seen["headwater_amqp_connections"] == 0)
        assert after["headwater_messages_acknowledged_total"] == 2
        assert after["headwater_messages_given_back_total"] == 4
        assert after["headwater_queue_messages_ready"] == 7


EXPECTED = {
    "amqp_connections": 1,
    "amqp_channels": 1,
    "messages_published_total": 12,
    "messages_confirmed_total": 12,
    "messages_refused_total": 0,
    "messages_returned_total": 1,
    "messages_delivered_total": 7,
    "messages_acknowledged_total": 2,
    "messages_given_back_total": 1,
    "queues": 1,
    "queue_messages_ready": 4,
    "queue_messages_unacknowledged": 3,
    "delayed_messages": 1,
}


def test_a_broker_without_queues_shows_nothing_of_them(tmp_path: Path) -> None:
    port = free_port()
    with BrokerProcess(tmp_path / "data", options=(f"--metrics=127.0.0.1:{port}",)):
        assert not [name for name in scrape(port) if "amqp" in name or "queue" in name]
