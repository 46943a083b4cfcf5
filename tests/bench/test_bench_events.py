"""The callers of the benchmark of event stores, and what they count."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from bench.event_appends import measure
from bench.figures import EVENTSOURCING
from bench.scenarios.events_append import EventsAppend


def test_every_caller_does_its_share_twice() -> None:
    done: Counter[int] = Counter()
    lock = threading.Lock()

    def work(caller: int, count: int) -> None:
        with lock:
            done[caller] += count

    assert measure(work, 4, 100) > 0
    assert done == dict.fromkeys(range(4), 25 + 2)  # a tenth that does not count comes first


def test_a_caller_that_fails_fails_the_run() -> None:
    def work(caller: int, count: int) -> None:
        if caller == 3:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        measure(work, 4, 100)


def test_each_side_is_measured_by_its_own_scenario() -> None:
    assert EventsAppend().on(EVENTSOURCING).side == EVENTSOURCING
