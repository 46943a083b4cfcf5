"""Transactions: what is wrong shows when it is sent, and a commit does all or nothing of the rest."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .pika_client import bodies, channel_closed, count, declare, publish, synchronize, take

pytestmark = pytest.mark.real


@pytest.fixture
def transactional(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel in a transaction, beside the one that looks on."""
    made = connection.channel()
    made.tx_select()
    return made


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (
            {"user_id": "another"},
            "PRECONDITION_FAILED - user_id property set to 'another' but authenticated user was 'guest'",
        ),
        ({"expiration": "soon"}, "PRECONDITION_FAILED - invalid expiration 'soon': no_integer"),
        ({"reply_to": "amq.rabbitmq.reply-to"}, "PRECONDITION_FAILED - fast reply consumer does not exist"),
    ],
    ids=["user", "expiration", "reply-to"],
)
def test_a_message_that_is_refused_ends_the_transaction_it_is_in(
    channel: BlockingChannel, transactional: BlockingChannel, properties: dict[str, Any], text: str
) -> None:
    queue = declare(channel)
    publish(transactional, queue, b"good")
    with channel_closed(406, text):
        publish(transactional, queue, b"bad", **properties)
        synchronize(transactional)
    assert count(channel, queue) == 0


def test_a_message_goes_where_its_exchange_led_when_it_was_published(
    channel: BlockingChannel, transactional: BlockingChannel, name: str
) -> None:
    bound, later = declare(channel), declare(channel)
    channel.exchange_declare(name, "fanout")
    channel.queue_bind(bound, name)
    publish(transactional, "", b"m", exchange=name)
    synchronize(transactional)
    channel.queue_bind(later, name)
    channel.exchange_delete(name)
    transactional.tx_commit()
    assert bodies(channel, bound, 1) == [b"m"]
    assert count(channel, later) == 0


def test_a_queue_that_is_gone_at_the_commit_gets_nothing(
    channel: BlockingChannel, transactional: BlockingChannel, name: str
) -> None:
    gone, left = declare(channel), declare(channel)
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_bind(gone, name)
    channel.queue_bind(left, name)
    publish(transactional, "", b"m", exchange=name)
    synchronize(transactional)
    channel.queue_delete(gone)
    channel.exchange_bind("amq.headers", name)
    transactional.tx_commit()
    assert bodies(channel, left, 1) == [b"m"]


@pytest.fixture
def queue(channel: BlockingChannel) -> str:
    """A queue with three messages."""
    made = declare(channel)
    publish(channel, made, b"a", b"b", b"c")
    return made


def test_what_a_transaction_has_acknowledged_is_not_acknowledged_again(
    channel: BlockingChannel, transactional: BlockingChannel, queue: str
) -> None:
    first, _second, _third = take(transactional, queue, 3, auto_ack=False)
    transactional.basic_ack(first.tag)
    publish(transactional, queue, b"d")
    with channel_closed(406, f"PRECONDITION_FAILED - unknown delivery tag {first.tag}"):
        transactional.basic_ack(first.tag)
        synchronize(transactional)
    assert bodies(channel, queue, 3) == [b"a", b"b", b"c"]


def test_what_a_transaction_has_settled_is_not_meant_by_what_follows(
    channel: BlockingChannel, transactional: BlockingChannel, queue: str
) -> None:
    first, second, _third = take(transactional, queue, 3, auto_ack=False)
    transactional.basic_reject(first.tag, requeue=True)
    transactional.basic_ack(second.tag, multiple=True)
    transactional.basic_recover(requeue=True)
    assert bodies(channel, queue, 1) == [b"c"]
    transactional.tx_commit()
    assert bodies(channel, queue, 1) == [b"a"]
