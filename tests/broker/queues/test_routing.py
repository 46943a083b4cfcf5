"""Where messages go, exchange by exchange and from one to the next."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.amqp import ReplyCode
from headwater.record.amqp.tables import Table

from .declared import Declared, refused


@pytest.fixture
def declared() -> Declared:
    declared = Declared()
    for name in ("q", "r", "s"):
        declared.queue(name)
    return declared


def test_the_default_exchange_knows_every_queue_by_its_name(declared: Declared) -> None:
    assert declared.reached("", "q") == ["q"]
    assert declared.reached("", "nobody") == []
    assert declared.route("", "q").cacheable


def test_a_direct_exchange_compares_keys(declared: Declared) -> None:
    declared.bind("amq.direct", "q", "a")
    declared.bind("amq.direct", "r", "a")
    declared.bind("amq.direct", "s", "b")
    assert declared.reached("amq.direct", "a") == ["q", "r"]
    assert declared.reached("amq.direct", "A") == []


def test_a_fanout_exchange_asks_nothing(declared: Declared) -> None:
    declared.bind("amq.fanout", "q", "a")
    declared.bind("amq.fanout", "q", "b")
    declared.bind("amq.fanout", "r")
    assert declared.reached("amq.fanout", "whatever") == ["q", "r"]
    declared.unbind("amq.fanout", "q", "b")
    assert declared.reached("amq.fanout") == ["q", "r"]


def test_a_queue_gets_a_message_once_however_many_bindings_match(declared: Declared) -> None:
    for pattern in ("#", "a.*", "a.b", "*.b"):
        declared.bind("amq.topic", "q", pattern)
    declared.bind("amq.topic", "r", "b.#")
    assert declared.reached("amq.topic", "a.b") == ["q"]


def test_an_exchange_that_is_not_there(declared: Declared) -> None:
    refused(ReplyCode.NOT_FOUND, "no exchange 'x' in vhost '/'", lambda: declared.route("x"))


def test_copies_go_to_their_own_keys(declared: Declared) -> None:
    declared.bind("amq.direct", "q", "a")
    declared.bind("amq.direct", "r", "b")
    route = declared.route("amq.direct", "a", copies=["b", "a", "c"])
    assert sorted(queue.name for queue in route.queues) == ["q", "r"]
    assert not route.cacheable
    assert declared.reached("", "q", copies=["s"]) == ["q", "s"]


# Headers


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "y"}, False),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({}, {}, True),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": b"\x00x"}, {"a": "\x00x"}, True),
        ({"x-match": "all", "x-kind": "k"}, {}, True),
        ({"x-match": "any", "x-kind": "k"}, {"x-kind": "k"}, False),
        ({"x-match": "all-with-x", "x-kind": "k"}, {}, False),
        ({"x-match": "all-with-x", "x-kind": "k"}, {"x-kind": "k"}, True),
        ({"x-match": "any-with-x", "x-kind": "k", "a": 1}, {"x-kind": "k"}, True),
    ],
)
def test_a_headers_exchange_compares_headers(
    declared: Declared, arguments: Table, headers: Table, expected: bool
) -> None:
    declared.bind("amq.headers", "q", "ignored", arguments)
    route = declared.route("amq.headers", "whatever", headers)
    assert bool(route.queues) is expected
    assert not route.cacheable


def test_unbinding_one_of_several_rules_leaves_the_others(declared: Declared) -> None:
    rules: list[Table] = [{"a": 1}, {"a": True}, {"a": float("nan")}, {"b": 1}]
    for rule in rules:
        declared.bind("amq.match", "q", "", rule)
    declared.unbind("amq.match", "q", "", {"a": True})
    assert declared.reached("amq.match", headers={"a": 1}) == ["q"]
    assert declared.reached("amq.match", headers={"a": True}) == []
    declared.unbind("amq.match", "q", "", {"a": float("nan")})
    declared.unbind("amq.match", "q", "", {"a": 1})
    declared.unbind("amq.match", "q", "", {"b": 1})
    assert list(declared.definitions.vhosts["/"].bindings) == []
    assert declared.reached("amq.match", headers={"a": 1, "b": 1}) == []


# Consistent hash


KEYS = [f"order-{number}" for number in range(4_000)]


def shares(declared: Declared, exchange: str = "hash") -> dict[str, str]:
    """Return each key's queue: always one."""
    found = {}
    for key in KEYS:
        (found[key],) = declared.reached(exchange, key)
    return found


