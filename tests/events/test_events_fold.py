"""Folding by classes and functions, snapshots of states, and upcasters; without I/O."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.events import BadEvent, Event, UpcastError, Upcasters
from headwater.events.fold import Fold


def event(kind: str, version: int = 1, *, schema: int = 1, **data: Any) -> Event:
    return Event("ann", version, kind, data, f"e{version}", 0, schema)


class Account:
    def __init__(self) -> None:
        self.balance = 0
        self.owner = ""

    def on_account_opened(self, event: Event) -> None:
        self.owner = event.data["owner"]

    def on_deposited(self, event: Event) -> None:
        self.balance += event.data["amount"]


@dataclass(frozen=True)
class Frozen:
    balance: int = 0

    def apply(self, event: Event) -> Frozen:
        return replace(self, balance=self.balance + event.data["amount"])


def test_a_class_has_a_method_for_each_type() -> None:
    state = Fold(Account).over([event("AccountOpened", owner="Ann"), event("Deposited", 2, amount=5)])
    assert (state.owner, state.balance) == ("Ann", 5)


def test_a_method_may_return_the_next_state() -> None:
    assert Fold(Frozen).over([event("Deposited", n, amount=n) for n in (1, 2, 3)]) == Frozen(6)


def test_an_event_without_a_method_is_named() -> None:
    with pytest.raises(
        BadEvent, match=r"Account has no method on_closed\(event\) for the event Closed of ann"
    ):
        Fold(Account).over([event("Closed")])


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("MoneyDeposited", "on_money_deposited"),
        ("HTTPFailed", "on_http_failed"),
        ("order.paid", "on_order_paid"),
    ],
)
def test_names_of_methods(kind: str, method: str) -> None:
    seen = type("Seen", (), {method: lambda self, event: "seen"})
    assert Fold(seen).over([event(kind)]) == "seen"


FOLDS = [
    Fold(Account),
    Fold(Frozen),
    Fold(lambda total, event: total + event.data["amount"], initial=0),
    Fold(lambda seen, event: {**seen, str(event.version): event.data}, initial={}),
]


@pytest.mark.parametrize("fold", FOLDS, ids=["class", "frozen", "number", "dict"])
@given(amounts=st.lists(st.integers(), min_size=1, max_size=8), cut=st.integers(0, 8))
def test_going_on_from_a_snapshot_comes_to_the_same(fold: Fold, amounts: list[int], cut: int) -> None:
    events = [event("Deposited", number, amount=amount) for number, amount in enumerate(amounts, 1)]
    snapshot = fold.dump(fold.over(events[:cut]))
    resumed = fold.over(events[cut:], fold.load(snapshot))
    assert fold.dump(resumed) == fold.dump(fold.over(events))


@pytest.mark.parametrize("state", [{1: 2}, (1, 2), {1, 2}, object(), float("nan")])
def test_a_snapshot_that_would_bring_back_another_state_is_refused(state: object) -> None:
    with pytest.raises(BadEvent, match="would not bring its state back"):
        Fold(lambda state, event: state).dump(state)


def test_a_fold_may_say_how_its_states_are_kept() -> None:
    fold = Fold(lambda seen, event: seen | {event.type}, initial=set(), dump=sorted, load=set)
    assert fold.load(fold.dump({"a", "b"})) == {"a", "b"}


def test_other_code_has_another_fingerprint() -> None:
    def one(state: int, event: Event) -> int:
        return state + 1

    def two(state: int, event: Event) -> int:
        return state + 2

    two.__name__, two.__qualname__ = one.__name__, one.__qualname__
    prints = {Fold(one).fingerprint, Fold(two).fingerprint, Fold(one, snapshot_version=2).fingerprint}
    upcasters = Upcasters()
    upcasters.add("A", schema=1)(lambda data: data)
    assert len(prints | {Fold(one, initial=1).fingerprint, Fold(one, upcasters=upcasters).fingerprint}) == 5
    assert Fold(one).fingerprint == Fold(one).fingerprint


def test_the_same_code_has_the_same_fingerprint_in_every_process() -> None:
    code = (
        "from headwater.events.fold import Fold\n"
        "def f(state, event): return event.type in {'a', 'b', 'c', 'd'} and (lambda: {'x', 'y'})()\n"
        "print(Fold(f, initial=object()).fingerprint)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def upcasters() -> Upcasters:
    known = Upcasters()

    @known.add("Deposited", schema=1)
    def in_cents(data: dict[str, Any]) -> dict[str, Any]:
        return {"cents": data["euros"] * 100}

    @known.add("Deposited", schema=2, rename="MoneyDeposited")
    def with_currency(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "currency": "EUR"}

    return known


def test_upcasters_go_from_schema_to_schema_and_change_nothing_that_is_stored() -> None:
    old = event("Deposited", euros=5)
    new = upcasters()(old)
    assert (new.type, new.schema, new.data) == ("MoneyDeposited", 3, {"cents": 500, "currency": "EUR"})
    assert old.data == {"euros": 5}
    middle = upcasters()(event("Deposited", schema=2, cents=7))
    assert middle.data == {"cents": 7, "currency": "EUR"}
    current = event("MoneyDeposited", schema=3, cents=7, currency="USD")
    assert upcasters()(current) is current
    assert (upcasters().newest("MoneyDeposited"), upcasters().newest("Withdrawn")) == (3, 1)


def test_a_fold_sees_events_in_their_newest_form() -> None:
    fold = Fold(lambda total, event: total + event.data["cents"], initial=0, upcasters=upcasters())
    assert fold.over([event("Deposited", euros=5), event("Deposited", 2, schema=2, cents=7)]) == 507


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (event("MoneyDeposited", schema=4), "has schema 4, and this application knows 3"),
        (event("Withdrawn", schema=2), "has schema 2, and this application knows 1"),
        (event("MoneyDeposited", schema=2), "no upcaster from schema 2"),
        (event("Deposited"), "the upcaster in_cents fails on Deposited, version 1 of ann: KeyError"),
    ],
)
def test_what_cannot_be_brought_up_to_date_is_named(bad: Event, sentence: str) -> None:
    with pytest.raises(UpcastError, match=sentence):
        upcasters()(bad)


def test_two_upcasters_for_one_step_are_refused() -> None:
    known = upcasters()
    same: Callable[[dict[str, Any]], dict[str, Any]] = lambda data: data  # noqa: E731
    with pytest.raises(UpcastError, match="Deposited has an upcaster for schema 1 already"):
        known.add("Deposited", schema=1)(same)
    with pytest.raises(UpcastError, match="no schema 0"):
        known.add("Deposited", schema=0)(same)
