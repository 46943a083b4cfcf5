"""Queries that fail, and those beside them: the runner, with queries that only play their part."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from headwater.app import AppError, Location, View
from headwater.pipeline import runner as module
from headwater.pipeline.checkpoint import Checkpoint
from headwater.pipeline.compile import Query
from headwater.pipeline.handover import Rebuilds
from headwater.pipeline.lag import TopicEnds
from headwater.pipeline.progress import QueryProgress
from headwater.pipeline.runner import Pause, Runner, Running
from headwater.pipeline.stderr import jvm_stderr
from headwater.views import ViewStore


class FakeQuery:
    """A streaming query that does as it is told."""

    lastProgress = None  # noqa: N815
    recentProgress: tuple[()] = ()  # noqa: N815

    def __init__(self, *, drains: bool = True) -> None:
        self.isActive = True
        self.error: Exception | None = None
        self.message = module.WAITING
        self.stopped_in: str | None = None
        self.drains = drains

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.message}

    def fail(self, error: Exception) -> None:
        self.isActive, self.error = False, error

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped_in = self.message
        self.isActive = False

    def processAllAvailable(self) -> None:
        if not self.drains:
            raise RuntimeError("Query [id = 1] terminated: it broke")


class FakeSpark:
    def __init__(self) -> None:
        self.sparkContext = self
        self.pools: list[str] = []

    def setLocalProperty(self, name: str, value: str) -> None:
        assert name == "spark.scheduler.pool"
        self.pools.append(value)


class FakeStore:
    def __init__(self) -> None:
        self.statuses: dict[str, dict[str, Any]] = {}

    def put_status(self, name: str, status: str) -> None:
        self.statuses[name] = json.loads(status)


class FakeEnds:
    def read(self) -> dict[str, dict[int, int]]:
        return {}


class FakeRebuilds:
    """Asks for what the test says."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.told: list[str] = []

    def asked(self, query: str) -> bool:
        return query in self.wanted

    def paused(self, query: str) -> None:
        self.told.append(f"{query} paused")

    def over(self, query: str) -> None:
        self.told.append(f"{query} over")


class Stage:
    """A runner with two queries, the second of which reads what the first makes."""

    def __init__(self, tmp_path: Path) -> None:
        self.spark, self.store = FakeSpark(), FakeStore()
        self.rebuilds = FakeRebuilds()
        self.started: list[tuple[str, FakeQuery]] = []
        self.refuse: dict[str, Exception] = {}
        self.failures: dict[str, int] = {}
        self.queries = [self._running(tmp_path, "first"), self._running(tmp_path, "second", after="first")]
        self.runner = Runner(
            cast(Any, self.spark),
            self.queries,
            start=cast(Any, self._start),
            store=cast(ViewStore, self.store),
            ends=cast(TopicEnds, FakeEnds()),
            rebuilds=cast(Rebuilds, self.rebuilds),
        )

    def _running(self, tmp_path: Path, name: str, after: str = "") -> Running:
        function = View(name, Location("shop.py", 7), ("orders",), lambda orders: orders, ("id",))
        after_queries = frozenset({after} if after else ())
        query = Query(name, function, cast(Any, None), ("orders",), after_queries)
        progress = QueryProgress(name, "view", ("orders",), {})
        return Running(query, Checkpoint(tmp_path, name), progress, Pause(jitter=lambda: 0.0))

    def _start(self, query: Query, path: Path) -> FakeQuery:
        if query.name in self.refuse:
            raise self.refuse[query.name]
        failures = self.failures.get(query.name, 0)
        self.failures[query.name] = failures - 1
        fake = FakeQuery(drains=failures <= 0)
        self.started.append((query.name, fake))
        return fake

    def states(self) -> dict[str, str]:
        return {name: status["state"] for name, status in self.store.statuses.items()}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    return Stage(tmp_path)


