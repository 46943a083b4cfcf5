"""Requests decided in groups: versions without gaps, conflicts, repeated commands; without I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.events import ANY, NO_STREAM, STREAM_EXISTS, BadEvent, Event, NewEvent, Refused, WrongVersion
from headwater.events.expected import Expected, check_expected
from headwater.events.fold import Fold
from headwater.events.plan import Appended, Head, Plan, Request, State, prepare


class Memory:
    """A store in lists, which a plan is carried out on."""

    def __init__(self) -> None:
        self.streams: dict[str, list[Event]] = {}

    def head(self, stream: str) -> Head:
        events = self.streams.get(stream)
        return Head(events[-1].version, events[-1].time_ms) if events else Head()

    def command(self, stream: str, command_id: str) -> tuple[Event, ...]:
        return tuple(event for event in self.streams.get(stream, ()) if event.command_id == command_id)

    def state(self, fold: Fold, stream: str) -> State:
        events = self.streams.get(stream, [])
        return State(len(events), fold.over(events))

    def carry_out(self, plan: Plan) -> None:
        for planned in plan.planned:
            self.streams.setdefault(planned.event.stream, []).append(planned.event)


def total(state: int, event: Event) -> int:
    return state + int(event.data["amount"])


TOTAL = Fold(total, initial=0)


def withdraw(amount: int) -> Callable[[int], object]:
    def decide(balance: int) -> object:
        if balance < amount:
            raise Refused(f"{balance} does not cover {amount}")
        return [NewEvent("Withdrawn", {"amount": -amount})]

    return decide


@pytest.mark.parametrize(
    ("expected", "actual", "fits"),
    [
        (0, 0, True),
        (3, 3, True),
        (3, 2, False),
        (3, 4, False),
        (0, 1, False),
        (ANY, 0, True),
        (ANY, 7, True),
        (NO_STREAM, 0, True),
        (NO_STREAM, 1, False),
        (STREAM_EXISTS, 0, False),
        (STREAM_EXISTS, 1, True),
    ],
)
def test_expected_versions(expected: Expected, actual: int, fits: bool) -> None:
    if fits:
        check_expected("ann", expected, actual)
        return
    with pytest.raises(WrongVersion) as refused:
        check_expected("ann", expected, actual)
    assert refused.value.actual == actual
    assert refused.value.stream == "ann"
    assert (f"at version {actual}" if actual else "has no events") in str(refused.value)


def test_a_request_sees_the_events_of_those_before_it_in_its_group() -> None:
    memory = Memory()
    plan = Plan(memory, 1000)
    assert plan.add(Request("ann", prepare(NewEvent("A")), NO_STREAM)).version == 1
    with pytest.raises(WrongVersion, match="at version 1"):
        plan.add(Request("ann", prepare(NewEvent("A")), NO_STREAM))
    assert plan.add(Request("ann", prepare([NewEvent("B"), NewEvent("C")]), 1)).version == 3
    assert [(each.event.type, each.event.version) for each in plan.planned] == [("A", 1), ("B", 2), ("C", 3)]


def test_commands_are_decided_by_the_state_with_the_group_so_far() -> None:
    memory = Memory()
    plan = Plan(memory, 0)
    plan.add(Request("ann", prepare(NewEvent("Deposited", {"amount": 10}))))
    plan.add(Request("ann", fold=TOTAL, decide=withdraw(8)))
    with pytest.raises(Refused, match="2 does not cover 8"):
        plan.add(Request("ann", fold=TOTAL, decide=withdraw(8)))
    plan.add(Request("ann", fold=TOTAL, decide=withdraw(2)))
    assert plan.states() == {(TOTAL, "ann"): State(3, 0)}


def test_a_command_without_events_changes_nothing() -> None:
    plan = Plan(Memory(), 0)
    assert plan.add(Request("ann", fold=TOTAL, decide=lambda _: None)) == Appended("ann", 0)
    assert plan.add(Request("ann", fold=TOTAL, decide=lambda _: [])) == Appended("ann", 0)
    assert plan.planned == []


def test_a_state_that_a_failing_command_spoiled_is_not_used_again() -> None:
    class Cart:
        def __init__(self) -> None:
            self.items: list[str] = []

        def on_added(self, event: Event) -> None:
            self.items.append(event.data["item"])

    fold = Fold(Cart)
    memory = Memory()
    plan = Plan(memory, 0)
    plan.add(Request("cart", prepare(NewEvent("Added", {"item": "tea"}))))

    def spoil(cart: Cart) -> object:
        cart.items.append("not bought")
        raise Refused("too late")

    with pytest.raises(Refused):
        plan.add(Request("cart", fold=fold, decide=spoil))
    seen: list[list[str]] = []
    plan.add(Request("cart", fold=fold, decide=lambda cart: seen.append([*cart.items])))
    assert seen == [["tea"]]


def test_times_do_not_go_back_within_a_stream() -> None:
    memory = Memory()
    for now in (5000, 4000, 6000):
        plan = Plan(memory, now)
        plan.add(Request("ann", prepare(NewEvent("A"))))
        memory.carry_out(plan)
    assert [event.time_ms for event in memory.streams["ann"]] == [5000, 5000, 6000]


def test_a_repeated_command_gets_the_first_result_whatever_it_expects() -> None:
    memory = Memory()
    plan = Plan(memory, 0)
    request = Request("ann", prepare(NewEvent("A")), NO_STREAM, command_id="c1")
    first = plan.add(request)
    assert plan.add(request) == Appended("ann", 1, first.events, repeated=True)
    memory.carry_out(plan)
    later = Plan(memory, 0)
    later.add(Request("ann", prepare(NewEvent("B"))))
    again = later.add(request)
    assert (again.version, again.repeated, again.events) == (1, True, first.events)


@pytest.mark.parametrize(
    "given",
    [
        "Deposited",
        {"type": "Deposited"},
        7,
        [NewEvent("A"), 7],
        NewEvent(""),
        NewEvent("A" * 256),
        NewEvent("A\n"),
        NewEvent("A", {"amount": float("nan")}),
        NewEvent("A", {"amount": {1, 2}}),
        NewEvent("A", {"text": "\ud800"}),
        NewEvent("A", {1: 2}),  # type: ignore[dict-item]
        NewEvent("A", 7),  # type: ignore[arg-type]
        NewEvent("A", schema=0),
        NewEvent("A", id=""),
    ],
)
def test_what_cannot_be_an_event_is_refused(given: object) -> None:
    with pytest.raises(BadEvent):
        prepare(given)


def test_an_event_without_an_id_gets_a_random_uuid() -> None:
    ids = {event.id for event in prepare([NewEvent("A")] * 200)}
    assert len(ids) == 200
    assert all(str(uuid.UUID(each)) == each and uuid.UUID(each).version == 4 for each in ids)


def test_data_are_what_json_makes_of_them() -> None:
    [event] = prepare(NewEvent("A", {"pair": (1, 2), "by": {3: "x"}}))
    assert event.data == {"pair": [1, 2], "by": {"3": "x"}}


names = st.sampled_from(["ann", "bob", "eve"])
requests = st.tuples(
    names,
    st.integers(0, 3),
    st.one_of(st.sampled_from([ANY, NO_STREAM, STREAM_EXISTS]), st.integers(0, 6)),
    st.one_of(st.none(), st.sampled_from(["c1", "c2", "c3"])),
)


@settings(max_examples=examples(150))
@given(st.lists(st.lists(requests, max_size=8), max_size=5))
def test_groups_come_to_the_same_as_one_request_at_a_time(
    groups: list[list[tuple[str, int, Expected, str | None]]],
) -> None:
    together, alone = Memory(), Memory()
    for group in groups:
        plan = Plan(together, 0)
        for stream, count, expected, command_id in group:
            request = Request(stream, prepare([NewEvent("E")] * count), expected, command_id=command_id)
            single = Plan(alone, 0)
            assert _outcome(plan, request) == _outcome(single, request)
            alone.carry_out(single)
        together.carry_out(plan)
    assert together.streams == alone.streams
    for events in together.streams.values():
        assert [event.version for event in events] == list(range(1, len(events) + 1))


def _outcome(plan: Plan, request: Request) -> object:
    try:
        return plan.add(request)
    except WrongVersion as error:
        return str(error)
