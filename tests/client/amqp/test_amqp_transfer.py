"""Moving messages: confirmed where they go before they are acknowledged where they were."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pamqp import commands

from headwater.client.amqp import Connection, Delivery, NotTaken, Refused, Transfer, origin
from headwater.record.amqp.properties import NO_PROPERTIES, Properties

from .fake import FakeBroker, Peer

READER, WRITER = 1, 2


def _begin(peer: Peer, ready: int) -> None:
    peer.handshake()
    for channel in (READER, WRITER):
        peer.expect(commands.Channel.Open)
        peer.send(commands.Channel.OpenOk, channel)
    peer.expect(commands.Confirm.Select)
    peer.send(commands.Confirm.SelectOk, WRITER)
    assert peer.expect(commands.Queue.Declare).passive
    peer.send(commands.Queue.DeclareOk, READER, queue="source", message_count=ready)


def _give(peer: Peer, tags: list[int], properties: bytes = NO_PROPERTIES, asked: int | None = None) -> None:
    for _ in range(asked or len(tags)):
        peer.expect(commands.Basic.Get)
    for tag in tags:
        peer.send(commands.Basic.GetOk, READER, delivery_tag=tag, routing_key="old", redelivered=False)
        peer.content(b"%d" % tag, properties, READER)
    for _ in range((asked or len(tags)) - len(tags)):
        peer.send(commands.Basic.GetEmpty, READER)


def _end(peer: Peer) -> None:
    for channel in (READER, WRITER):
        peer.expect(commands.Channel.Close)
        peer.send(commands.Channel.CloseOk, channel)
    peer.goodbye()


def _run(script: Callable[[Peer], None], *, rate: float | None = None, limit: int | None = None) -> Transfer:
    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        transfer = Transfer(connection, "source", lambda delivery: "target", rate=rate, limit=limit)
        for _ in transfer.run():
            pass
    return transfer


def test_a_message_is_acknowledged_once_it_is_confirmed() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 2)
        _give(peer, [1, 2])
        for body in (b"1", b"2"):
            method, _, got = peer.message()
            assert (got, method.routing_key, method.exchange, method.mandatory) == (body, "target", "", True)
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=2, multiple=True)
        assert [peer.expect(commands.Basic.Ack).delivery_tag for _ in range(2)] == [1, 2]
        _end(peer)

    assert _run(script).moved == 2


def test_an_unconfirmed_message_is_not_acknowledged() -> None:
    """The broker goes between the two: the message is still where it was."""

    def script(peer: Peer) -> None:
        _begin(peer, 2)
        _give(peer, [1, 2])
        peer.message()
        peer.message()
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=1)
        peer.send(commands.Channel.Close, WRITER, reply_code=406, reply_text="PRECONDITION_FAILED - user_id")
        peer.expect(commands.Channel.CloseOk)
        assert peer.expect(commands.Basic.Ack).delivery_tag == 1
        peer.goodbye()  # and no acknowledgement of the second

    with pytest.raises(Refused, match="user_id"):
        _run(script)


def test_what_was_refused_before_the_channel_broke_is_not_acknowledged() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 4)
        _give(peer, [1, 2, 3, 4])
        for _ in range(4):
            peer.message()
        peer.send(commands.Basic.Nack, WRITER, delivery_tag=1)
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=3, multiple=True)
        peer.send(commands.Channel.Close, WRITER, reply_code=404, reply_text="NOT_FOUND - gone")
        peer.expect(commands.Channel.CloseOk)
        assert [peer.expect(commands.Basic.Ack).delivery_tag for _ in range(2)] == [2, 3]
        peer.goodbye()

    with pytest.raises(Refused, match="gone"):
        _run(script)


def test_what_came_back_before_the_channel_broke_is_not_acknowledged() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 1)
        _give(peer, [1])
        _, raw, body = peer.message()
        peer.send(commands.Basic.Return, WRITER, reply_code=312, reply_text="NO_ROUTE", routing_key="target")
        peer.content(body, raw, WRITER)
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=1)
        peer.send(commands.Channel.Close, WRITER, reply_code=404, reply_text="NOT_FOUND - gone")
        peer.expect(commands.Channel.CloseOk)
        peer.goodbye()

    with pytest.raises((Refused, NotTaken)):
        _run(script)


def test_a_refused_message_stays_and_stops_the_transfer() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 3)
        _give(peer, [1, 2, 3])
        for _ in range(3):
            peer.message()
        peer.send(commands.Basic.Nack, WRITER, delivery_tag=2)
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=3, multiple=True)
        assert [peer.expect(commands.Basic.Ack).delivery_tag for _ in range(2)] == [1, 3]
        peer.goodbye()

    with pytest.raises(NotTaken, match="1 messages were refused, and stay in source: target is full"):
        _run(script)


def test_messages_of_a_queue_that_is_gone_stay() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 2)
        _give(peer, [1, 2])
        for _ in range(2):
            _, raw, body = peer.message()
        peer.send(commands.Basic.Return, WRITER, reply_code=312, reply_text="NO_ROUTE", routing_key="target")
        peer.content(body, raw, WRITER)
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=2, multiple=True)
        peer.goodbye()  # which of the two came back cannot be told: neither is acknowledged

    with pytest.raises(NotTaken, match="there is no queue named target: its messages stay in source"):
        _run(script)


def test_it_ends_where_the_queue_does_though_there_were_more() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 5)
        _give(peer, [1], asked=5)
        peer.message()
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=1)
        peer.expect(commands.Basic.Ack)
        _give(peer, [], asked=4)
        _end(peer)

    transfer = _run(script)
    assert (transfer.moved, transfer.total) == (1, 5)


def test_a_rate_and_a_limit() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 1_000_000)
        for tag in (1, 2, 3):
            _give(peer, [tag])
            peer.message()
            peer.send(commands.Basic.Ack, WRITER, delivery_tag=tag)
            peer.expect(commands.Basic.Ack)
        _end(peer)

    began = time.monotonic()
    assert _run(script, rate=10, limit=3).moved == 3
    assert 0.2 <= time.monotonic() - began < 2


def test_copies_and_counts_are_not_published_again() -> None:
    """With CC, the broker would put the message in further queues once more."""
    headers = {"CC": ["other"], "x-delivery-count": 3, "mine": 1}
    published: list[Properties] = []

    def script(peer: Peer) -> None:
        _begin(peer, 1)
        _give(peer, [1], Properties(headers=headers, message_id="m").encode())
        published.append(Properties.decode(peer.message()[1]))
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=1)
        peer.expect(commands.Basic.Ack)
        _end(peer)

    _run(script)
    assert published == [Properties(headers={"mine": 1}, message_id="m")]


def test_messages_without_a_destination_stay() -> None:
    def script(peer: Peer) -> None:
        _begin(peer, 2)
        _give(peer, [1, 2])
        assert peer.message()[2] == b"2"
        peer.send(commands.Basic.Ack, WRITER, delivery_tag=1)
        assert peer.expect(commands.Basic.Ack).delivery_tag == 2
        _end(peer)

    def whither(delivery: Delivery) -> str | None:
        return None if delivery.body == b"1" else "target"

    with FakeBroker(script) as broker, Connection(broker.url) as connection:
        transfer = Transfer(connection, "source", whither)
        assert list(transfer.run()) == [1]
    assert (transfer.moved, transfer.kept) == (1, 1)


@pytest.mark.parametrize(
    ("headers", "queue"),
    [
        (None, None),
        ({}, None),
        ({"x-death": "what"}, None),
        ({"x-death": [{"queue": "dead"}]}, None),
        ({"x-death": [{"queue": "work", "reason": "rejected"}]}, "work"),
        ({"x-death": [{"queue": "retry"}, {"queue": "work"}]}, "work"),
        ({"x-death": [{"queue": "work"}, {"queue": "dead"}]}, "work"),
        ({"x-death": [{"queue": 1}, "?", {}]}, None),
    ],
)
def test_where_a_dead_letter_came_from(headers: dict[str, object] | None, queue: str | None) -> None:
    assert origin(Properties(headers=headers), "dead") == queue
