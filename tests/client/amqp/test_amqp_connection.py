"""Connections and channels of the client, against a broker that follows a script."""

from __future__ import annotations

import socket

import pytest
from pamqp import commands

from headwater.client.amqp import Cancelled, Connection, NotFound, NotTaken, Refused, Unroutable
from headwater.client.errors import AuthenticationFailed, BadAnswer, Unreachable
from headwater.core.urls import AmqpUrl
from headwater.record.amqp.properties import Properties
from headwater.testing.process import free_port

from .fake import FakeBroker, Peer


def test_the_handshake_says_who_comes_with_which_password() -> None:
    said: list[commands.Connection.StartOk] = []

    def script(peer: Peer) -> None:
        said.append(peer.handshake())
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url, "a test") as connection:
        assert connection.server["product"] == "Fake"
    assert said[0].mechanism == "PLAIN"
    assert said[0].response == "\0guest\0guest"
    properties = said[0].client_properties or {}
    assert (properties["product"], properties["connection_name"]) == ("Headwater", "a test")
    capabilities = properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["authentication_failure_close"] is True


def test_nobody_listens() -> None:
    with pytest.raises(Unreachable, match="no broker answers at 127"):
        Connection(AmqpUrl("127.0.0.1", free_port()))


def test_a_refused_password() -> None:
    def script(peer: Peer) -> None:
        peer.read(8)
        peer.send(commands.Connection.Start, 0, mechanisms="PLAIN", locales="en_US")
        peer.expect(commands.Connection.StartOk)
        peer.send(
            commands.Connection.Close, 0, reply_code=403, reply_text="ACCESS_REFUSED - Login was refused"
        )
        peer.expect(commands.Connection.CloseOk)

    with (
        FakeBroker(script) as broker,
        pytest.raises(AuthenticationFailed, match=r"user 'guest': Login was refused \(403 ACCESS_REFUSED\)"),
    ):
        Connection(broker.url)


def test_a_missing_virtual_host() -> None:
    def script(peer: Peer) -> None:
        peer.read(8)
        peer.send(commands.Connection.Start, 0, mechanisms="PLAIN", locales="en_US")
        peer.expect(commands.Connection.StartOk)
        peer.send(commands.Connection.Tune, 0, frame_max=4096)
        peer.expect(commands.Connection.TuneOk)
        peer.expect(commands.Connection.Open)
        peer.send(commands.Connection.Close, 0, reply_code=530, reply_text="NOT_ALLOWED - vhost a not found")

    with FakeBroker(script) as broker, pytest.raises(Refused, match="vhost a not found") as refused:
        Connection(broker.url)
    assert refused.value.code == 530


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"AMQP\x00\x01\x00\x00", "another version"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it an AMQP listener"),
        (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0aX", "without its end"),
        (b"\x01\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff\xce", "not AMQP"),
        (b"\x03\x00\x00\x00\x00\x00\x01x\xce", "belongs to no channel"),
    ],
)
def test_what_is_no_amqp(answer: bytes, reason: str) -> None:
    with FakeBroker(lambda peer: peer.raw(answer)) as broker, pytest.raises(BadAnswer, match=reason):
        Connection(broker.url)


