"""Grouping and throttling against a reference that looks at all rows at once, with time moved by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.views.pacing import Delivery, Entry, Incident, Pacing, group_of, pace

THROTTLE = 10.0


class Sent(NamedTuple):
    at: float
    group: int
    rows: int
    last: int
    """The token of the last row that a message tells of."""


def reference(rows: list[tuple[float, int]], end: float) -> list[Sent]:
    """Walk each group's rows alone: tell the first, then count to the end of the quiet time, and so on."""
    groups: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for token, (at, group) in enumerate(rows, 1):
        groups[group].append((at, token))
    sent = []
    for group, found in groups.items():
        quiet_until: float | None = None
        held: list[int] = []
        for at, token in [*found, (end, 0)]:
            while quiet_until is not None and quiet_until <= at:
                if held:
                    sent.append(Sent(quiet_until, group, len(held), held[-1]))
                    held, quiet_until = [], quiet_until + THROTTLE
                else:
                    quiet_until = None
            if not token:
                break
            if quiet_until is None:
                sent.append(Sent(at, group, 1, token))
                quiet_until = at + THROTTLE
            else:
                held.append(token)
    return sorted(sent)


class Machine:
    """A store as `pace` sees it, which wakes at each quiet time's end and at each row."""

    def __init__(self) -> None:
        self.pacing = Pacing(("group",), throttle=THROTTLE)
        self.incidents: dict[str, Incident] = {}
        self.sent: list[Sent] = []
        self.tokens: list[int] = []

    def take(self, now: float, entries: list[Entry]) -> None:
        groups = {group_of(self.pacing, entry.row) for entry in entries}
        known = {
            name: incident
            for name, incident in self.incidents.items()
            if incident.until <= now or name in groups
        }
        paced = pace(self.pacing, now, known, entries)
        for name, incident in paced.incidents.items():
            if incident is None:
                del self.incidents[name]
            else:
                self.incidents[name] = incident
        for message in paced.deliveries:
            row = json.loads(message.row)
            self.sent.append(Sent(now, row["group"], message.held or 1, row["token"]))
            self.tokens.append(message.token)

    def wake_until(self, now: float) -> None:
        while self.incidents and (until := min(each.until for each in self.incidents.values())) <= now:
            self.take(until, [])


times = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 3.0, 9.5, 10.0, 25.0]), st.integers(0, 2)), min_size=1, max_size=40
)


def entry(token: int, group: int) -> Entry:
    return Entry(token, f"k{token}", json.dumps({"group": group, "token": token}))


@given(times)
@settings(max_examples=examples(150), deadline=None)
def test_messages_are_those_of_the_reference(steps: list[tuple[float, int]]) -> None:
    machine, now = Machine(), 0.0
    rows: list[tuple[float, int]] = []
    for pause, group in steps:
        now += pause
        rows.append((now, group))
        machine.wake_until(now)
        machine.take(now, [entry(len(rows), group)])
    end = now + 3 * THROTTLE
    machine.wake_until(end)
    assert sorted(machine.sent) == reference(rows, end)
    assert machine.incidents == {}
    assert sum(message.rows for message in machine.sent) == len(rows)
    assert len(set(machine.tokens)) == len(machine.tokens)


@given(times, st.data())
@settings(max_examples=examples(100), deadline=None)
def test_a_late_or_slow_store_tells_every_row_once_and_no_group_too_often(
    steps: list[tuple[float, int]], data: st.DataObject
) -> None:
    """A process that was away finds many rows and many ends at once."""
    machine, now, waiting = Machine(), 0.0, list[Entry]()
    for number, (pause, group) in enumerate(steps, 1):
        now += pause
        waiting.append(entry(number, group))
        if data.draw(st.booleans()):
            machine.take(now, waiting)
            waiting = []
    machine.take(now, waiting)
    machine.wake_until(now + 3 * THROTTLE)
    assert sum(message.rows for message in machine.sent) == len(steps)
    for group in range(3):
        moments = [message.at for message in machine.sent if message.group == group]
        assert all(later - earlier >= THROTTLE for earlier, later in pairwise(moments))


def test_without_pacing_each_row_is_a_message_at_once() -> None:
    entries = [entry(1, 1), entry(2, 1)]
    paced = pace(Pacing(), 5.0, {}, entries)
    assert paced.deliveries == [Delivery(*each) for each in entries]
    assert paced.incidents == {}


def test_groups_are_told_apart_by_type_and_bounded_in_length() -> None:
    pacing = Pacing(("a", "b"), throttle=1.0)
    texts = [
        group_of(pacing, json.dumps(row))
        for row in ({"a": 1, "b": "1"}, {"a": "1", "b": 1}, {"a": None}, {"a": "x" * 600}, {"a": "x" * 601})
    ]
    assert len(set(texts)) == 5
    assert max(map(len, texts)) <= 500
