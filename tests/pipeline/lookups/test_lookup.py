"""Lookups against a reference that has the whole log before it, in any batches and any order of arrival."""

from __future__ import annotations

import pickle
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.keyed.logic import unpack
from headwater.pipeline.lookups import CHANGE, EVENT, Lookup

How = Literal["left", "inner"]
KEYS = "ab"
TIMES = st.integers(0, 60)
BATCHES = (False, False, False, False, True)
HOW = st.sampled_from(["left", "inner"])


class Driver:
    """Steps every key once a batch that has rows or is due, as the mechanism does."""

    def __init__(self, logic: Lookup) -> None:
        self.logic = logic
        self.states: dict[tuple[Any, ...], bytes] = {}
        self.due: dict[tuple[Any, ...], int] = {}
        self.out: list[tuple[Any, ...]] = []

    def batch(self, rows: list[tuple[str | None, tuple[Any, ...]]], watermark: int) -> list[tuple[Any, ...]]:
        keys = {(key,) for key, _ in rows} | {key for key, due in self.due.items() if watermark > due}
        new: list[tuple[Any, ...]] = []
        for key in sorted(keys, key=str):
            mine = [row for name, row in rows if name == key[0]]
            step = self.logic.step(key, self.states.get(key), mine, watermark)
            self.states.pop(key, None)
            self.due.pop(key, None)
            if step.state is not None:
                self.states[key] = step.state
            if step.due is not None:
                assert step.state is not None
                assert step.due >= watermark, "a timer that is due already would be called for ever"
                self.due[key] = step.due
            new += step.out
        self.out += new
        return new


def event(key: str | None, at: int, offset: int) -> tuple[str | None, tuple[Any, ...]]:
    return key, (EVENT, at, 0, offset, f"event {offset}", None)


def change(key: str, at: int, version: int, value: str | None) -> tuple[str, tuple[Any, ...]]:
    return key, (CHANGE, at, version, value is None, None, value)


def lookup(how: How = "left", **more: Any) -> Lookup:
    logic = Lookup(("event",), ("value",), how, **more)
    copy: Lookup = pickle.loads(pickle.dumps(logic))
    return copy


def valid_at(changes: list[Any], key: str, at: int) -> str | None:
    known = [(row[1], row[2], row[5]) for name, row in changes if name == key and row[1] <= at]
    return max(known, key=lambda each: each[:2])[2] if known else None


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    events = [
        event(draw(st.sampled_from(KEYS)), at, n) for n, at in enumerate(draw(st.lists(TIMES, max_size=8)))
    ]
    changes = [
        change(draw(st.sampled_from(KEYS)), at, n, draw(st.none() | st.just(f"version {n}")))
        for n, at in enumerate(draw(st.lists(TIMES, max_size=8)))
    ]
    return events, changes


@given(logs(), HOW, st.data())
def test_as_of_gives_the_version_valid_at_the_time_in_any_order_and_batches(
    log: tuple[list[Any], list[Any]], how: How, data: st.DataObject
) -> None:
    events, changes = log
    driver = Driver(lookup(how, as_of=True))
    left = data.draw(st.permutations(events + changes))
    watermark = 0
    for last in BATCHES:
        count = len(left) if last else data.draw(st.integers(0, len(left)))
        batch, left = left[:count], left[count:]
        driver.batch(batch, watermark)
        # Nothing is later than declared: the watermark stays at or below all that is still to come.
        bound = min((row[1] for _, row in left), default=60)
        watermark = data.draw(st.integers(watermark, max(watermark, bound)))
    driver.batch([], 61)
    expected = [(row[4], valid_at(changes, key, row[1])) for key, row in events]
    wanted = [row for row in expected if how == "left" or row[1] is not None]
    assert sorted(driver.out, key=str) == sorted(wanted, key=str)
    # One version, the newest, is all that is left; deleted rows leave nothing.
    assert {key[0]: unpack(state)[0][0][3] for key, state in driver.states.items()} == {
        key: value for key in KEYS if (value := valid_at(changes, key, 60)) is not None
    }
    assert all(len(unpack(state)[0]) == 1 and not unpack(state)[1] for state in driver.states.values())