def test_weights_are_shares(declared: Declared) -> None:
    declared.exchange("hash", "x-consistent-hash")
    weights = {"q": 1, "r": 2, "s": 5}
    for name, weight in weights.items():
        declared.bind("hash", name, str(weight))
    counts = Counter(shares(declared).values())
    for name, weight in weights.items():
        assert counts[name] == pytest.approx(len(KEYS) * weight / 8, rel=0.15)


def test_a_new_queue_takes_its_share_and_nothing_else_moves(declared: Declared) -> None:
    declared.exchange("hash", "x-consistent-hash")
    declared.bind("hash", "q", "1")
    declared.bind("hash", "r", "1")
    before = shares(declared)
    declared.bind("hash", "s", "1")
    after = shares(declared)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert {after[key] for key in moved} == {"s"}
    assert len(moved) == pytest.approx(len(KEYS) / 3, rel=0.15)
    declared.unbind("hash", "s", "1")
    assert shares(declared) == before


def test_shares_are_the_same_whatever_the_order_of_binding_and_after_an_upgrade(declared: Declared) -> None:
    declared.exchange("hash", "x-consistent-hash")
    declared.exchange("again", "x-consistent-hash")
    for name in ("q", "r", "s"):
        declared.bind("hash", name, "3")
    for name in ("s", "r", "q"):
        declared.bind("again", name, "3")
    found = shares(declared, "hash")
    assert found == shares(declared, "again")
    # Pinned: with another hash every key would be sent elsewhere.
    assert "".join(found[key] for key in KEYS[:12]) == "srqqsrsrsrqr"


def test_a_second_binding_of_a_queue_gives_it_no_second_share(declared: Declared) -> None:
    declared.exchange("hash", "x-consistent-hash")
    declared.bind("hash", "q", "1")
    declared.bind("hash", "r", "1")
    before = shares(declared)
    declared.bind("hash", "q", "50")
    assert shares(declared) == before
    declared.unbind("hash", "q", "1")
    assert Counter(shares(declared).values())["q"] > len(KEYS) * 0.9
    declared.unbind("hash", "q", "50")
    assert set(shares(declared).values()) == {"r"}


def test_hashing_by_a_header_or_a_property(declared: Declared) -> None:
    declared.exchange("header", "x-consistent-hash", arguments={"hash-header": "user"})
    declared.exchange("property", "x-consistent-hash", arguments={"hash-property": "message_id"})
    for exchange in ("header", "property"):
        for name in ("q", "r", "s"):
            declared.bind(exchange, name, "1")
    by_header = [declared.reached("header", key, {"user": "ada"}) for key in KEYS[:50]]
    assert len(set(map(tuple, by_header))) == 1
    assert len({tuple(declared.reached("header", "k", {"user": n})) for n in range(50)}) == 3
    assert len(declared.reached("header", "k", {})) == 1
    by_property = {
        tuple(declared.reached("property", "k", property_named=lambda name, n=n: f"{name} {n}"))
        for n in range(50)
    }
    assert len(by_property) == 3
    assert not declared.route("header", "k").cacheable
    assert not declared.route("property", "k").cacheable


def test_a_hash_by_routing_key_may_be_remembered(declared: Declared) -> None:
    declared.exchange("hash", "x-consistent-hash")
    assert declared.reached("hash", "k") == []
    declared.bind("hash", "q", "1")
    assert declared.route("hash", "k").cacheable


@given(st.lists(st.integers(1, 10**30), min_size=1, max_size=6), st.text(max_size=10))
def test_any_weights_lead_to_one_queue(weights: list[int], key: str) -> None:
    declared = Declared()
    declared.exchange("hash", "x-consistent-hash")
    for number, weight in enumerate(weights):
        declared.queue(str(number))
        declared.bind("hash", str(number), str(weight))
    assert len(declared.reached("hash", key)) == 1


# From exchange to exchange


def test_exchanges_pass_messages_on(declared: Declared) -> None:
    declared.exchange("x", "topic", internal=True)
    declared.bind_exchange("amq.direct", "x", "a.b")
    declared.bind("amq.direct", "q", "a.b")
    declared.bind("x", "q", "a.*")
    declared.bind("x", "r", "#")
    assert declared.reached("amq.direct", "a.b") == ["q", "r"]


