"""Keyed state over batches that fail, are done again and move between workers, without Spark."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.keyed import processor
from headwater.pipeline.keyed.cache import Cache
from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack
from headwater.pipeline.keyed.processor import BucketProcessor

from .spark_state import Spark, given, made


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


COLUMNS = "k0 c0 c1"
RESULTS = pa.schema({"o0": pa.string(), "o1": pa.int64()})


class Run:
    """A bucket, its state in Spark, and two workers that may have a copy of it."""

    def __init__(self, directory: Path) -> None:
        self.spark = Spark()
        self.workers = [BucketProcessor(Sums(), 1, RESULTS, str(directory / name)) for name in "ab"]

    def batch(self, worker: int, rows: list[tuple[str, int, int]], *, fails: bool) -> list[tuple[Any, ...]]:
        before = copy.deepcopy(self.spark)
        process = self.workers[worker]
        process.init(self.spark)  # type: ignore[arg-type]
        out: list[tuple[Any, ...]] = []
        if rows:
            frames = given(COLUMNS, [(key, at * 1000, value) for key, at, value in rows])
            out += made(process.handleInputRows((0,), frames, self.spark))  # type: ignore[arg-type]
        if due := {at for at in self.spark.timers if at <= self.spark.watermark_ms}:
            out += made(process.handleExpiredTimer((0,), self.spark, None))  # type: ignore[arg-type]
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


@settings(max_examples=examples(60))
@for_all(BATCHES)
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


def test_keys_that_are_longer_than_a_file_takes_are_kept_apart(tmp_path: Path) -> None:
    keys = [b"k" * length for length in (399, 400, 401, 432, 511, 5000)]
    cache = Cache(tmp_path)
    cache.begin(None, [])
    cache.apply([(key, str(place).encode(), 10 * place or None) for place, key in enumerate(keys)])
    assert [cache.get(key) for key in keys] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert list(cache.due(31)) == keys[1:4]
    cache.apply([(keys[2], None, None), (keys[3], b"", 100)])
    assert list(cache.due(200)) == [keys[1], keys[4], keys[5], keys[3]]
    assert sorted(cache.everything()) == [
        (keys[0], b"0", None),
        (keys[1], b"1", 10),
        (keys[3], b"", 100),
        (keys[4], b"4", 40),
        (keys[5], b"5", 50),
    ]
    cache.close()