def dated(changes: list[Any]) -> list[Any]:
    """Return changes with the times that those without one count from."""
    latest: dict[str, int] = {}
    found = []
    for key, row in changes:
        at = latest.get(key, -1) if row[1] is None else row[1]
        latest[key] = max(latest.get(key, -1), at)
        found.append((key, (row[0], at, *row[2:])))
    return found


@given(logs(), HOW, st.data())
def test_a_change_without_a_time_counts_from_the_change_before_it_on(
    log: tuple[list[Any], list[Any]], how: How, data: st.DataObject
) -> None:
    """Rows of snapshots, and tombstones: a key's changes come in the order of their versions."""
    events, changes = log
    changes = [(key, (row[0], data.draw(st.none() | st.just(row[1])), *row[2:])) for key, row in changes]
    driver = Driver(lookup(how, as_of=True))
    left, coming = data.draw(st.permutations(events)), changes
    watermark = 0
    for last in BATCHES:
        count = len(left) if last else data.draw(st.integers(0, len(left)))
        other = len(coming) if last else data.draw(st.integers(0, len(coming)))
        batch = data.draw(st.permutations(left[:count] + coming[:other]))
        left, coming = left[count:], coming[other:]
        driver.batch(batch, watermark)
        # Time goes on once the snapshots have been read.
        times = [row[1] for _, row in left + coming]
        bound = 0 if None in times else min(times, default=60)
        watermark = data.draw(st.integers(watermark, max(watermark, bound)))
    driver.batch([], 61)
    expected = [(row[4], valid_at(dated(changes), key, row[1])) for key, row in events]
    wanted = [row for row in expected if how == "left" or row[1] is not None]
    assert sorted(driver.out, key=str) == sorted(wanted, key=str)


def test_an_event_that_waited_while_columns_were_added_has_none_of_them() -> None:
    old = Lookup(("event",), ("value",), as_of=True)
    new = Lookup(("event", "note"), ("value",), as_of=True)
    state = old.step(
        ("a",), None, [(CHANGE, 1, 1, False, None, "x"), (EVENT, 5, 0, 0, "event 0", None)], 0
    ).state
    assert new.step(("a",), state, [], 9).out == [("event 0", None, "x")]


@given(logs(), st.integers(0, 20), st.data())
def test_an_event_waits_no_longer_than_declared_and_a_late_change_is_not_lost(
    log: tuple[list[Any], list[Any]], wait: int, data: st.DataObject
) -> None:
    """The table's time stands still all along, so that only `wait` lets events out."""
    events = log[0]
    changes = [each for each in log[1] if each[1][5] is not None]
    driver = Driver(lookup(as_of=True))
    events = sorted(events, key=lambda each: each[1][1])
    pending = data.draw(st.permutations(changes))
    come: list[Any] = []
    stream = 0
    while events or stream <= 60 + wait:
        watermark = max(stream - wait, 0)  # the lesser of the stream's time and the table's, which lags
        ready = [each for each in events if each[1][1] < stream + 10]
        events = events[len(ready) :]
        count = data.draw(st.integers(0, len(pending)))
        arrived, pending = pending[:count], pending[count:]
        come += arrived
        for name, value in driver.batch(ready + arrived, watermark):
            key, row = next(each for each in log[0] if each[1][4] == name)
            assert row[1] < watermark
            if all(each[1][1] >= watermark for each in pending):
                assert value == valid_at(come, key, row[1])
        assert all(watermark <= due for due in driver.due.values())
        stream += 7
    driver.batch(pending, 61)
    driver.batch([], 62)
    assert len(driver.out) == len(log[0])
    for key in KEYS:
        newest = valid_at(changes, key, 60)
        later = driver.batch([event(key, 90, 99)], 62) + driver.batch([], 91)
        assert later == [("event 99", newest)]


