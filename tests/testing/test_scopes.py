"""The order in which tests with real servers are handed out."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from scopes import LONGEST_FIRST, START_SPARK, ByServer

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_named_exists() -> None:
    named = (*LONGEST_FIRST, *START_SPARK)
    assert [scope for scope in named if not (ROOT / scope.partition(" ")[0]).exists()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> ByServer:
    """One for three processes."""
    monkeypatch.setattr(LoadScopeScheduling, "_assign_work_unit", _take_first)
    scheduler = object.__new__(ByServer)
    scheduler.assigned_work = OrderedDict((Process(), {}) for _ in range(3))
    return scheduler


class Process:
    """One of the processes."""

    def __init__(self) -> None:
        self.given: list[str] = []


def _take_first(scheduler: Any, node: Process) -> None:
    node.given.append(scheduler.workqueue.popitem(last=False)[0])


def test_the_longest_goes_first_and_what_is_not_named_keeps_its_order(scheduler: ByServer) -> None:
    waiting = ["tests/b.py", LONGEST_FIRST[1], "tests/a.py", LONGEST_FIRST[0]]
    scheduler.workqueue = OrderedDict.fromkeys(waiting)
    process = scheduler.nodes[0]
    while scheduler.workqueue:
        scheduler._assign_work_unit(process)
    assert process.given == [*LONGEST_FIRST[:2], "tests/b.py", "tests/a.py"]


def test_spark_stays_in_the_first_process_and_is_started_by_the_second(scheduler: ByServer) -> None:
    in_process = ["tests/pipeline/test_joins.py", "tests/app/test_app_docs_run.py"]
    beside = ["tests/pipeline/run/test_run_once.py", "tests/cli/test_up.py"]
    others = ["tests/net/test_crash.py", "tests/serve/test_serve_process.py", "tests/net/test_metrics.py"]
    scheduler.workqueue = OrderedDict.fromkeys([*in_process, *beside, *others])
    for process in (*scheduler.nodes, *scheduler.nodes):
        scheduler._assign_work_unit(process)
    assert [sorted(process.given) for process in scheduler.nodes] == [
        sorted(in_process),
        sorted(beside),
        sorted(others[:2]),
    ]
    scheduler._assign_work_unit(scheduler.nodes[0])
    assert not scheduler.workqueue


def test_nobody_is_idle_while_something_is_left(scheduler: ByServer) -> None:
    left = ["tests/pipeline/test_joins.py", "tests/cli/test_up.py"]
    scheduler.workqueue = OrderedDict.fromkeys(left)
    scheduler._assign_work_unit(scheduler.nodes[2])
    scheduler._assign_work_unit(scheduler.nodes[2])
    assert scheduler.nodes[2].given == left[::-1]


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
