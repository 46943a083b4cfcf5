"""Delayed exchanges, beyond what tests/amqp_clients show: crashes at any moment, many messages, a log that shrinks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from amqp_clients.brokers import Broker, broker_of
from amqp_clients.pika_client import Inbox, bodies, count, get, opened, take
from clients.brokers import unique
from headwater.testing.process import BrokerProcess, free_port

from .test_amqp_metrics import scrape

pytestmark = pytest.mark.real

DELAYED = "x-delayed-message"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Headwater."""
    with BrokerProcess(tmp_path_factory.mktemp("delayed") / "data", amqp=True) as process:
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
    return unique("d")


def declare(channel: BlockingChannel, name: str, kind: str = "fanout", **arguments: Any) -> None:
    """Declare a durable delayed exchange and a durable queue bound to it."""
    channel.exchange_declare(name, DELAYED, durable=True, arguments={"x-delayed-type": kind, **arguments})
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name, "key")


def send(channel: BlockingChannel, exchange: str, body: bytes, delay: Any, **options: Any) -> None:
    headers = {"x-delay": delay, **options.pop("headers", {})}
    properties = pika.BasicProperties(
        headers=headers, delivery_mode=options.pop("delivery_mode", 2), **options
    )
    channel.basic_publish(exchange, "key", body, properties)


def test_a_message_comes_within_milliseconds_of_its_time(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    inbox = Inbox(channel)
    inbox.consume(name, auto_ack=True)
    late = []
    for delay in range(50, 250, 10):
        due = time.time() + delay / 1000
        send(channel, name, b"%.6f" % due, delay)
        [found] = inbox.wait(1)
        late.append(time.time() - float(found.body))
    assert min(late) > -0.002
    assert sorted(late)[len(late) // 2] < 0.03


def test_consumers_see_the_delay_negated(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    send(channel, name, b"a", 40, headers={"h": "v"}, message_id="m")
    send(channel, name, b"b", "50")
    found, other = take(channel, name, 2)
    assert found.headers == {"x-delay": -40, "h": "v"}
    assert (found.properties.message_id, found.properties.delivery_mode) == ("m", 2)
    assert other.headers == {"x-delay": -50}


@pytest.mark.parametrize("delay", [0, -5, None, "soon"])
def test_what_is_no_delay_routes_at_once(channel: BlockingChannel, name: str, delay: Any) -> None:
    declare(channel, name)
    send(channel, name, b"now", delay)
    found = get(channel, name)
    assert found is not None
    assert (found.body, found.headers["x-delay"]) == (b"now", delay)


def test_an_exchange_behind_another_delays_too(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    front = f"{name}-front"
    channel.exchange_declare(front, "fanout")
    channel.exchange_bind(name, front)
    send(channel, front, b"x", 100)
    assert get(channel, name) is None
    [found] = take(channel, name, 1)
    assert (found.body, found.method.exchange) == (b"x", front)


def test_copies_are_routed_when_the_time_has_come(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, "direct")
    channel.queue_declare(f"{name}-copy")
    channel.queue_bind(f"{name}-copy", name, "other")
    send(channel, name, b"x", 50, headers={"CC": ["other"]})
    assert bodies(channel, name, 1) == bodies(channel, f"{name}-copy", 1) == [b"x"]


def test_an_alternate_exchange_gets_what_is_routed_nowhere(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(f"{name}-rest")
    channel.exchange_declare(f"{name}-rest", "fanout")
    channel.queue_bind(f"{name}-rest", f"{name}-rest")
    declare(channel, name, "direct", **{"alternate-exchange": f"{name}-rest"})
    channel.queue_unbind(name, name, "key")
    send(channel, name, b"x", 50)
    assert bodies(channel, f"{name}-rest", 1) == [b"x"]


def test_a_dead_letter_may_be_delayed(channel: BlockingChannel, name: str) -> None:
    """Retries after a while: what is rejected waits, and comes back to its queue."""
    declare(channel, name)
    work = f"{name}-work"
    channel.queue_declare(work, arguments={"x-dead-letter-exchange": name})
    channel.basic_publish("", work, b"x", pika.BasicProperties(headers={"x-delay": 200}))
    [found] = take(channel, work, 1, auto_ack=False)
    began = time.monotonic()
    channel.basic_reject(found.tag, requeue=False)
    [again] = take(channel, name, 1)
    assert time.monotonic() - began >= 0.19
    assert again.headers["x-death"][0]["queue"] == work


def test_a_deleted_exchange_routes_nothing(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    send(channel, name, b"x", 100)
    channel.exchange_delete(name)
    channel.connection.sleep(0.3)
    assert count(channel, name) == 0


def test_transient_messages_do_not_survive_and_persistent_ones_do(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        with opened(broker) as channel:
            channel.confirm_delivery()
            declare(channel, "later")
            send(channel, "later", b"transient", 2000, delivery_mode=1)
            send(channel, "later", b"persistent", 2000)
        process.restart()
        with opened(broker) as channel:
            assert bodies(channel, "later", 1) == [b"persistent"]
            channel.connection.sleep(0.3)
            assert count(channel, "later") == 0


def test_no_confirmed_message_is_lost_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    random.seed(6)
    sent: list[bytes] = []
    seen: list[bytes] = []
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        with opened(broker) as channel:
            declare(channel, "later")
        for life in range(4):
            with opened(broker) as channel:
                channel.confirm_delivery()
                for i in range(60):
                    body = b"%d-%d" % (life, i)
                    send(channel, "later", body, random.randrange(1, 1500))
                    sent.append(body)
                channel.connection.sleep(random.random() / 2)
                for found in take(channel, "later", 5, auto_ack=False):
                    channel.basic_ack(found.tag)
                    seen.append(found.body)
                channel.connection.sleep(0.3)  # acknowledgements of the last moment may be lost
            process.kill()
            process.start()
        with opened(broker) as channel:
            deadline = time.monotonic() + 20
            while not set(sent) <= set(seen):
                assert time.monotonic() < deadline, set(sent) - set(seen)
                if (more := get(channel, "later")) is not None:
                    seen.append(more.body)
                else:
                    channel.connection.sleep(0.02)
    assert len(seen) - len(set(seen)) <= 20  # routed at the moment of a crash, and once more after it


def test_the_log_shrinks_although_one_message_waits_for_months(tmp_path: Path) -> None:
    port = free_port()
    with BrokerProcess(tmp_path / "data", amqp=True, options=(f"--metrics=127.0.0.1:{port}",)) as process:
        with opened(broker_of(process)) as channel:
            declare(channel, "later")
            send(channel, "later", b"months", 180 * 24 * 3_600_000)
            inbox = Inbox(channel)
            inbox.consume("later", auto_ack=True)
            for _ in range(12):
                for _ in range(100):
                    send(channel, "later", bytes(100_000), 1)
                inbox.wait(100)
            channel.connection.sleep(1)
        assert 0 < size(tmp_path / "data" / "delayed") < 80_000_000
        assert scrape(port)["headwater_delayed_messages"] == 1
        process.restart()
        assert scrape(port)["headwater_delayed_messages"] == 1


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def test_large_messages_come_one_after_the_other(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    sent = [bytes([i]) * 3_000_000 for i in range(8)]
    for body in sent:
        send(channel, name, body, 300)
    assert bodies(channel, name, 8) == sent