@given(logs(), HOW, st.data())
def test_without_as_of_an_event_meets_the_newest_version_that_has_come(
    log: tuple[list[Any], list[Any]], how: How, data: st.DataObject
) -> None:
    events, changes = log
    driver = Driver(lookup(how))
    known: dict[str, Any] = {}
    wanted = []
    for last in BATCHES:
        count = len(events) if last else data.draw(st.integers(0, len(events)))
        other = len(changes) if last else data.draw(st.integers(0, len(changes)))
        new, fresh = events[:count], changes[:other]
        events, changes = events[count:], changes[other:]
        known.update({key: row[5] for key, row in fresh})
        wanted += [(row[4], known.get(key)) for key, row in new]
        # What the union of two streams does to the order within a batch is Spark's affair.
        driver.batch(data.draw(st.permutations(new + fresh)), 0)
        assert not driver.due
        assert {key[0] for key in driver.states} == {key for key, value in known.items() if value}
    wanted = [row for row in wanted if how == "left" or row[1] is not None]
    assert sorted(driver.out, key=str) == sorted(wanted, key=str)


def test_results_come_in_the_order_of_time() -> None:
    driver = Driver(lookup(as_of=True))
    driver.batch([event("a", 9, 0), event("a", 3, 1), event("a", 6, 2), change("a", 5, 1, "x")], 0)
    assert driver.batch([], 7) == [("event 1", None), ("event 2", "x")]
    assert driver.batch([], 9) == []
    assert driver.batch([], 10) == [("event 0", "x")]


def test_a_null_key_meets_nothing_and_waits_for_nothing() -> None:
    for as_of in (False, True):
        driver = Driver(lookup(as_of=as_of))
        assert driver.batch([event(None, 5, 0)], 0) == [("event 0", None)]
        assert not driver.states
        assert Driver(lookup("inner", as_of=as_of)).batch([event(None, 5, 0)], 0) == []


def test_a_null_time_meets_nothing_and_waits_for_nothing() -> None:
    timeless = ("a", (EVENT, None, 0, 7, "event 7", None))
    for how, expected in (("left", [("event 7", None)]), ("inner", [])):
        driver = Driver(Lookup(("event",), ("value",), how, as_of=True))  # type: ignore[arg-type]
        driver.batch([change("a", 1, 1, "x"), event("a", 30, 0)], 5)
        assert driver.batch([timeless], 5) == expected
        assert driver.batch([], 31) == [("event 0", "x")]


def test_versions_are_kept_for_events_that_correct() -> None:
    driver = Driver(lookup(as_of=True, corrections=20))
    driver.batch([change("a", 10, 1, "x"), change("a", 30, 2, "y")], 40)
    assert driver.batch([event("a", 25, 0)], 45) == [("event 0", "x")]
    driver.batch([], 51)
    assert [version[3] for version in unpack(driver.states["a",])[0]] == ["y"]


def test_a_deleted_row_is_gone_from_its_time_on() -> None:
    driver = Driver(lookup(as_of=True))
    driver.batch([change("a", 10, 1, "x"), change("a", 20, 2, None)], 0)
    driver.batch([event("a", 19, 0), event("a", 20, 1)], 5)
    assert driver.batch([], 21) == [("event 0", "x"), ("event 1", None)]
    assert not driver.states


def test_a_change_that_is_later_than_declared_may_bring_a_deleted_row_back() -> None:
    """Nothing is kept of a delete that time has passed: a change from before it is the first of a new row then."""
    driver = Driver(lookup(as_of=True))
    driver.batch([change("a", 10, 1, None)], 20)
    driver.batch([change("a", 9, 2, "x"), event("a", 20, 0)], 20)
    assert driver.batch([], 21) == [("event 0", "x")]


def test_a_delete_is_kept_while_a_version_of_the_same_time_may_come() -> None:
    driver = Driver(lookup(as_of=True))
    driver.batch([change("a", 10, 2, None)], 10)
    driver.batch([change("a", 10, 1, "x"), event("a", 12, 0)], 10)
    assert driver.batch([], 13) == [("event 0", None)]
    assert not driver.states


@pytest.mark.parametrize("as_of", [False, True])
def test_columns_that_are_added_at_the_end_are_null_in_rows_kept_before(as_of: bool) -> None:
    old = Lookup(("event",), ("value",), as_of=as_of)
    new = Lookup(("event",), ("value", "country"), as_of=as_of)
    state = old.step(("a",), None, [(CHANGE, 1, 1, False, None, "x")], 0).state
    step = new.step(("a",), state, [(EVENT, 5, 0, 0, "event 0", None, None)], 9)
    assert step.out == [("event 0", "x", None)]
    assert new.columns == ("event", "value", "country")
