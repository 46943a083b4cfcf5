"""One suite, two brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from clients.brokers import unique
from needs import need_rabbitmq

from .brokers import OTHER_VHOST, Broker, Process, broker_of, new_process
from .pika_client import connected, get, opened


@pytest.fixture(scope="session", params=["headwater", "rabbitmq"], ids=["on-headwater", "on-rabbitmq"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Headwater, then RabbitMQ."""
    if request.param == "rabbitmq":
        need_rabbitmq()
    with new_process(request.param, tmp_path_factory.mktemp(request.param) / "data") as process:
        yield broker_of(process)


@pytest.fixture(scope="session")
def headwater(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Headwater alone, for what RabbitMQ does not have."""
    with new_process("headwater", tmp_path_factory.mktemp("headwater-alone") / "data") as process:
        yield broker_of(process)


@pytest.fixture(params=["headwater", "rabbitmq"], ids=["on-headwater", "on-rabbitmq"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Process:
    """A broker that is the test's own, not started."""
    if request.param == "rabbitmq":
        need_rabbitmq()
    return new_process(request.param, tmp_path / "data")


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    """A connection of pika's."""
    with connected(broker) as made:
        yield made


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel of pika's."""
    return connection.channel()


@pytest.fixture
def confirming(channel: BlockingChannel) -> BlockingChannel:
    """A channel whose every publish waits until the broker has the message."""
    channel.confirm_delivery()
    return channel


@pytest.fixture
def name() -> str:
    """A name that nobody has used."""
    return unique("q")


@pytest.fixture(scope="session")
def other_vhost(broker: Broker) -> str:
    """A virtual host beside "/"."""
    if broker.is_headwater:
        with opened(broker) as channel:
            answers = channel.queue_declare("", exclusive=True).method.queue
            asked = json.dumps({"add_vhost": OTHER_VHOST})
            properties = pika.BasicProperties(reply_to=answers, correlation_id="1")
            channel.basic_publish("", "amq.headwater.management", asked, properties)
            while (answer := get(channel, answers)) is None:
                channel.connection.sleep(0.02)
            assert "error" not in json.loads(answer.body), answer.body
    return OTHER_VHOST
