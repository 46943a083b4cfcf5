"""Delayed delivery, which RabbitMQ has as a plugin that Debian does not ship: Headwater alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Broker, broker_of, new_process
from .pika_client import Inbox, channel_closed, count, declare, opened, publish, take

pytestmark = pytest.mark.real

DELAYED = "x-delayed-message"
MONTH = 30 * 24 * 3_600 * 1_000


@pytest.fixture
def channel(headwater: Broker) -> Iterator[BlockingChannel]:
    """A channel that confirms."""
    with opened(headwater) as made:
        made.confirm_delivery()
        yield made


def delayed(channel: BlockingChannel, name: str, kind: str = "direct") -> str:
    """Declare a delayed exchange with a queue bound to it by its name; return the queue."""
    channel.exchange_declare(name, DELAYED, auto_delete=True, arguments={"x-delayed-type": kind})
    queue = declare(channel)
    channel.queue_bind(queue, name, "key")
    return queue


def test_a_message_waits_for_its_delay(channel: BlockingChannel, name: str) -> None:
    inbox = Inbox(channel)
    inbox.consume(delayed(channel, name), auto_ack=True)
    sent = time.monotonic()
    publish(channel, "key", b"later", exchange=name, headers={"x-delay": 700})
    publish(channel, "key", b"at once", exchange=name)
    assert inbox.bodies(1) == [b"at once"]
    assert time.monotonic() - sent < 0.6
    [found] = inbox.wait(1)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"later", name, "key")
    assert time.monotonic() - sent >= 0.7


def test_messages_come_by_their_times_and_not_by_their_order(channel: BlockingChannel, name: str) -> None:
    inbox = Inbox(channel)
    inbox.consume(delayed(channel, name), auto_ack=True)
    for delay in (900, 300, 600):
        publish(channel, "key", b"%d" % delay, exchange=name, headers={"x-delay": delay})
    assert inbox.bodies(3) == [b"300", b"600", b"900"]


def test_the_exchange_routes_by_the_type_it_was_given(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, DELAYED, auto_delete=True, arguments={"x-delayed-type": "topic"})
    queue = declare(channel)
    channel.queue_bind(queue, name, "a.*")
    for key in ("a.b", "b.a"):
        publish(channel, key, key, exchange=name, headers={"x-delay": 100})
    assert [each.body for each in take(channel, queue, 1)] == [b"a.b"]
    channel.connection.sleep(0.3)
    assert count(channel, queue) == 0


def test_a_delayed_exchange_says_what_it_routes_by(channel: BlockingChannel, name: str) -> None:
    text = "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type"
    with channel_closed(406, text):
        channel.exchange_declare(name, DELAYED)


def test_a_delay_of_months_survives_restarts_and_crashes(tmp_path: Path) -> None:
    with new_process("headwater", tmp_path / "data") as process:
        broker = broker_of(process)
        with opened(broker) as channel:
            channel.confirm_delivery()
            channel.exchange_declare("later", DELAYED, durable=True, arguments={"x-delayed-type": "direct"})
            channel.queue_declare("due", durable=True)
            channel.queue_bind("due", "later", "key")
            for delay in (2_000, 6 * MONTH, 1_000):
                publish(
                    channel,
                    "key",
                    b"%d" % delay,
                    exchange="later",
                    headers={"x-delay": delay},
                    delivery_mode=2,
                )
        process.kill()
        process.start()
        with opened(broker) as channel:
            assert [each.body for each in take(channel, "due", 2)] == [b"1000", b"2000"]
            assert count(channel, "due") == 0
        process.restart()
        with opened(broker) as channel:
            channel.connection.sleep(0.5)
            assert count(channel, "due") == 0
