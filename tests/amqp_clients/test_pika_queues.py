"""Queues as they are declared: kinds, lifetimes, and declarations that do not agree."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from clients.brokers import eventually

from .brokers import Broker
from .pika_client import Inbox, channel_closed, connected, count, declare, get, opened, publish, take

pytestmark = pytest.mark.real


def exists(broker: Broker, queue: str) -> bool:
    """Tell whether a queue is there."""
    with opened(broker) as channel:
        try:
            channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as closed:
            if closed.reply_code != 404:
                raise
            return False
    return True


def not_found(queue: str) -> str:
    return f"NOT_FOUND - no queue '{queue}' in vhost '/'"


def test_declaring_tells_messages_and_consumers(confirming: BlockingChannel, name: str) -> None:
    declared = confirming.queue_declare(name, auto_delete=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 0, 0)
    Inbox(confirming).consume(name)
    confirming.basic_qos(prefetch_count=1)
    Inbox(confirming).consume(name)
    again = confirming.queue_declare(name, passive=True).method
    assert (again.message_count, again.consumer_count) == (0, 2)


def test_the_server_names_a_queue_and_the_channel_remembers_it(confirming: BlockingChannel) -> None:
    first, second = declare(confirming), declare(confirming)
    assert first.startswith("amq.gen-")
    assert first != second
    confirming.queue_bind("", "amq.direct", first)
    publish(confirming, first, b"to the queue declared last", exchange="amq.direct")
    assert (count(confirming, first), count(confirming, second)) == (0, 1)
    assert get(confirming, "") is not None


def test_without_a_queue_declared_there_is_none_to_remember(connection: pika.BlockingConnection) -> None:
    with channel_closed(404, "NOT_FOUND - no previously declared queue"):
        connection.channel().queue_bind("", "amq.direct", "key")


def test_reserved_names_are_refused(channel: BlockingChannel) -> None:
    with channel_closed(403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"):
        channel.queue_declare("amq.mine")


def test_an_unknown_queue_is_not_found(connection: pika.BlockingConnection, name: str) -> None:
    with channel_closed(404, not_found(name)):
        connection.channel().queue_declare(name, passive=True)
    with channel_closed(404, not_found(name)):
        connection.channel().basic_get(name)
    with channel_closed(404, not_found(name)):
        connection.channel().basic_consume(name, print)
    with channel_closed(404, not_found(name)):
        connection.channel().queue_purge(name)


def test_an_unknown_queue_may_be_deleted(channel: BlockingChannel, name: str) -> None:
    assert channel.queue_delete(name).method.message_count == 0


@pytest.mark.parametrize(
    ("changed", "argument", "received", "current"),
    [
        ({"durable": True}, "durable", "'true'", "'false'"),
        ({"auto_delete": False}, "auto_delete", "'false'", "'true'"),
        (
            {"arguments": {"x-message-ttl": 2_000}},
            "x-message-ttl",
            "'2000'",
            "'60000'",
        ),
        ({"arguments": None}, "x-message-ttl", "none", "the value '60000' of type 'signedint'"),
        (
            {"arguments": {"x-message-ttl": 60_000, "x-max-length": 5}},
            "x-max-length",
            "the value '5' of type 'signedint'",
            "none",
        ),
        (
            {"arguments": {"x-message-ttl": 60_000, "x-dead-letter-exchange": "dead"}},
            "x-dead-letter-exchange",
            "the value 'dead' of type 'longstr'",
            "none",
        ),
    ],
)
def test_a_queue_is_not_declared_differently(
    channel: BlockingChannel, name: str, changed: dict[str, Any], argument: str, received: str, current: str
) -> None:
    declared: dict[str, Any] = {"auto_delete": True, "arguments": {"x-message-ttl": 60_000}}
    channel.queue_declare(name, **declared)
    channel.queue_declare(name, **declared)
    text = (
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{name}' in vhost '/': "
        f"received {received} but current is {current}"
    )
    with channel_closed(406, text):
        channel.queue_declare(name, **(declared | changed))


def test_arguments_that_mean_nothing_do_not_make_a_difference(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, auto_delete=True, arguments={"note": "one"})
    channel.queue_declare(name, auto_delete=True, arguments={"note": "two", "x-unknown": [1, {"a": "b"}]})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"x-message-ttl": -1},
            "invalid arg 'x-message-ttl' for queue '{}' in vhost '/': {{value_negative,-1}}",
        ),
        (
            {"x-message-ttl": "1"},
            "invalid arg 'x-message-ttl' for queue '{}' in vhost '/': \"expected integer, got longstr\"",
        ),
        ({"x-expires": 0}, "invalid arg 'x-expires' for queue '{}' in vhost '/': {{value_zero,0}}"),
        (
            {"x-max-length": -1},
            "invalid arg 'x-max-length' for queue '{}' in vhost '/': {{value_negative,-1}}",
        ),
        (
            {"x-max-priority": 256},
            "invalid arg 'x-max-priority' for queue '{}' in vhost '/': {{max_value_exceeded,256}}",
        ),
        (
            {"x-overflow": "explode"},
            "invalid arg 'x-overflow' for queue '{}' in vhost '/': invalid_overflow",
        ),
        (
            {"x-dead-letter-routing-key": "key"},
            "invalid arg 'x-dead-letter-routing-key' for queue '{}' in vhost '/': "
            "routing_key_but_no_dlx_defined",
        ),
        (
            {"x-queue-type": "heap"},
            "invalid arg 'x-queue-type' for queue '{}' in vhost '/': \"unsupported queue type 'heap'\"",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    channel: BlockingChannel, name: str, arguments: dict[str, Any], text: str
) -> None:
    with channel_closed(406, f"PRECONDITION_FAILED - {text.format(name)}"):
        channel.queue_declare(name, auto_delete=True, arguments=arguments)


def test_an_exclusive_queue_is_its_connections_alone(broker: Broker, name: str) -> None:
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. "
        "It could be originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )
    with connected(broker) as owner, connected(broker) as other:
        declare(owner.channel(), name)
        publish(owner.channel(), name, b"mine")
        publish(other.channel(), name, b"anyone may publish")
        for attempt in ("declare", "passive", "consume", "get", "purge", "delete", "bind"):
            channel = other.channel()
            with channel_closed(405, text):
                match attempt:
                    case "declare":
                        channel.queue_declare(name, exclusive=True)
                    case "passive":
                        channel.queue_declare(name, passive=True)
                    case "consume":
                        channel.basic_consume(name, print)
                    case "get":
                        channel.basic_get(name)
                    case "purge":
                        channel.queue_purge(name)
                    case "delete":
                        channel.queue_delete(name)
                    case _:
                        channel.queue_bind(name, "amq.direct", name)
        assert {each.body for each in take(owner.channel(), name, 2)} == {b"mine", b"anyone may publish"}


def test_an_exclusive_queue_goes_with_its_connection(broker: Broker, name: str) -> None:
    with opened(broker) as channel:
        declare(channel, name)
        channel.close()
        assert channel.connection.is_open
    eventually(lambda: exists(broker, name), lambda seen: not seen)


def test_an_auto_delete_queue_goes_with_its_last_consumer(broker: Broker, name: str) -> None:
    with opened(broker) as channel:
        channel.queue_declare(name, auto_delete=True)
        first, second = Inbox(channel).consume(name), Inbox(channel).consume(name)
        channel.basic_cancel(first)
        assert exists(broker, name)
        channel.basic_cancel(second)
        assert not exists(broker, name)


def test_an_auto_delete_queue_that_nobody_consumed_stays(broker: Broker, name: str) -> None:
    with opened(broker) as channel:
        channel.queue_declare(name, auto_delete=True)
    with opened(broker) as channel:
        assert count(channel, name) == 0
        Inbox(channel).consume(name)
    eventually(lambda: exists(broker, name), lambda seen: not seen)


def test_a_queue_outlives_its_connection(broker: Broker, name: str) -> None:
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare(name)
        publish(channel, name, b"kept")
    with opened(broker) as channel:
        assert count(channel, name) == 1
        assert channel.queue_delete(name).method.message_count == 1


def test_purging_tells_how_many_and_leaves_the_unacknowledged(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    publish(confirming, name, *(b"%d" % each for each in range(5)))
    held = get(confirming, name, auto_ack=False)
    assert held is not None
    assert confirming.queue_purge(name).method.message_count == 4
    confirming.basic_nack(held.tag, requeue=True)
    assert [each.body for each in take(confirming, name, 1)] == [b"0"]


def test_a_queue_is_deleted_only_if_unused_or_empty_where_that_is_asked(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(name)
    publish(channel, name, b"m")
    with channel_closed(406, f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty"):
        channel.queue_delete(name, if_empty=True)
    channel = connection.channel()
    Inbox(channel).consume(name)
    with channel_closed(406, f"PRECONDITION_FAILED - queue '{name}' in vhost '/' in use"):
        channel.queue_delete(name, if_unused=True)
    connection.channel().queue_delete(name)
