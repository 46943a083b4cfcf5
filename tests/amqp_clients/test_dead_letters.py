"""Dead letters: why a message was given up, where it went, and what it tells of its way."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from clients.brokers import eventually

from .pika_client import Delivery, Inbox, bodies, count, declare, get, publish, take

pytestmark = pytest.mark.real


def to(queue: str) -> dict[str, Any]:
    """Return the arguments of a queue whose dead letters go to another."""
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def deaths(found: Delivery) -> list[dict[str, Any]]:
    """Return what a dead letter tells of its deaths, without their times."""
    return [
        {name: value for name, value in death.items() if name != "time"} for death in found.headers["x-death"]
    ]


def reject(channel: BlockingChannel, queue: str) -> None:
    """Take a message and reject it."""
    [found] = take(channel, queue, 1, auto_ack=False)
    channel.basic_reject(found.tag, requeue=False)


@pytest.mark.parametrize("method", ["reject", "nack"])
def test_a_rejected_message_tells_its_story(confirming: BlockingChannel, name: str, method: str) -> None:
    dead = declare(confirming)
    declare(confirming, name, arguments=to(dead))
    publish(confirming, name, b"m", headers={"mine": 1}, content_type="text/plain", delivery_mode=2)
    [found] = take(confirming, name, 1, auto_ack=False)
    if method == "reject":
        confirming.basic_reject(found.tag, requeue=False)
    else:
        confirming.basic_nack(found.tag, requeue=False)
    [letter] = take(confirming, dead, 1)
    assert (letter.body, letter.method.exchange, letter.method.routing_key) == (b"m", "", dead)
    assert not letter.redelivered
    assert (letter.properties.content_type, letter.properties.delivery_mode) == ("text/plain", 2)
    assert deaths(letter) == [
        {"count": 1, "exchange": "", "queue": name, "reason": "rejected", "routing-keys": [name]}
    ]
    died = letter.headers["x-death"][0]["time"]
    assert isinstance(died, datetime)
    assert abs(died.timestamp() - time.time()) < 60 + abs(time.timezone)
    rest = {key: value for key, value in letter.headers.items() if key != "x-death"}
    assert rest == {
        "mine": 1,
        "x-first-death-exchange": "",
        "x-first-death-queue": name,
        "x-first-death-reason": "rejected",
    }


def test_an_expired_message_loses_its_expiration(confirming: BlockingChannel, name: str) -> None:
    dead = declare(confirming)
    declare(confirming, name, arguments=to(dead))
    publish(confirming, name, b"m", expiration="100")
    [letter] = take(confirming, dead, 1)
    assert letter.properties.expiration is None
    assert deaths(letter) == [
        {
            "count": 1,
            "exchange": "",
            "original-expiration": "100",
            "queue": name,
            "reason": "expired",
            "routing-keys": [name],
        }
    ]


def test_messages_of_a_queue_with_a_ttl_expire_in_order(confirming: BlockingChannel, name: str) -> None:
    dead = declare(confirming)
    declare(confirming, name, arguments=to(dead) | {"x-message-ttl": 100})
    publish(confirming, name, *(b"%d" % each for each in range(20)))
    assert bodies(confirming, dead, 20) == [b"%d" % each for each in range(20)]


def test_a_message_that_had_to_make_room_is_a_dead_letter(confirming: BlockingChannel, name: str) -> None:
    dead = declare(confirming)
    declare(confirming, name, arguments=to(dead) | {"x-max-length": 1})
    publish(confirming, name, b"old", b"new")
    [letter] = take(confirming, dead, 1)
    assert (letter.body, deaths(letter)[0]["reason"]) == (b"old", "maxlen")
    assert bodies(confirming, name, 1) == [b"new"]


@pytest.mark.parametrize(("how", "counted"), [("get", [0, 1, 2]), ("push", [None, 1, 2])])
def test_a_poison_message_dies_at_the_delivery_limit(
    confirming: BlockingChannel, name: str, how: str, counted: list[int | None]
) -> None:
    dead = declare(confirming)
    arguments = to(dead) | {"x-queue-type": "quorum", "x-delivery-limit": 2}
    confirming.queue_declare(name, durable=True, arguments=arguments)
    publish(confirming, name, b"poison", delivery_mode=2)
    inbox = Inbox(confirming)
    if how == "push":
        inbox.consume(name)
    counts = []
    for _attempt in range(3):
        [found] = inbox.wait(1) if how == "push" else take(confirming, name, 1, auto_ack=False)
        counts.append(found.headers.get("x-delivery-count"))
        confirming.basic_nack(found.tag, requeue=True)
    assert counts == counted
    [letter] = take(confirming, dead, 1)
    assert (letter.body, deaths(letter)[0]["reason"]) == (b"poison", "delivery_limit")
    assert count(confirming, name) == 0
    confirming.queue_delete(name)


def test_without_a_routing_key_of_its_own_a_letter_keeps_that_of_the_message(
    confirming: BlockingChannel, name: str
) -> None:
    exchange = f"{name}-dlx"
    confirming.exchange_declare(exchange, "direct", auto_delete=True)
    dead = declare(confirming)
    confirming.queue_bind(dead, exchange, "original")
    declare(confirming, name, arguments={"x-dead-letter-exchange": exchange})
    confirming.queue_bind(name, "amq.direct", "original")
    publish(confirming, "original", b"m", exchange="amq.direct")
    reject(confirming, name)
    [letter] = take(confirming, dead, 1)
    assert (letter.method.exchange, letter.method.routing_key) == (exchange, "original")
    assert deaths(letter)[0]["exchange"] == "amq.direct"
    assert deaths(letter)[0]["routing-keys"] == ["original"]
    confirming.queue_unbind(name, "amq.direct", "original")


def test_deaths_are_counted_by_queue_and_reason_and_the_latest_comes_first(
    confirming: BlockingChannel, name: str
) -> None:
    second = f"{name}-second"
    declare(confirming, name, arguments=to(second))
    declare(confirming, second, arguments=to(name))
    publish(confirming, name, b"m")
    for _round in range(2):
        reject(confirming, name)
        reject(confirming, second)
    reject(confirming, name)
    [found] = take(confirming, second, 1)
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths(found)] == [
        (name, "rejected", 3),
        (second, "rejected", 2),
    ]
    assert found.headers["x-first-death-queue"] == name


def test_a_message_that_expires_in_a_circle_is_dropped(confirming: BlockingChannel, name: str) -> None:
    """Nobody rejected it on its way round, so it would go on for ever."""
    second = f"{name}-second"
    declare(confirming, name, arguments=to(second) | {"x-message-ttl": 50})
    declare(confirming, second, arguments=to(name) | {"x-message-ttl": 50})
    publish(confirming, name, b"m")
    inbox = Inbox(confirming)
    confirming.connection.sleep(0.6)
    assert inbox.quiet()
    assert (count(confirming, name), count(confirming, second)) == (0, 0)


def test_a_circle_with_a_rejection_goes_on(confirming: BlockingChannel, name: str) -> None:
    """The retry that many build: reject to a queue where the message waits, and comes back from."""
    waiting = f"{name}-waiting"
    declare(confirming, name, arguments=to(waiting))
    declare(confirming, waiting, arguments=to(name) | {"x-message-ttl": 50})
    publish(confirming, name, b"m")
    for attempt in range(3):
        [found] = take(confirming, name, 1, auto_ack=False)
        if attempt:
            assert [(death["queue"], death["reason"], death["count"]) for death in deaths(found)] == [
                (waiting, "expired", attempt),
                (name, "rejected", attempt),
            ]
        confirming.basic_reject(found.tag, requeue=False)


def test_a_dead_letter_exchange_that_is_not_there_loses_letters(
    confirming: BlockingChannel, name: str
) -> None:
    declare(confirming, name, arguments={"x-dead-letter-exchange": f"{name}-absent"})
    publish(confirming, name, b"m")
    reject(confirming, name)
    eventually(lambda: count(confirming, name), lambda seen: seen == 0)
    publish(confirming, name, b"the queue works on")
    assert bodies(confirming, name, 1) == [b"the queue works on"]


def test_purged_and_deleted_messages_are_no_dead_letters(confirming: BlockingChannel, name: str) -> None:
    dead = declare(confirming)
    declare(confirming, name, arguments=to(dead))
    publish(confirming, name, b"a", b"b")
    confirming.queue_purge(name)
    publish(confirming, name, b"c")
    confirming.queue_delete(name)
    assert get(confirming, dead) is None


def test_a_rejected_message_without_a_dead_letter_exchange_is_gone(
    confirming: BlockingChannel, name: str
) -> None:
    declare(confirming, name)
    publish(confirming, name, b"m")
    reject(confirming, name)
    assert get(confirming, name) is None


def test_the_keys_a_message_was_copied_to_are_told(confirming: BlockingChannel, name: str) -> None:
    dead = declare(confirming)
    declare(confirming, name, arguments=to(dead))
    publish(confirming, name, b"m", headers={"CC": ["copy"], "BCC": ["blind"]})
    reject(confirming, name)
    [letter] = take(confirming, dead, 1)
    assert deaths(letter)[0]["routing-keys"] == [name, "copy"]
    assert "CC" not in letter.headers
