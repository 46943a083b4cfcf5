"""The client of queues against Headwater and against RabbitMQ."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest

from amqp_clients.brokers import Broker, broker_of, new_process
from clients.access.certificates import Authority
from clients.access.secured import PASSWORD, USER, add_user
from clients.brokers import unique
from headwater.client.amqp import (
    Binding,
    Cancelled,
    Channel,
    Connection,
    NotFound,
    NotTaken,
    Refused,
    Unroutable,
)
from headwater.client.amqp.transport import Transport
from headwater.client.errors import AuthenticationFailed, ClientError, Unreachable
from headwater.core.urls import AmqpUrl
from headwater.record.amqp.properties import Properties
from headwater.testing.process import BrokerProcess
from needs import need_rabbitmq

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["headwater", "rabbitmq"], ids=["on-headwater", "on-rabbitmq"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "rabbitmq":
        need_rabbitmq()
    with new_process(request.param, tmp_path_factory.mktemp(request.param) / "data") as process:
        yield broker_of(process)


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with Connection(AmqpUrl.parse(broker.url())) as connection:
        yield connection


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel()


@pytest.fixture
def queue(channel: Channel) -> str:
    return channel.declare_queue(unique("q")).name


def test_the_broker_says_what_it_is(connection: Connection, broker: Broker) -> None:
    assert connection.is_headwater == broker.is_headwater
    assert str(connection.server["platform"]).startswith("Headwater" if broker.is_headwater else "Erlang")


def test_many_messages_confirmed_and_consumed_in_order(channel: Channel, queue: str) -> None:
    channel.confirm()
    for number in range(5000):
        channel.publish(b"%d" % number, routing_key=queue, properties=Properties(delivery_mode=2))
    channel.flush()
    assert channel.look_up(queue).messages == 5000
    found = []
    with channel.consume(queue, prefetch=200) as messages:
        for message in messages:
            found.append(int(message.body))
            if len(found) % 100 == 0:
                channel.ack(message.tag, multiple=True)
            if len(found) == 5000:
                break
    assert found == list(range(5000))
    assert channel.look_up(queue).messages == 0


def test_what_a_consumer_did_not_look_at_goes_back(channel: Channel, queue: str) -> None:
    for number in range(10):
        channel.publish(b"%d" % number, routing_key=queue)
    with channel.consume(queue, prefetch=5) as messages:
        first = next(messages)
        assert first.body == b"0"
        channel.nack(first.tag)
    assert [message.body for message in channel.get_many(queue, 11)] == [b"%d" % each for each in range(10)]


def test_properties_and_long_bodies_come_back_as_they_were(channel: Channel, queue: str) -> None:
    properties = Properties(
        content_type="a", headers={"n": 1, "t": {"u": [True, None, "x"]}}, message_id="m", timestamp=7
    )
    body = bytes(range(256)) * 4000
    channel.publish(body, routing_key=queue, properties=properties)
    channel.publish(b"", routing_key=queue)
    first, second = channel.get_many(queue, 2)
    assert (first.body, first.properties, first.messages_left) == (body, properties, 1)
    assert (second.body, second.properties) == (b"", Properties())
    channel.nack(first.tag, requeue=True)
    again = channel.get(queue)
    assert again is not None
    assert (again.redelivered, again.body) == (True, body)


def test_refusals_carry_the_brokers_words(connection: Connection, channel: Channel, queue: str) -> None:
    with pytest.raises(Refused, match="inequivalent arg 'durable'") as refused:
        channel.declare_queue(queue, durable=False)
    assert refused.value.code == 406
    with pytest.raises(NotFound, match="no queue 'größe' in vhost '/'"):
        connection.channel().look_up("größe")
    with pytest.raises(ClientError, match="255"):
        connection.channel().declare_queue("q" * 256)
    assert connection.channel().look_up(queue).messages == 0


def test_a_missing_exchange_is_told_at_the_next_wait(connection: Connection) -> None:
    channel = connection.channel()
    channel.confirm()
    channel.publish(b"x", exchange="no-such-exchange", routing_key="k")
    with pytest.raises(NotFound, match="no exchange 'no-such-exchange'"):
        channel.flush()


def test_what_is_not_taken_is_told(channel: Channel) -> None:
    full = unique("full")
    channel.declare_queue(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm()
    for _ in range(3):
        channel.publish(b"x", routing_key=full)
    with pytest.raises(NotTaken, match="2 messages were refused"):
        channel.flush()
    channel.publish(b"x", routing_key="nobody", mandatory=True)
    with pytest.raises(Unroutable, match="the default exchange for the routing key 'nobody'"):
        channel.flush()


def test_bindings(channel: Channel, queue: str) -> None:
    source, between = unique("source"), unique("between")
    channel.declare_exchange(source, "topic")
    channel.declare_exchange(between, "headers")
    channel.confirm()

    def publish(routing_key: str, colour: str) -> None:
        properties = Properties(headers={"colour": colour})
        channel.publish(b"x", exchange=source, routing_key=routing_key, properties=properties)
        channel.flush()

    links = [
        Binding(source, between, "a.#", to_exchange=True),
        Binding(between, queue, arguments={"x-match": "all", "colour": "red"}),
    ]
    for link in links:
        channel.bind(link)
    publish("a.b", "red")
    publish("a.b", "blue")
    publish("b", "red")
    assert channel.look_up(queue).messages == 1
    for link in links:
        channel.unbind(link)
    publish("a.b", "red")
    assert channel.look_up(queue).messages == 1
    channel.delete_exchange(source)
    channel.delete_exchange(between)


def test_a_deleted_queue_ends_its_consumers(connection: Connection, queue: str) -> None:
    messages = connection.channel().consume(queue, seconds=5)
    connection.channel().delete_queue(queue)
    with pytest.raises(Cancelled, match=f"'{queue}' is gone"):
        next(messages)


def test_a_missing_virtual_host(broker: Broker) -> None:
    with pytest.raises(Refused, match="vhost nowhere not found"):
        Connection(AmqpUrl.parse(broker.url("nowhere")))


def test_a_broker_that_stops(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("stop") / "data", amqp=True) as broker:
        assert broker.amqp_port is not None
        connection = Connection(AmqpUrl(broker.host, broker.amqp_port))
        channel = connection.channel()
        broker.kill()
        with pytest.raises(Unreachable):
            channel.declare_queue("q")
        connection.close()
        with pytest.raises(ClientError):
            connection.channel()
        broker.start()


def test_tls_with_a_password(openssl: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(openssl, tmp_path_factory.mktemp("authority"), "authority")
    certificate = authority.issue("broker")
    data = tmp_path_factory.mktemp("secured") / "data"
    add_user(data)
    options = (f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}", "--auth=sasl")
    with BrokerProcess(data, amqp=True, options=options) as broker:
        assert broker.amqp_port is not None
        url = AmqpUrl(broker.host, broker.amqp_port, USER, PASSWORD, tls=True, ca=str(authority.cert))
        body = bytes(range(256)) * 4000
        with Connection(AmqpUrl.parse(url.text())) as connection:
            channel = connection.channel()
            channel.declare_queue("q")
            channel.confirm()
            for _ in range(20):
                channel.publish(body, routing_key="q")
            channel.flush()
            assert [message.body for message in channel.get_many("q", 21)] == [body] * 20
        wrong = AmqpUrl(broker.host, broker.amqp_port, USER, "wrong", tls=True, ca=str(authority.cert))
        with pytest.raises(AuthenticationFailed, match=USER):
            Connection(wrong)
        with pytest.raises(Unreachable, match="certificate"):
            Connection(AmqpUrl(broker.host, broker.amqp_port, USER, PASSWORD, tls=True))
        with pytest.raises(Unreachable, match="amqps://"):
            Connection(AmqpUrl(broker.host, broker.amqp_port, USER, PASSWORD))


def test_what_tls_says_for_itself_is_no_answer(
    openssl: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = Authority(openssl, tmp_path_factory.mktemp("authority"), "authority")
    certificate = authority.issue("broker")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_late() -> None:
            # The tickets that TLS 1.3 sends behind the handshake come first, and alone.
            with context.wrap_socket(listening.accept()[0], server_side=True) as accepted:
                time.sleep(0.3)
                accepted.sendall(b"AMQP")
                accepted.recv(1)

        server = threading.Thread(target=answer_late)
        server.start()
        port = listening.getsockname()[1]
        transport = Transport(AmqpUrl("127.0.0.1", port, USER, PASSWORD, tls=True, ca=str(authority.cert)))
        assert transport.receive(30) == b"AMQP"
        transport.close()
        server.join()
