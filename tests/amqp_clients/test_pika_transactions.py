"""Transactions: what is wrong shows when it is sent, and a commit does all or nothing of the rest."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .pika_client import bodies, channel_closed, count, declare, publish, synchronize


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