def until(condition: Any, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_failed_query_starts_again_while_the_other_goes_on(stage: Stage) -> None:
    stage.runner.start()
    watching = threading.Thread(target=stage.runner.watch)
    watching.start()
    stage.started[0][1].fail(RuntimeError("the disk is full"))
    until(lambda: stage.states().get("first") == "restarting")
    assert stage.store.statuses["first"]["error"] == "the disk is full"
    until(lambda: stage.states() == {"first": "running", "second": "running"})
    stage.runner.stop()
    watching.join(5)
    stage.runner.close()
    assert [name for name, _ in stage.started] == ["first", "second", "first"]
    assert stage.states() == {"first": "failed", "second": "stopped"}
    assert stage.spark.pools == ["first", "second", "first"]


def test_a_query_that_does_not_start_is_tried_again(stage: Stage) -> None:
    stage.refuse["second"] = ConnectionError("no broker")
    stage.runner.start()
    assert [name for name, _ in stage.started] == ["first"]
    watching = threading.Thread(target=stage.runner.watch)
    watching.start()
    until(lambda: stage.states().get("second") == "restarting")
    stage.refuse.clear()
    until(lambda: stage.states().get("second") == "running")
    stage.runner.stop()
    watching.join(5)


def test_what_spark_will_not_plan_ends_the_run_with_the_line(stage: Stage) -> None:
    stage.refuse["first"] = AnalysisException("append mode needs a watermark;\nAggregate …")
    with pytest.raises(
        AppError, match=r"^shop.py:7: first cannot run: append mode needs a watermark; change"
    ):
        stage.runner.start()


def test_draining_goes_from_maker_to_reader(stage: Stage) -> None:
    assert stage.runner.drain() is True
    stage.runner.close()
    (first, one), (second, two) = stage.started
    assert (first, second) == ("first", "second")
    assert one.stopped_in == two.stopped_in == module.WAITING
    assert stage.states() == {"first": "stopped", "second": "stopped"}


def test_a_query_that_fails_to_drain_fails_the_run_after_the_others(stage: Stage) -> None:
    stage.failures["first"] = module.ONCE_TRIES
    assert stage.runner.drain() is False
    stage.runner.close()
    assert [name for name, _ in stage.started] == ["first"] * module.ONCE_TRIES + ["second"]
    assert stage.states() == {"first": "failed", "second": "stopped"}


def test_a_query_that_drains_at_the_second_try_is_fine(stage: Stage) -> None:
    stage.failures["first"] = 1
    assert stage.runner.drain() is True
    assert [name for name, _ in stage.started] == ["first", "first", "second"]


def test_a_query_is_stopped_between_batches(stage: Stage) -> None:
    stage.runner.start()
    busy = stage.started[0][1]
    busy.message = module.IN_BATCH
    threading.Timer(0.1, lambda: setattr(busy, "message", module.WAITING)).start()
    stage.runner.close()
    assert busy.stopped_in == module.WAITING


def test_a_long_batch_is_cut_short(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BETWEEN_BATCHES_SECONDS", 0.1)
    stage.runner.start()
    stage.started[0][1].message = module.IN_BATCH
    stage.runner.close()
    assert stage.started[0][1].stopped_in == module.IN_BATCH


def test_a_query_stands_still_while_a_rebuilt_view_takes_its_place(stage: Stage) -> None:
    stage.runner.start()
    [first, second] = stage.queries
    stage.rebuilds.wanted.add("first")
    assert stage.runner._stands_still(first)
    assert stage.runner._stands_still(first)
    assert not stage.runner._stands_still(second)
    assert (first.state, second.state) == ("stopped", "running")
    assert stage.started[0][1].stopped_in == module.WAITING
    stage.rebuilds.wanted.clear()
    assert not stage.runner._stands_still(first)
    assert [name for name, _ in stage.started] == ["first", "second", "first"]
    assert stage.rebuilds.told == ["first paused", "first paused", "first over"]
    assert not stage.runner._stands_still(first)
    assert first.state == "running"


def test_what_the_jvm_says_of_batches_that_are_cut_short_is_kept_back(
    stage: Stage, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(threading.enumerate())
    with jvm_stderr():
        jvm = os.dup(2)
    (passes_on,) = set(threading.enumerate()) - others
    stage.runner.start()
    os.write(jvm, b"12:00:00.000 WARN    spark Disk: nearly full\n")
    said = ""
    while "nearly full" not in said:
        said += capfd.readouterr().err
    complaint = b"12:00:01.000 WARN    spark Shell: Interrupted while joining on: Thread[#7]\n"
    for _, query in stage.started:
        monkeypatch.setattr(query, "stop", lambda: os.write(jvm, complaint))
    stage.runner.close()
    os.close(jvm)
    passes_on.join()
    assert capfd.readouterr().err == ""
