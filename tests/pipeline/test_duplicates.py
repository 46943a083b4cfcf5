"""Deduplication against a reference that compares every event with every other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.duplicates import Deduplicate

WITHIN = 10
TIMES = st.lists(st.integers(0, 60), max_size=15)


def firsts(events: list[Any]) -> list[Any]:
    passed: list[Any] = []
    for event in events:
        if all(abs(event[0] - other[0]) >= WITHIN for other in passed):
            passed.append(event)
    return [event[3:] for event in passed]


@given(TIMES, st.booleans(), st.data())
def test_the_first_is_let_through(times: list[int], ordered: bool, data: st.DataObject) -> None:
    logic = Deduplicate(WITHIN, ordered=ordered)
    events = [(at, n % 2, n, f"event {n}") for n, at in enumerate(times)]
    left = data.draw(st.permutations(events))
    arrived: list[Any] = []
    found: list[Any] = []
    state, due, watermark = None, None, 0
    for last in (False, False, False, False, True):
        count = len(left) if last else data.draw(st.integers(0, len(left)))
        batch, left = left[:count], left[count:]
        arrived += sorted(batch)
        if batch or (due is not None and watermark > due):
            state, out, due = logic.step(("k",), state, batch, watermark)
            found += out
            assert due is None or due >= watermark
            assert (due is None) == (state is None)
        bound = min([row[0] for row in left], default=100)
        watermark = data.draw(st.integers(watermark, max(watermark, bound))) if left else 100
    if due is not None:
        state, out, due = logic.step(("k",), state, [], 100)
        found += out
    assert found == firsts(sorted(events) if ordered else arrived)
    assert state is None


def test_exactly_within_apart_are_two_and_a_chain_does_not_prolong_itself() -> None:
    events = [(at, 0, at, at) for at in (0, 6, 9, 10, 15, 20)]
    assert Deduplicate(10).step(("k",), None, events, 0).out == [(0,), (10,), (20,)]


def test_what_was_let_through_is_remembered_as_long_as_a_duplicate_may_come() -> None:
    state = Deduplicate(10).step(("k",), None, [(5, 0, 0, "a")], 0).state
    state, out, due = Deduplicate(10).step(("k",), state, [(14, 0, 1, "b")], 14)
    assert (out, due) == ([], 14)
    assert Deduplicate(10).step(("k",), state, [], 15) == (None, [], None)


def test_an_event_without_a_key_is_no_duplicate() -> None:
    events = [(5, 0, 2, "b"), (5, 0, 1, "a")]
    assert Deduplicate(10, ordered=True).step((None, "x"), None, events, 0) == (None, [("a",), ("b",)], None)


def test_what_was_let_through_is_remembered_for_events_that_correct() -> None:
    logic = Deduplicate(10, corrections=100)
    state, _, due = logic.step(("k",), None, [(50, 0, 0, "a")], 0)
    assert due == 159
    assert logic.step(("k",), state, [(55, 0, 1, "b")], 150).out == []
