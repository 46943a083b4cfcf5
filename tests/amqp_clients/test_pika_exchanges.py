"""Exchanges: every type, bindings between them, where messages go that no binding wants."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from .pika_client import bodies, channel_closed, count, declare, publish, take

pytestmark = pytest.mark.real


def test_the_default_exchange_routes_by_the_name_of_the_queue(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    publish(confirming, name, b"a")
    publish(confirming, f"{name}-unknown", b"nowhere")
    [found] = take(confirming, name, 1)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"a", "", name)


@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_the_standard_exchanges_are_there(channel: BlockingChannel, exchange: str, kind: str) -> None:
    channel.exchange_declare(exchange, kind, passive=True)
    channel.exchange_declare(exchange, kind, durable=True)


def test_direct(confirming: BlockingChannel, name: str) -> None:
    confirming.exchange_declare(name, "direct", auto_delete=True)
    one, two = declare(confirming), declare(confirming)
    confirming.queue_bind(one, name, "red")
    confirming.queue_bind(two, name, "red")
    confirming.queue_bind(two, name, "green")
    confirming.queue_bind(two, name, "")
    for key in ("red", "green", "", "blue"):
        publish(confirming, key, key or b"none", exchange=name)
    assert bodies(confirming, one, 1) == [b"red"]
    assert bodies(confirming, two, 3) == [b"red", b"green", b"none"]


def test_fanout(confirming: BlockingChannel, name: str) -> None:
    confirming.exchange_declare(name, "fanout", auto_delete=True)
    queues = [declare(confirming) for _each in range(3)]
    for number, queue in enumerate(queues):
        confirming.queue_bind(queue, name, f"ignored-{number}")
    publish(confirming, "whatever", b"to all", exchange=name)
    assert [bodies(confirming, queue, 1) for queue in queues] == [[b"to all"]] * 3


TOPIC_KEYS = ["a", "a.b", "a.b.c", "a..c", "b", "", ".", "a.", "a.*", "a.b.c.d"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("#", TOPIC_KEYS),
        ("*", ["a", "b"]),
        ("a.*", ["a.b", "a.", "a.*"]),
        ("a.#", ["a", "a.b", "a.b.c", "a..c", "a.", "a.*", "a.b.c.d"]),
        ("#.c", ["a.b.c", "a..c"]),
        ("a.*.c", ["a.b.c", "a..c"]),
        ("a.#.c", ["a.b.c", "a..c"]),
        ("#.b.#", ["a.b", "a.b.c", "b", "a.b.c.d"]),
        ("*.#", [key for key in TOPIC_KEYS if key]),
        ("a.b.c", ["a.b.c"]),
        ("a*", []),
        ("", [""]),
        ("*.*", ["a.b", ".", "a.", "a.*"]),
    ],
)
def test_topic(confirming: BlockingChannel, name: str, pattern: str, matched: list[str]) -> None:
    confirming.exchange_declare(name, "topic", auto_delete=True)
    queue = declare(confirming)
    confirming.queue_bind(queue, name, pattern)
    for key in TOPIC_KEYS:
        publish(confirming, key, key, exchange=name)
    assert [found.method.routing_key for found in take(confirming, queue, len(matched))] == matched
    assert count(confirming, queue) == 0


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"a": 1, "b": "y"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"a": 2, "b": "y"}, False),
        ({"x-match": "any", "a": 1}, None, False),
        ({"x-match": "all"}, None, True),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all", "a": None}, {"a": "anything"}, True),
        ({"x-match": "all", "a": None}, {"b": "anything"}, False),
        ({"x-match": "all", "a": 1}, {"a": "1"}, False),
        ({"x-match": "all", "a": True}, {"a": True}, True),
        ({"x-match": "all", "x-ignored": "1", "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-seen": "1"}, {"x-seen": "1"}, True),
        ({"x-match": "all-with-x", "x-seen": "1"}, {"x-seen": "2"}, False),
        ({"x-match": "any-with-x", "x-seen": "1", "a": 1}, {"x-seen": "1"}, True),
    ],
)
def test_headers(
    confirming: BlockingChannel,
    name: str,
    arguments: dict[str, Any],
    headers: dict[str, Any] | None,
    matches: bool,
) -> None:
    confirming.exchange_declare(name, "headers", auto_delete=True)
    queue = declare(confirming)
    confirming.queue_bind(queue, name, "", arguments)
    publish(confirming, "ignored", b"m", exchange=name, headers=headers)
    assert count(confirming, queue) == int(matches)


def test_a_headers_binding_with_an_unknown_x_match_is_refused(channel: BlockingChannel) -> None:
    queue = declare(channel)
    text = (
        'PRECONDITION_FAILED - Invalid x-match field value <<"some">>; '
        "expected all, any, all-with-x, or any-with-x"
    )
    with channel_closed(406, text):
        channel.queue_bind(queue, "amq.headers", "", {"x-match": "some"})


def test_a_message_that_several_bindings_want_is_put_once(confirming: BlockingChannel, name: str) -> None:
    confirming.exchange_declare(name, "topic", auto_delete=True)
    queue = declare(confirming)
    for pattern in ("a.#", "#.b", "a.b"):
        confirming.queue_bind(queue, name, pattern)
    publish(confirming, "a.b", b"once", exchange=name)
    assert bodies(confirming, queue, 1) == [b"once"]


def test_the_consistent_hash_exchange_keeps_a_key_on_one_queue(
    confirming: BlockingChannel, name: str
) -> None:
    confirming.exchange_declare(name, "x-consistent-hash", durable=True)
    queues = [declare(confirming) for _each in range(4)]
    for queue in queues:
        confirming.queue_bind(queue, name, "10")
    for number in range(400):
        publish(confirming, f"customer-{number % 100}", b"%d" % number, exchange=name)
    seen: dict[str, set[str]] = {}
    total = 0
    for queue in queues:
        held = count(confirming, queue)
        assert held > 0
        total += held
        for found in take(confirming, queue, held):
            seen.setdefault(found.method.routing_key, set()).add(queue)
    assert total == 400
    assert {len(where) for where in seen.values()} == {1}
    confirming.exchange_delete(name)


def test_the_consistent_hash_exchange_can_look_at_a_header(confirming: BlockingChannel, name: str) -> None:
    confirming.exchange_declare(name, "x-consistent-hash", arguments={"hash-header": "customer"})
    one, two = declare(confirming), declare(confirming)
    confirming.queue_bind(one, name, "1")
    confirming.queue_bind(two, name, "1")
    for number in range(20):
        publish(confirming, f"{number}", b"m", exchange=name, headers={"customer": "the same"})
    assert sorted([count(confirming, one), count(confirming, two)]) == [0, 20]
    confirming.exchange_delete(name)


def test_exchanges_are_bound_to_exchanges(confirming: BlockingChannel, name: str) -> None:
    inner, outer = f"{name}-inner", f"{name}-outer"
    confirming.exchange_declare(inner, "topic")
    confirming.exchange_declare(outer, "direct")
    queue = declare(confirming)
    confirming.queue_bind(queue, inner, "news.#")
    confirming.exchange_bind(inner, outer, "news.sport")
    confirming.exchange_bind(outer, inner, "news.#")
    for key in ("news.sport", "news.world"):
        publish(confirming, key, key, exchange=outer)
    assert bodies(confirming, queue, 1) == [b"news.sport"]
    publish(confirming, "news.world", b"straight", exchange=inner)
    assert bodies(confirming, queue, 1) == [b"straight"]
    confirming.exchange_unbind(inner, outer, "news.sport")
    publish(confirming, "news.sport", b"no more", exchange=outer)
    assert count(confirming, queue) == 0
    for exchange in (inner, outer):
        confirming.exchange_delete(exchange)


def test_the_alternate_exchange_gets_what_nobody_wants(confirming: BlockingChannel, name: str) -> None:
    rest, last = f"{name}-rest", f"{name}-last"
    confirming.exchange_declare(last, "fanout", auto_delete=True)
    confirming.exchange_declare(rest, "direct", auto_delete=True, arguments={"alternate-exchange": last})
    confirming.exchange_declare(name, "direct", auto_delete=True, arguments={"alternate-exchange": rest})
    wanted, unwanted, ultimate = declare(confirming), declare(confirming), declare(confirming)
    confirming.queue_bind(wanted, name, "known")
    confirming.queue_bind(unwanted, rest, "second")
    confirming.queue_bind(ultimate, last)
    for key in ("known", "second", "third"):
        publish(confirming, key, key, exchange=name, mandatory=True)
    assert bodies(confirming, wanted, 1) == [b"known"]
    assert bodies(confirming, unwanted, 1) == [b"second"]
    [found] = take(confirming, ultimate, 1)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"third", name, "third")


def test_an_alternate_exchange_that_is_not_there_loses_messages(
    confirming: BlockingChannel, name: str
) -> None:
    confirming.exchange_declare(name, "fanout", auto_delete=True, arguments={"alternate-exchange": "absent"})
    publish(confirming, "key", b"lost", exchange=name)
    with pytest.raises(UnroutableError):
        publish(confirming, "key", b"returned", exchange=name, mandatory=True)


def test_cc_and_bcc_route_to_more_keys_and_bcc_is_not_told(confirming: BlockingChannel, name: str) -> None:
    to, copy, blind = declare(confirming), declare(confirming), declare(confirming)
    publish(confirming, to, b"m", headers={"CC": [copy, to], "BCC": [blind], "kept": 1})
    for queue in (to, copy, blind):
        [found] = take(confirming, queue, 1)
        assert found.headers == {"CC": [copy, to], "kept": 1}
        assert found.method.routing_key == to
        assert count(confirming, queue) == 0


def test_what_is_no_key_among_the_further_keys_is_passed_over(confirming: BlockingChannel) -> None:
    to, copy = declare(confirming), declare(confirming)
    publish(confirming, to, b"m", headers={"CC": [17, copy, None], "BCC": [True]})
    for queue in (to, copy):
        [found] = take(confirming, queue, 1)
        assert found.headers == {"CC": [17, copy, None]}
