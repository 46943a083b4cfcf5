"""Consumers begin and end: tags, cancels from both sides, queues that go away."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Broker
from .pika_client import Inbox, connected, connection_closed, declare, opened, publish, synchronize, take
from .raw import Raw

pytestmark = pytest.mark.real


def consumers(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.consumer_count)


def test_the_server_names_a_consumer(broker: Broker) -> None:
    with Raw(broker) as raw:
        raw.open().channel()
        queue = raw.call(commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk, 1).queue
        asked = commands.Basic.Consume(queue=queue)
        first, second = (raw.call(asked, commands.Basic.ConsumeOk, 1).consumer_tag for _each in range(2))
    assert first.startswith("amq.ctag-")
    assert first != second


def test_a_cancelled_consumer_gets_no_more(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    inbox = Inbox(confirming)
    tag = inbox.consume(name)
    publish(confirming, name, b"before")
    [held] = inbox.wait(1)
    confirming.basic_cancel(tag)
    publish(confirming, name, b"after")
    assert inbox.quiet()
    assert consumers(confirming, name) == 0
    confirming.basic_ack(held.tag)
    assert [each.body for each in take(confirming, name, 1)] == [b"after"]


def test_what_a_cancelled_consumer_holds_stays_its_own(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    declare(channel, name)
    inbox = Inbox(channel)
    tag = inbox.consume(name)
    publish(channel, name, b"held")
    inbox.wait(1)
    channel._impl._rpc(
        pika.spec.Basic.Cancel(consumer_tag=tag), lambda _frame: None, [pika.spec.Basic.CancelOk]
    )
    connection.sleep(0.2)
    other = connection.channel()
    assert other.queue_declare(name, passive=True).method.message_count == 0
    channel.basic_recover(requeue=True)
    assert [each.body for each in take(other, name, 1)] == [b"held"]


def test_an_unknown_consumer_may_be_cancelled(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    answers: list[Any] = []
    channel._impl._rpc(
        pika.spec.Basic.Cancel(consumer_tag="unheard-of"), answers.append, [pika.spec.Basic.CancelOk]
    )
    connection.sleep(0.3)
    assert [frame.method.consumer_tag for frame in answers] == ["unheard-of"]


def test_a_tag_is_used_once_on_a_channel(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    declare(channel, name)
    Inbox(channel).consume(name, consumer_tag="mine")
    other = connection.channel()
    Inbox(other).consume(name, consumer_tag="mine")
    with connection_closed(530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'"):
        channel._impl._rpc(
            pika.spec.Basic.Consume(queue=name, consumer_tag="mine"),
            lambda _frame: None,
            [pika.spec.Basic.ConsumeOk],
        )
        synchronize(channel)


@pytest.mark.parametrize("how", ["same channel", "other connection"])
def test_consumers_are_told_that_their_queue_is_gone(broker: Broker, name: str, how: str) -> None:
    with opened(broker) as channel, opened(broker) as other:
        channel.queue_declare(name)
        inbox = Inbox(channel)
        tag = inbox.consume(name)
        (channel if how == "same channel" else other).queue_delete(name)
        inbox.wait_cancelled(tag)
        assert channel.is_open


def test_a_client_that_does_not_know_of_cancels_is_not_told(broker: Broker, name: str) -> None:
    capabilities = {"capabilities": {"consumer_cancel_notify": False}}
    with opened(broker, client_properties=capabilities) as channel:
        channel.queue_declare(name)
        inbox = Inbox(channel)
        inbox.consume(name)
        with opened(broker) as other:
            other.queue_delete(name)
        channel.connection.sleep(0.5)
        assert inbox.cancelled == []
        assert channel.is_open


def test_messages_of_a_deleted_queue_may_still_be_acknowledged(broker: Broker, name: str) -> None:
    with opened(broker) as channel, opened(broker) as other:
        channel.queue_declare(name)
        inbox = Inbox(channel)
        inbox.consume(name)
        publish(channel, name, b"a", b"b")
        first, second = inbox.wait(2)
        other.queue_delete(name)
        channel.connection.sleep(0.2)
        channel.basic_ack(first.tag)
        channel.basic_nack(second.tag, requeue=True)
        assert declare(channel)


def test_the_generator_of_pika_consumes_and_hands_back(broker: Broker, name: str) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        declare(channel, name)
        publish(channel, name, *(b"%d" % each for each in range(5)))
        seen = []
        for method, _properties, body in channel.consume(name, inactivity_timeout=5):
            seen.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(seen) == 3:
                break
        channel.cancel()
        assert seen == [b"0", b"1", b"2"]
        assert [each.body for each in take(channel, name, 2)] == [b"3", b"4"]
