"""How many connections there may be, and how long a stranger has."""

from __future__ import annotations

import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.net.admission import Admission
from headwater.net.counters import Counters
from headwater.net.log_limit import LogLimit
from headwater.testing.clock import ManualClock

LIMITS = {
    "max.connections": 5,
    "max.connections.per.ip": 3,
    "headwater.max.unauthenticated.connections": 4,
    "headwater.authentication.timeout.ms": 1000,
}


class Client:
    """A connection, as far as it is counted."""

    def __init__(self, peer: str, active_ms: int = 0) -> None:
        self.peer = peer
        self.active_ms = active_ms


@pytest.fixture
def clock() -> ManualClock:
    """The time."""
    return ManualClock()


@pytest.fixture
def admission(clock: ManualClock) -> Admission[Client]:
    """Few connections."""
    node: Any = SimpleNamespace(
        counters=Counters(), clock=clock, log_limit=LogLimit(clock), number=LIMITS.__getitem__
    )
    return Admission(node, logging.getLogger("test"))


def test_one_address_has_a_limit_of_its_own(admission: Admission[Client]) -> None:
    clients = [Client("a") for _ in range(3)]
    assert [admission.enter(client, stranger=False) for client in clients] == [None] * 3
    assert admission.refusal("a") == "there are more connections than max.connections.per.ip=3"
    assert admission.refusal("b") is None
    admission.leave(clients[0])
    assert admission.refusal("a") is None


def test_all_together_have_a_limit(admission: Admission[Client]) -> None:
    for i in range(5):
        assert admission.enter(Client(str(i)), stranger=False) is None
    assert admission.enter(Client("x"), stranger=False) == "there are more connections than max.connections=5"


def test_strangers_have_a_limit_until_they_are_admitted(admission: Admission[Client]) -> None:
    clients = [Client(str(i)) for i in range(4)]
    for client in clients:
        admission.enter(client, stranger=True)
    assert "headwater.max.unauthenticated.connections=4" in (admission.refusal("x") or "")
    admission.admitted(clients[0])
    assert admission.refusal("x") is None


def test_handshakes_of_tls_count_before_there_is_a_connection(admission: Admission[Client]) -> None:
    admission.tls_server = cast(Any, SimpleNamespace(shaking=Counter({"a": 2})))
    admission.enter(Client("a"), stranger=False)
    assert "max.connections.per.ip" in (admission.refusal("a") or "")


def test_strangers_are_overdue_once_and_in_the_order_they_came(
    admission: Admission[Client], clock: ManualClock
) -> None:
    start = clock.monotonic_ms()
    first, second, friend = Client("1", start), Client("2", start + 500), Client("3", start)
    for client in (first, friend, second):
        admission.enter(client, stranger=True)
    admission.admitted(friend)
    clock.advance(1200)
    assert admission.take_overdue() == [first]
    assert admission.take_overdue() == []
    clock.advance(1000)
    assert admission.take_overdue() == [second]