def test_a_circle_of_exchanges_ends(declared: Declared) -> None:
    names = ["a", "b", "c"]
    for name, queue in zip(names, ("q", "r", "s"), strict=True):
        declared.exchange(name, "fanout")
        declared.bind(name, queue)
    for source, destination in pairwise([*names, "a"]):
        declared.bind_exchange(source, destination)
    declared.bind_exchange("a", "a")
    for name in names:
        assert declared.reached(name) == ["q", "r", "s"]


def test_what_finds_no_destination_goes_to_the_alternate_exchange(declared: Declared) -> None:
    declared.exchange("x", arguments={"alternate-exchange": "y"})
    declared.exchange("y", arguments={"alternate-exchange": "z"})
    declared.exchange("z", "fanout")
    declared.bind("x", "q", "x")
    declared.bind("y", "r", "y")
    declared.bind("z", "s")
    assert declared.reached("x", "x") == ["q"]
    assert declared.reached("x", "y") == ["r"]
    assert declared.reached("x", "neither") == ["s"]
    declared.bind_exchange("amq.fanout", "x")
    assert declared.reached("amq.fanout", "neither") == ["s"]


def test_an_exchange_is_a_destination_even_where_it_leads_nowhere(declared: Declared) -> None:
    declared.exchange("x", "fanout", arguments={"alternate-exchange": "z"})
    declared.exchange("z", "fanout")
    declared.exchange("empty")
    declared.bind_exchange("x", "empty")
    declared.bind("z", "q")
    assert declared.reached("x") == []


def test_alternates_that_are_missing_or_run_in_a_circle_drop_the_message(declared: Declared) -> None:
    declared.exchange("x", arguments={"alternate-exchange": "nobody"})
    declared.exchange("y", arguments={"alternate-exchange": "z"})
    declared.exchange("z", arguments={"alternate-exchange": "y"})
    declared.exchange("d", arguments={"alternate-exchange": ""})
    assert declared.reached("x", "k") == []
    assert declared.reached("y", "k") == []
    assert declared.reached("d", "q") == []


# Delays and topics


def delayed(declared: Declared, kind: str = "direct", **arguments: Any) -> None:
    declared.exchange("x", "x-delayed-message", arguments={"x-delayed-type": kind, **arguments})


def test_a_delayed_exchange_holds_what_asks_for_it(declared: Declared) -> None:
    delayed(declared, "topic")
    declared.bind("x", "q", "a.*")
    route = declared.route("x", "a.b", {"x-delay": 5_000})
    assert (route.queues, route.delayed, route.delay_ms, route.cacheable) == ((), ("x",), 5_000, False)
    assert declared.reached("x", "a.b", {"x-delay": -5_000}) == ["q"]
    assert declared.reached("x", "a.b") == ["q"]
    assert declared.reached("x", "b") == []


@pytest.mark.parametrize(
    ("value", "delay"),
    [(1, 1), ("250", 250), (90 * 86_400_000, 90 * 86_400_000), (0, 0), ("soon", 0), (True, 0), (1.5, 0)],
)
def test_what_a_delay_may_be(declared: Declared, value: Any, delay: int) -> None:
    delayed(declared)
    assert declared.route("x", "k", {"x-delay": value}).delay_ms == delay


def test_a_delay_further_on_holds_only_what_goes_there(declared: Declared) -> None:
    delayed(declared, "fanout")
    declared.bind("x", "q")
    declared.bind("amq.fanout", "r")
    declared.bind_exchange("amq.fanout", "x")
    route = declared.route("amq.fanout", "", {"x-delay": 10})
    assert [queue.name for queue in route.queues] == ["r"]
    assert (route.delayed, route.delay_ms) == (("x",), 10)
    assert declared.reached("amq.fanout") == ["q", "r"]


def test_an_exchange_that_appends_to_a_topic(declared: Declared) -> None:
    declared.exchange("log", "x-headwater-topic", arguments={"topic": "orders"})
    declared.exchange(
        "late", "x-delayed-message", arguments={"x-delayed-type": "x-headwater-topic", "topic": "t"}
    )
    for name in ("log", "late"):
        declared.bind_exchange("amq.fanout", name)
    declared.bind("amq.fanout", "q")
    assert declared.route("log", "k").topics == ("orders",)
    route = declared.route("amq.fanout", "k")
    assert ([queue.name for queue in route.queues], route.topics) == (["q"], ("orders", "t"))
    assert declared.route("amq.fanout", "k", {"x-delay": 1}).topics == ("orders",)
