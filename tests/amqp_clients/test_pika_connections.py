"""Connections and channels: who may connect, and what closes a channel or the connection."""

from __future__ import annotations

import time

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ProbableAccessDeniedError

from .brokers import OTHER_VHOST, Broker
from .pika_client import (
    bodies,
    channel_closed,
    connected,
    connection_closed,
    count,
    declare,
    opened,
    publish,
    synchronize,
)

pytestmark = pytest.mark.real

CAPABILITIES = {
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
}


def test_the_broker_says_what_it_is_and_what_it_can_do(connection: pika.BlockingConnection) -> None:
    said = connection._impl.server_properties
    assert {"product", "version", "platform", "information"} <= set(said)
    can = {name for name, able in said["capabilities"].items() if able}
    assert can >= CAPABILITIES
    assert connection.basic_nack_supported
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported
    assert connection.publisher_confirms_supported


def test_a_name_for_the_connection_and_unknown_client_properties_are_taken(broker: Broker) -> None:
    properties = {
        "connection_name": "billing",
        "capabilities": {"unheard_of": True},
        "nested": {"a": [1, "b"]},
    }
    with opened(broker, client_properties=properties) as channel:
        assert declare(channel).startswith("amq.gen-")


def test_an_unknown_virtual_host_is_refused(broker: Broker) -> None:
    with pytest.raises(ProbableAccessDeniedError) as refused, connected(broker, virtual_host="nowhere"):
        pass
    assert "(530) 'NOT_ALLOWED - vhost nowhere not found'" in str(refused.value)


def test_virtual_hosts_hold_different_queues(broker: Broker, other_vhost: str, name: str) -> None:
    with opened(broker) as here, opened(broker, virtual_host=other_vhost) as there:
        here.confirm_delivery()
        declare(here, name)
        publish(here, name, b"here")
        with channel_closed(404, f"NOT_FOUND - no queue '{name}' in vhost '{OTHER_VHOST}'"):
            there.queue_declare(name, passive=True)
        with opened(broker, virtual_host=other_vhost) as again:
            declare(again, name)
            assert count(again, name) == 0
        assert bodies(here, name, 1) == [b"here"]


def test_an_idle_connection_lives_on_heartbeats(broker: Broker) -> None:
    """pika ends a connection on which it hears nothing for the time agreed on."""
    with opened(broker, heartbeat=1) as channel:
        channel.connection.sleep(4)
        assert channel.connection.is_open
        assert declare(channel)


def test_a_channel_error_closes_that_channel_alone(connection: pika.BlockingConnection, name: str) -> None:
    first, second = connection.channel(), connection.channel()
    with channel_closed(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        first.queue_declare(name, passive=True)
    assert first.is_closed
    assert second.is_open
    assert declare(second)


def test_the_number_of_a_closed_channel_is_used_again(connection: pika.BlockingConnection, name: str) -> None:
    for _again in range(3):
        channel = connection.channel(7)
        with pytest.raises(ChannelClosedByBroker):
            channel.queue_declare(name, passive=True)
    channel = connection.channel(7)
    assert declare(channel)
    channel.close()
    assert declare(connection.channel(7))


def test_what_was_published_before_an_error_stays(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    declare(channel, name)
    publish(channel, name, *(b"%d" % each for each in range(10)))
    with pytest.raises(ChannelClosedByBroker):
        channel.queue_declare(f"{name}-unknown", passive=True)
    assert bodies(connection.channel(), name, 10) == [b"%d" % each for each in range(10)]


def test_a_publish_to_an_unknown_exchange_closes_the_channel(channel: BlockingChannel, name: str) -> None:
    with channel_closed(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'"):
        publish(channel, "key", b"lost", exchange=name)
        synchronize(channel)
    assert channel.connection.is_open


def test_what_no_exchange_can_be_closes_the_connection(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    with connection_closed(503, "COMMAND_INVALID - unknown exchange type 'nonsense'"):
        channel.exchange_declare(name, "nonsense")
    assert connection.is_closed


def test_closing_a_connection_leaves_others_alone(broker: Broker, name: str) -> None:
    with opened(broker) as staying:
        declare(staying, name)
        with connected(broker) as failing, pytest.raises(ConnectionClosedByBroker):
            failing.channel().exchange_declare(name, "nonsense")
        publish(staying, name, b"still here")
        assert bodies(staying, name, 1) == [b"still here"]


def test_many_channels_share_a_connection(connection: pika.BlockingConnection, name: str) -> None:
    channels = [connection.channel() for _each in range(100)]
    declare(channels[0], name)
    for number, channel in enumerate(channels):
        publish(channel, name, b"%d" % number)
    found = bodies(channels[-1], name, 100)
    assert sorted(found, key=int) == [b"%d" % each for each in range(100)]


def test_connections_come_and_go(broker: Broker) -> None:
    began = time.monotonic()
    for _each in range(30):
        with opened(broker) as channel:
            assert channel.is_open
    assert time.monotonic() - began < 20


def test_big_messages_are_cut_into_frames(broker: Broker, name: str) -> None:
    sizes = [0, 1, 4_087, 4_088, 4_089, 131_064, 131_065, 1_000_000]
    with opened(broker) as big, opened(broker, frame_max=4_096) as small:
        declare(big, name, exclusive=False, auto_delete=True)
        for size in sizes:
            for sender, reader in ((big, small), (small, big)):
                publish(sender, name, b"x" * size)
                [found] = bodies(reader, name, 1)
                assert len(found) == size
