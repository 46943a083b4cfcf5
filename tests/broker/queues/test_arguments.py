"""The arguments of queues: what they ask for, and what RabbitMQ refuses in its own words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.broker.queues.arguments import QueueSettings, check_new_queue
from headwater.core.amqp import ReplyCode
from headwater.record.amqp.tables import Table

from .declared import refused

Q = "queue 'q' in vhost '/'"


def check(arguments: Table, **options: bool) -> QueueSettings:
    return check_new_queue(
        arguments, Q, **{"durable": True, "exclusive": False, "auto_delete": False, **options}
    )


def test_what_the_arguments_ask_for() -> None:
    assert check({}) == QueueSettings()
    assert check(
        {
            "x-message-ttl": 0,
            "x-expires": 1,
            "x-max-length": 5,
            "x-max-length-bytes": 2**40,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
            "x-max-priority": 255,
            "x-single-active-consumer": True,
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
        }
    ) == QueueSettings(
        message_ttl_ms=0,
        expires_ms=1,
        max_length=5,
        max_length_bytes=2**40,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        max_priority=255,
        single_active_consumer=True,
    )


def test_a_queue_that_is_fed_from_a_topic_begins_somewhere_in_it() -> None:
    for offset in ("first", "last", "next", 17, datetime(2026, 1, 1, tzinfo=UTC)):
        assert check({"x-headwater-topic": "orders", "x-headwater-offset": offset}).topic == "orders"


@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes", "x-max-priority"])
def test_a_queue_that_is_fed_from_a_topic_has_no_limits_or_priorities(name: str) -> None:
    refused(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid arg '{name}' for {Q}: its messages are in topic 'orders'",
        lambda: check({"x-headwater-topic": "orders", name: 5}),
    )


@pytest.mark.parametrize("offset", ["middle", -1, True, 1.5])
def test_a_place_in_a_topic_that_is_none_is_refused(offset: Any) -> None:
    refused(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid arg 'x-headwater-offset' for {Q}: expected first, last, next, an offset or a timestamp",
        lambda: check({"x-headwater-topic": "orders", "x-headwater-offset": offset}),
    )


def test_a_quorum_queue_limits_deliveries_and_drops_its_head_where_it_cannot_dead_letter() -> None:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-overflow": "reject-publish-dlx"}
    assert check(arguments) == QueueSettings("quorum", delivery_limit=3, overflow="drop-head")


def test_a_negative_delivery_limit_is_none() -> None:
    assert check({"x-queue-type": "quorum", "x-delivery-limit": -1}).delivery_limit is None


def test_arguments_that_nobody_knows_are_kept_and_mean_nothing() -> None:
    assert check({"x-ours": 1, "x-queue-master-locator": 5, "plain": None}) == QueueSettings()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_where_a_queue_is_led_makes_no_difference_to_one_node(kind: str) -> None:
    arguments = {"x-queue-type": kind, "x-queue-leader-locator": "client-local"}
    assert check(arguments) == check({"x-queue-type": kind})


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -1, "{value_negative,-1}"),
        ("x-expires", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-message-ttl", "60", '"expected integer, got longstr"'),
        ("x-message-ttl", 1.5, '"expected integer, got double"'),
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-dead-letter-routing-key", 5, "{unacceptable_type,signedint}"),
        ("x-max-length", True, '"expected integer, got bool"'),
        ("x-max-length", None, '"expected integer, got void"'),
        ("x-max-length-bytes", -5, "{value_negative,-5}"),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-overflow", "explode", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,signedint}"),
        ("x-queue-mode", "fast", "\"unsupported queue mode 'fast'\""),
        ("x-queue-version", 3, "\"unsupported queue version '3'\""),
        ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
        ("x-queue-type", "heap", "\"unsupported queue type 'heap'\""),
        (
            "x-queue-type",
            "stream",
            "\"unsupported queue type 'stream'\": use a topic, and queues with 'x-headwater-topic' to consume it",
        ),
        ("x-queue-leader-locator", "nearest", "invalid_queue_locator_arg"),
        ("x-queue-type", [], "{unacceptable_type,array}"),
        ("x-headwater-topic", 2**40, "{unacceptable_type,long}"),
        ("x-headwater-topic", "", "Topic name is invalid: the empty string is not allowed"),
    ],
)
def test_values_that_are_refused(name: str, value: Any, wrong: str) -> None:
    refused(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid arg '{name}' for {Q}: {wrong}",
        lambda: check({name: value}),
    )


def test_a_dead_letter_exchange_is_named_by_a_string() -> None:
    refused(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in {Q}",
        lambda: check({"x-dead-letter-exchange": 1}),
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [("classic", "x-delivery-limit"), ("classic", "x-max-age"), ("quorum", "x-max-priority")],
)
def test_arguments_of_another_type_of_queue_are_refused(kind: str, name: str) -> None:
    refused(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid arg '{name}' for {Q} of queue type rabbit_{kind}_queue",
        lambda: check({"x-queue-type": kind, name: 1}),
    )


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ({"auto_delete": True}, "auto-delete"),
        ({"exclusive": True}, "exclusive-owner"),
        ({"durable": False}, "non-durable"),
    ],
)
def test_a_quorum_queue_is_durable_and_everyones(option: dict[str, bool], wrong: str) -> None:
    refused(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid property '{wrong}' for {Q}",
        lambda: check({"x-queue-type": "quorum"}, **option),
    )
