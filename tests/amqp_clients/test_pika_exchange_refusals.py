"""What may not be done with exchanges and bindings, and how the broker says so."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .pika_client import channel_closed, count, declare, publish, synchronize

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("changed", "argument", "received", "current"),
    [
        ({"exchange_type": "fanout"}, "type", "'fanout'", "'direct'"),
        ({"durable": True}, "durable", "'true'", "'false'"),
        ({"auto_delete": False}, "auto_delete", "'false'", "'true'"),
        ({"internal": True}, "internal", "'true'", "'false'"),
        (
            {"arguments": {"alternate-exchange": "b"}},
            "alternate-exchange",
            "'b'",
            "'a'",
        ),
        ({"arguments": {}}, "alternate-exchange", "none", "the value 'a' of type 'longstr'"),
    ],
)
def test_an_exchange_is_not_declared_differently(
    channel: BlockingChannel, name: str, changed: dict[str, Any], argument: str, received: str, current: str
) -> None:
    declared: dict[str, Any] = {
        "exchange_type": "direct",
        "auto_delete": True,
        "arguments": {"alternate-exchange": "a"},
    }
    channel.exchange_declare(name, **declared)
    channel.exchange_declare(name, **declared)
    channel.exchange_declare(name, passive=True)
    text = (
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for exchange '{name}' in vhost '/': "
        f"received {received} but current is {current}"
    )
    with channel_closed(406, text):
        channel.exchange_declare(name, **(declared | changed))


def test_arguments_that_mean_nothing_do_not_make_a_difference(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "direct", auto_delete=True, arguments={"note": "one"})
    channel.exchange_declare(name, "direct", auto_delete=True, arguments={"note": "two"})


def test_an_unknown_exchange_is_not_found(channel: BlockingChannel, name: str) -> None:
    with channel_closed(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'"):
        channel.exchange_declare(name, passive=True)


def test_reserved_names_are_refused(channel: BlockingChannel) -> None:
    text = "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    with channel_closed(403, text):
        channel.exchange_declare("amq.mine", "direct")


def test_standard_exchanges_are_not_deleted(channel: BlockingChannel) -> None:
    text = "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    with channel_closed(403, text):
        channel.exchange_delete("amq.direct")


@pytest.mark.parametrize("action", ["declare", "delete", "bind", "unbind"])
def test_the_default_exchange_stays_as_it_is(channel: BlockingChannel, action: str) -> None:
    queue = declare(channel)
    with channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        match action:
            case "declare":
                channel.exchange_declare("", "direct", durable=True)
            case "delete":
                channel.exchange_delete("")
            case "bind":
                channel.queue_bind(queue, "", "key")
            case _:
                channel.queue_unbind(queue, "", queue)


def test_an_exchange_in_use_is_not_deleted_if_unused_is_asked(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.exchange_declare(name, "direct")
    channel.queue_bind(declare(channel), name, "key")
    with channel_closed(406, f"PRECONDITION_FAILED - exchange '{name}' in vhost '/' in use"):
        channel.exchange_delete(name, if_unused=True)
    connection.channel().exchange_delete(name)


def test_what_is_not_there_may_be_deleted_and_unbound(channel: BlockingChannel, name: str) -> None:
    channel.exchange_delete(name)
    channel.queue_unbind(declare(channel), "amq.direct", name)
    channel.exchange_declare(name, "direct")
    channel.exchange_delete(name, if_unused=True)


@pytest.mark.parametrize("missing", ["queue", "exchange"])
def test_what_is_not_there_may_not_be_bound(channel: BlockingChannel, name: str, missing: str) -> None:
    queue, exchange = (name, "amq.direct") if missing == "queue" else (declare(channel), name)
    with channel_closed(404, f"NOT_FOUND - no {missing} '{name}' in vhost '/'"):
        channel.queue_bind(queue, exchange, "key")


def test_nobody_publishes_to_an_internal_exchange(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "fanout", internal=True, auto_delete=True)
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'"
    with channel_closed(403, text):
        publish(channel, "key", b"m", exchange=name)
        synchronize(channel)


def test_an_internal_exchange_is_reached_through_another(confirming: BlockingChannel, name: str) -> None:
    confirming.exchange_declare(name, "fanout", internal=True, auto_delete=True)
    confirming.exchange_declare(f"{name}-door", "fanout", auto_delete=True)
    confirming.exchange_bind(name, f"{name}-door")
    queue = declare(confirming)
    confirming.queue_bind(queue, name)
    publish(confirming, "key", b"m", exchange=f"{name}-door")
    assert count(confirming, queue) == 1


@pytest.mark.parametrize("how", ["unbind", "delete queue", "delete source"])
def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: BlockingChannel, name: str, how: str
) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.exchange_declare(f"{name}-above", "fanout", auto_delete=True)
    channel.exchange_bind(name, f"{name}-above")
    queue = declare(channel)
    channel.queue_bind(queue, name)
    if how == "unbind":
        channel.queue_unbind(queue, name)
    elif how == "delete queue":
        channel.queue_delete(queue)
    else:
        channel.exchange_delete(f"{name}-above")
        channel.exchange_declare(name, passive=True)
        channel.queue_delete(queue)
    with channel_closed(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'"):
        channel.exchange_declare(name, passive=True)
