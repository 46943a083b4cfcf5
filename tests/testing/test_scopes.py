"""The order in which tests with real servers are handed out."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from scopes import LONGEST_FIRST, ByServer

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_said_to_take_long_exists() -> None:
    assert [scope for scope in LONGEST_FIRST if not (ROOT / scope.partition(" ")[0]).exists()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)


def test_the_longest_goes_first_and_what_is_not_named_keeps_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LoadScopeScheduling, "_assign_work_unit", _take_first)
    scheduler = object.__new__(ByServer)
    waiting = ["tests/b.py", LONGEST_FIRST[1], "tests/a.py", LONGEST_FIRST[0]]
    scheduler.workqueue = OrderedDict.fromkeys(waiting)
    taken: list[str] = []
    while scheduler.workqueue:
        scheduler._assign_work_unit(taken)
    assert taken == [*LONGEST_FIRST[:2], "tests/b.py", "tests/a.py"]


def _take_first(scheduler: Any, taken: list[str]) -> None:
    taken.append(scheduler.workqueue.popitem(last=False)[0])


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        ("tests/cli/test_real_groups.py::test_lag[on-kafka]", "tests/cli on-kafka"),
        ("tests/cli/test_real_topics.py::test_list[on-headwater-json]", "tests/cli on-headwater"),
        ("tests/net/test_crash.py::test_kill_9", "tests/net/test_crash.py"),
    ],
)
def test_what_shares_a_server_stays_together(test: str, scope: str) -> None:
    assert object.__new__(ByServer)._split_scope(test) == scope
