"""What bounds a queue: how long messages wait, how long it lives unused, how much it holds."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError

from clients.brokers import eventually

from .pika_client import Inbox, bodies, channel_closed, count, declare, get, publish, synchronize

pytestmark = pytest.mark.real


def test_messages_expire_by_the_queues_ttl(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-message-ttl": 300})
    publish(confirming, name, b"a", b"b")
    assert count(confirming, name) == 2
    eventually(lambda: count(confirming, name), lambda seen: seen == 0, seconds=5)


def test_a_message_expires_by_its_own_ttl_at_the_head(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    publish(confirming, name, b"waits")
    publish(confirming, name, b"short", expiration="100")
    publish(confirming, name, b"after")
    confirming.connection.sleep(0.5)
    assert bodies(confirming, name, 2) == [b"waits", b"after"]


def test_the_shorter_ttl_counts(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-message-ttl": 200})
    publish(confirming, name, b"long", expiration="60000")
    eventually(lambda: count(confirming, name), lambda seen: seen == 0, seconds=5)


def test_a_ttl_of_nothing_delivers_to_waiting_consumers_only(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-message-ttl": 0})
    publish(confirming, name, b"nobody waits")
    assert get(confirming, name) is None
    inbox = Inbox(confirming)
    inbox.consume(name, auto_ack=True)
    publish(confirming, name, b"somebody waits")
    assert inbox.bodies(1) == [b"somebody waits"]


def test_a_delivered_message_does_not_expire_until_it_is_requeued(
    confirming: BlockingChannel, name: str
) -> None:
    declare(confirming, name, arguments={"x-message-ttl": 300})
    publish(confirming, name, b"held")
    held = get(confirming, name, auto_ack=False)
    assert held is not None
    confirming.connection.sleep(0.6)
    confirming.basic_nack(held.tag, requeue=True)
    eventually(lambda: count(confirming, name), lambda seen: seen == 0, seconds=5)


@pytest.mark.parametrize("expiration", ["-1", "soon", "1.5", ""])
def test_an_expiration_that_is_no_number_is_refused(
    connection: pika.BlockingConnection, expiration: str
) -> None:
    channel = connection.channel()
    queue = declare(channel)
    publish(channel, queue, b"m", expiration=expiration)
    with pytest.raises(ChannelClosedByBroker) as closed:
        synchronize(channel)
    assert closed.value.reply_code == 406
    assert closed.value.reply_text.startswith(f"PRECONDITION_FAILED - invalid expiration '{expiration}'")


def test_an_unused_queue_expires(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments={"x-expires": 400})
    for _each in range(4):
        connection.sleep(0.2)
        channel.queue_declare(name, arguments={"x-expires": 400})
    inbox = Inbox(channel)
    tag = inbox.consume(name)
    connection.sleep(0.8)
    channel.basic_cancel(tag)
    connection.sleep(1.2)
    with channel_closed(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        channel.queue_declare(name, passive=True)


def test_the_oldest_messages_make_room(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-max-length": 3})
    publish(confirming, name, *(b"%d" % each for each in range(10)))
    assert bodies(confirming, name, 3) == [b"7", b"8", b"9"]


def test_the_oldest_bytes_make_room(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-max-length-bytes": 100})
    publish(confirming, name, b"a" * 60, b"b" * 30, b"c" * 30)
    assert bodies(confirming, name, 2) == [b"b" * 30, b"c" * 30]
    publish(confirming, name, b"d" * 30, b"e" * 200)
    assert count(confirming, name) == 0


def test_messages_without_a_body_weigh_nothing(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-max-length-bytes": 1})
    publish(confirming, name, b"", b"", b"")
    assert count(confirming, name) == 3


def test_the_unacknowledged_do_not_count(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-max-length": 2})
    publish(confirming, name, b"0", b"1")
    held = [get(confirming, name, auto_ack=False) for _each in range(2)]
    publish(confirming, name, b"2", b"3")
    confirming.basic_nack(0, multiple=True, requeue=True)
    assert len(held) == 2
    assert bodies(confirming, name, 2) == [b"2", b"3"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses_with_a_negative_confirm(
    confirming: BlockingChannel, name: str, overflow: str
) -> None:
    dead = declare(confirming)
    arguments = {
        "x-max-length": 2,
        "x-overflow": overflow,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    declare(confirming, name, arguments=arguments)
    publish(confirming, name, b"0", b"1")
    for body in (b"2", b"3"):
        with pytest.raises(NackError):
            publish(confirming, name, body)
    assert bodies(confirming, name, 2) == [b"0", b"1"]
    expected = [b"2", b"3"] if overflow == "reject-publish-dlx" else []
    assert bodies(confirming, dead, len(expected)) == expected
    publish(confirming, name, b"4")
    assert bodies(confirming, name, 1) == [b"4"]


def test_without_confirms_a_full_queue_drops_what_comes(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    publish(channel, name, b"0", b"1", b"2")
    assert bodies(channel, name, 1) == [b"0"]


def test_a_full_queue_refuses_for_all_the_queues_of_a_message(confirming: BlockingChannel, name: str) -> None:
    """The confirm speaks for every queue, and the others keep the message."""
    full, roomy = declare(confirming, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}), name
    declare(confirming, roomy)
    confirming.exchange_declare(f"{name}-x", "fanout", auto_delete=True)
    for queue in (full, roomy):
        confirming.queue_bind(queue, f"{name}-x")
    with pytest.raises(NackError):
        publish(confirming, "key", b"m", exchange=f"{name}-x")
    assert bodies(confirming, roomy, 1) == [b"m"]
