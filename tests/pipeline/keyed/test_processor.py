"""Keyed state over batches that fail, are done again and move between workers, without Spark."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.keyed import processor
from headwater.pipeline.keyed.cache import Cache
from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack
from headwater.pipeline.keyed.processor import BucketProcessor


@dataclass(frozen=True)
class Sums(Logic):
    """Adds values up, and tells and forgets a sum once the watermark has passed the key's last time."""

    def step(
        self, key: tuple[Any, ...], state: bytes | None, rows: list[tuple[Any, ...]], watermark: int
    ) -> Step:
        total, last = (0, 0) if state is None else unpack(state)
        for time, value in rows:
            total, last = total + value, max(last, time)
        if last < watermark:
            return Step(None, [(*key, total)])
        return Step(pack([total, last]), [], last)


@dataclass
class Spark:
    """What the processor sees of Spark's state, for one bucket."""

    entries: list[tuple[bytes]] = field(default_factory=list)
    head: tuple[Any, ...] | None = None
    timers: set[int] = field(default_factory=set)
    watermark_ms: int = 0

    def getListState(self, name: str, schema: str) -> Entries:
        return Entries(self)

    def getValueState(self, name: str, schema: str) -> Head:
        return Head(self)

    def registerTimer(self, at: int) -> None:
        self.timers.add(at)

    def deleteTimer(self, at: int) -> None:
        self.timers.remove(at)

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms


@dataclass
class Entries:
    spark: Spark

    def get(self) -> Iterator[tuple[bytes]]:
        return iter(list(self.spark.entries))

    def put(self, entries: list[tuple[bytes]]) -> None:
        self.spark.entries = list(entries)

    def appendList(self, entries: list[tuple[bytes]]) -> None:
        self.spark.entries += entries


@dataclass
class Head:
    spark: Spark

    def exists(self) -> bool:
        return self.spark.head is not None

    def get(self) -> tuple[Any, ...] | None:
        return self.spark.head

    def update(self, head: tuple[Any, ...]) -> None:
        self.spark.head = head


COLUMNS = ("bucket", "k0", "c0", "c1")


class Run:
    """A bucket, its state in Spark, and two workers that may have a copy of it."""

    def __init__(self, directory: Path) -> None:
        self.spark = Spark()
        self.workers = [
            BucketProcessor(Sums(), 1, ("o0", "o1"), str(directory / name), COLUMNS) for name in "ab"
        ]

    def batch(self, worker: int, rows: list[tuple[str, int, int]], *, fails: bool) -> list[tuple[Any, ...]]:
        before = copy.deepcopy(self.spark)
        process = self.workers[worker]
        process.init(self.spark)  # type: ignore[arg-type]
        out: list[tuple[Any, ...]] = []
        if rows:
            frame = pd.DataFrame(
                [(0, key, at * 1000, value) for key, at, value in rows], columns=list(COLUMNS)
            )
            frames = list(process.handleInputRows((0,), iter([frame]), self.spark))  # type: ignore[arg-type]
            out += [row for each in frames for row in each.itertuples(index=False, name=None)]
        if due := {at for at in self.spark.timers if at <= self.spark.watermark_ms}:
            frames = list(process.handleExpiredTimer((0,), self.spark, None))  # type: ignore[arg-type]
            out += [row for each in frames for row in each.itertuples(index=False, name=None)]
            self.spark.timers -= due  # Spark deletes those that have fired
        if fails:
            self.spark = before
        return out


BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 50), st.integers(-5, 5)), max_size=5),
        st.integers(0, 15),
        st.integers(0, 1),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True)
def rewrites_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_REWRITE_FROM", 60)


@settings(max_examples=60)
@given(BATCHES)
def test_results_are_those_of_one_worker_that_never_fails(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[tuple[str, int, int]], int, int, bool]]
) -> None:
    run = Run(tmp_path_factory.mktemp("state"))
    logic = Sums()
    states: dict[str, bytes] = {}
    watermark = 0
    for rows, later, worker, fails in batches:
        watermark += later * 1000
        run.spark.watermark_ms = watermark // 1000
        if fails:
            run.batch(worker, rows, fails=True)
        found = run.batch(1 - worker if fails else worker, rows, fails=False)
        wanted = []
        for key in "xyz":
            own = [(at * 1000, value) for name, at, value in rows if name == key]
            if own or key in states:
                done = logic.step((key,), states.get(key), own, watermark)
                wanted += done.out
                if done.state is None:
                    states.pop(key, None)
                else:
                    states[key] = done.state
        assert sorted(found) == sorted(wanted)
    directory = tmp_path_factory.mktemp("end")
    cache = Cache(directory)
    cache.begin("none", (unpack(entry) for (entry,) in run.spark.entries))
    assert {unpack(key)[0]: state for key, state, _ in cache.everything()} == states
    cache.close()


def test_keys_are_due_in_the_order_of_their_times(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.begin(None, [])
    cache.apply([(b"a", b"1", 30), (b"b", b"2", -10), (b"c", b"3", None), (b"d", b"4", 20)])
    cache.apply([(b"d", b"5", 40), (b"a", None, None)])
    assert (cache.next_due(), list(cache.due(40)), list(cache.due(41))) == (-10, [b"b"], [b"b", b"d"])
    assert list(cache.everything()) == [(b"b", b"2", -10), (b"c", b"3", None), (b"d", b"5", 40)]
    cache.close()