def test_a_broker_that_hangs_up_and_one_that_is_silent() -> None:
    with FakeBroker(lambda peer: peer.read(8)) as broker, pytest.raises(Unreachable, match="amqps://"):
        Connection(broker.url)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = AmqpUrl("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(Unreachable, match=r"has not answered Connection.Start for 0\.1 s"):
            Connection(url, answer_seconds=0.1)


def test_the_connection_is_closed_with_the_brokers_reason() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.expect(commands.Channel.Open)
        text = "CONNECTION_FORCED - broker forced connection closure"
        peer.send(commands.Connection.Close, 0, reply_code=320, reply_text=text)
        peer.expect(commands.Connection.CloseOk)

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        with pytest.raises(Refused, match="broker forced connection closure"):
            connection.channel()
        with pytest.raises(Refused, match="broker forced connection closure"):
            connection.channel()


def test_a_channel_error_ends_its_channel_alone() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.expect(commands.Queue.Declare)
        text = "NOT_FOUND - no queue 'größe' in vhost '/'"
        peer.send(commands.Channel.Close, reply_code=404, reply_text=text)
        peer.expect(commands.Channel.CloseOk)
        peer.open_channel()
        asked = peer.expect(commands.Queue.Purge)
        assert asked.queue == "größe"
        peer.send(commands.Queue.PurgeOk, message_count=3)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        with pytest.raises(NotFound, match=r"no queue 'größe' in vhost '/' \(404 NOT_FOUND\)"):
            channel.look_up("größe")
        with pytest.raises(NotFound):
            channel.purge_queue("größe")
        assert connection.channel().purge_queue("größe") == 3


def test_bodies_are_cut_into_frames_and_put_together_again() -> None:
    body = bytes(range(256)) * 40

    def script(peer: Peer) -> None:
        peer.handshake(frame_max=4096)
        peer.open_channel()
        _, raw, got = peer.message()
        assert (got, Properties.decode(raw)) == (body, Properties(delivery_mode=2))
        peer.expect(commands.Basic.Get)
        peer.send(commands.Basic.GetOk, delivery_tag=1, routing_key="q", message_count=4)
        # Byte by byte, as the network may.
        peer.raw(b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + len(got).to_bytes(8, "big") + b"\0\0\xce")
        for start in range(0, len(got), 1000):
            part = got[start : start + 1000]
            peer.raw(b"\x03\x00\x01" + len(part).to_bytes(4, "big") + part[:1])
            peer.raw(part[1:] + b"\xce")
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        channel.publish(body, routing_key="q", properties=Properties(delivery_mode=2))
        found = channel.get("q")
        assert found is not None
        assert (found.body, found.messages_left, found.properties) == (body, 4, Properties())


def test_confirms_come_for_one_for_many_and_as_refusals() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.confirm_select()
        for _ in range(5):
            peer.message()
        peer.send(commands.Basic.Ack, delivery_tag=2)
        peer.send(commands.Basic.Nack, delivery_tag=3)
        peer.send(commands.Basic.Ack, delivery_tag=5, multiple=True)
        peer.message()
        peer.send(commands.Basic.Ack, delivery_tag=6)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        channel.confirm()
        assert [channel.publish(b"x", routing_key="q") for _ in range(5)] == [1, 2, 3, 4, 5]
        with pytest.raises(NotTaken, match="1 messages were refused"):
            channel.flush()
        channel.publish(b"x", routing_key="q")
        channel.flush()
        assert not channel.unconfirmed


def test_publishing_waits_for_the_window() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.confirm_select()
        for tag in range(1, 101):
            peer.message()
            if tag % 10 == 0:
                peer.send(commands.Basic.Ack, delivery_tag=tag, multiple=True)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        channel.confirm(window=10)
        for _ in range(100):
            channel.publish(b"x", routing_key="q")
            assert len(channel.unconfirmed) < 10
        channel.flush()


def test_what_no_queue_takes_comes_back() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.confirm_select()
        method, raw, body = peer.message()
        assert method.mandatory
        peer.send(commands.Basic.Return, reply_code=312, reply_text="NO_ROUTE", exchange="e", routing_key="k")
        peer.content(body, raw)
        peer.send(commands.Basic.Ack, delivery_tag=1)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        channel.confirm()
        channel.publish(b"x", exchange="e", routing_key="k", mandatory=True)
        with pytest.raises(Unroutable, match="no queue is bound to exchange 'e' for the routing key 'k'"):
            channel.flush()


def test_a_broker_that_takes_nothing_says_why() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.confirm_select()
        peer.message()
        peer.send(commands.Connection.Blocked, 0, reason="low on disk")
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url, answer_seconds=0.3) as connection:
        channel = connection.channel()
        channel.confirm()
        channel.publish(b"x", routing_key="q")
        with pytest.raises(Unreachable, match="low on disk"):
            channel.flush()


def test_sending_reads_what_comes_meanwhile() -> None:
    """Both sides send more than the sockets hold before either reads: neither may wait for the other."""
    size = 20_000_000

    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.confirm_select()
        peer.send(commands.Basic.Return, reply_code=312, reply_text="NO_ROUTE", routing_key="q")
        peer.content(bytes(size))
        assert len(peer.message()[2]) == size
        peer.send(commands.Basic.Ack, delivery_tag=1)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        channel.confirm()
        channel.publish(bytes(size), routing_key="q")
        refused, returned = channel.settle()
        assert (refused, [message.routing_key for message in returned]) == (set(), ["q"])


def test_a_consumer_takes_what_comes_with_the_answer_and_ends_when_nothing_comes() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        assert peer.expect(commands.Basic.Qos).prefetch_count == 7
        peer.send(commands.Basic.QosOk)
        tag = peer.expect(commands.Basic.Consume).consumer_tag
        peer.send(commands.Basic.ConsumeOk, consumer_tag=tag)
        for number in (1, 2, 3):
            peer.send(commands.Basic.Deliver, consumer_tag=tag, delivery_tag=number, redelivered=number == 1)
            peer.content(b"%d" % number)
        assert peer.expect(commands.Basic.Ack).delivery_tag == 1
        assert peer.expect(commands.Basic.Cancel).consumer_tag == tag
        peer.send(commands.Basic.CancelOk, consumer_tag=tag)
        assert [peer.expect(commands.Basic.Nack).delivery_tag for _ in range(2)] == [2, 3]
        tag = peer.expect(commands.Basic.Consume).consumer_tag
        peer.send(commands.Basic.ConsumeOk, consumer_tag=tag)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        with channel.consume("q", prefetch=7) as messages:
            first = next(messages)
            assert (first.body, first.redelivered) == (b"1", True)
            channel.ack(first.tag)
        assert list(channel.consume("q", no_ack=True, seconds=0.1)) == []


def test_a_consumer_whose_queue_goes_is_told() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        tag = peer.expect(commands.Basic.Consume).consumer_tag
        peer.send(commands.Basic.ConsumeOk, consumer_tag=tag)
        peer.send(commands.Basic.Deliver, consumer_tag=tag, delivery_tag=1)
        peer.content(b"last")
        peer.send(commands.Basic.Cancel, consumer_tag=tag)
        peer.goodbye()

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        messages = connection.channel().consume("q", no_ack=True)
        assert next(messages).body == b"last"
        with pytest.raises(Cancelled, match="'q' is gone"):
            next(messages)
