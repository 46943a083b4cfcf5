"""What tests with pika share: connections, messages taken one by one or as they are pushed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from .brokers import Broker

SECONDS = 15.0
QUIET = 0.3
"""How long nothing must arrive before a test believes that nothing will."""


class Delivery(NamedTuple):
    """A message, with the method that brought it."""

    method: Any
    properties: Any
    body: bytes

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)

    @property
    def redelivered(self) -> bool:
        return bool(self.method.redelivered)

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})


def parameters(broker: Broker, **options: Any) -> pika.ConnectionParameters:
    """Return where and how to connect."""
    options = {"socket_timeout": SECONDS, "blocked_connection_timeout": SECONDS} | options
    return pika.ConnectionParameters(broker.host, broker.port, **options)


@contextmanager
def connected(broker: Broker, **options: Any) -> Iterator[pika.BlockingConnection]:
    """A connection that lasts as long as the block, or until the broker closes it."""
    connection = pika.BlockingConnection(parameters(broker, **options))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def opened(broker: Broker, **options: Any) -> Iterator[BlockingChannel]:
    """A channel on a connection of its own."""
    with connected(broker, **options) as connection:
        yield connection.channel()


@contextmanager
def channel_closed(code: int, text: str) -> Iterator[None]:
    """Expect that the broker closes the channel with this code and text inside the block."""
    with pytest.raises(ChannelClosedByBroker) as closed:
        yield
    assert (closed.value.reply_code, closed.value.reply_text) == (code, text)


@contextmanager
def connection_closed(code: int, text: str) -> Iterator[None]:
    """Expect that the broker closes the connection with this code and text inside the block."""
    with pytest.raises(ConnectionClosedByBroker) as closed:
        yield
    assert (closed.value.reply_code, closed.value.reply_text) == (code, text)


def synchronize(channel: BlockingChannel) -> None:
    """Wait until the broker has done with what was sent on a channel, and raise what closed it if anything did."""
    channel.basic_qos()


def declare(channel: BlockingChannel, name: str = "", **options: Any) -> str:
    """Declare a queue that goes with the connection, unless the options say otherwise; return its name."""
    options = {"exclusive": True} | options
    return str(channel.queue_declare(name, **options).method.queue)


def publish(
    channel: BlockingChannel,
    routing_key: str,
    *bodies: bytes | str,
    exchange: str = "",
    mandatory: bool = False,
    **properties: Any,
) -> None:
    """Publish messages, alike but for their bodies."""
    for body in bodies:
        channel.basic_publish(
            exchange, routing_key, body, pika.BasicProperties(**properties), mandatory=mandatory
        )


def count(channel: BlockingChannel, queue: str) -> int:
    """Ask how many messages are ready in a queue."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def get(channel: BlockingChannel, queue: str, *, auto_ack: bool = True) -> Delivery | None:
    """Take one message if there is one."""
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    return None if method is None else Delivery(method, properties, body)


def take(
    channel: BlockingChannel, queue: str, number: int, *, auto_ack: bool = True, seconds: float = SECONDS
) -> list[Delivery]:
    """Take messages one by one until there were so many."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + seconds
    while len(taken) < number:
        if found := get(channel, queue, auto_ack=auto_ack):
            taken.append(found)
        else:
            assert time.monotonic() < deadline, f"only {len(taken)} of {number} messages came: {taken}"
            channel.connection.sleep(0.02)
    return taken


def bodies(channel: BlockingChannel, queue: str, number: int, *, seconds: float = SECONDS) -> list[bytes]:
    """Take so many messages, see that there is no other, and return their bodies."""
    found = [each.body for each in take(channel, queue, number, seconds=seconds)]
    assert get(channel, queue) is None
    return found


class Inbox:
    """The messages that consumers on a channel were pushed, by consumer tag and in order."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.deliveries: list[Delivery] = []
        self.cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: self.cancelled.append(frame.method.consumer_tag))

    def consume(self, queue: str, **options: Any) -> str:
        """Start a consumer, which acknowledges nothing by itself, and return its tag."""
        return str(self.channel.basic_consume(queue, self._note, **options))

    def _note(self, _channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.deliveries.append(Delivery(method, properties, body))

    def wait(self, number: int, seconds: float = SECONDS) -> list[Delivery]:
        """Wait until so many messages were pushed since this was last asked, and return them."""
        deadline = time.monotonic() + seconds
        while len(self.deliveries) < number:
            left = deadline - time.monotonic()
            assert left > 0, f"only {len(self.deliveries)} of {number} messages came: {self.deliveries}"
            self.channel.connection.process_data_events(min(left, 0.1))
        found, self.deliveries = self.deliveries[:number], self.deliveries[number:]
        return found

    def bodies(self, number: int) -> list[bytes]:
        """Wait for so many messages and return their bodies."""
        return [each.body for each in self.wait(number)]

    def quiet(self, seconds: float = QUIET) -> bool:
        """Tell whether nothing is pushed for a while."""
        self.channel.connection.process_data_events(0)
        if not self.deliveries:
            self.channel.connection.sleep(seconds)
        return not self.deliveries

    def wait_cancelled(self, tag: str, seconds: float = SECONDS) -> None:
        """Wait until the broker has cancelled a consumer."""
        deadline = time.monotonic() + seconds
        while tag not in self.cancelled:
            assert time.monotonic() < deadline, f"{tag} was not cancelled"
            self.channel.connection.process_data_events(0.1)
