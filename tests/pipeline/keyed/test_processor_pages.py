"""A key whose state lies in pages: what a change reads and writes, and what is left of it, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.keyed.cache import Cache
from headwater.pipeline.keyed.logic import unpack
from headwater.pipeline.keyed.processor import BucketProcessor
from headwater.pipeline.table_joins import LEFT, RIGHT, Shape, Side, TableJoin

from .spark_state import Spark, given, made

PEOPLE = 100_000
PAGES = PEOPLE // 64
SHAPE = Shape.of(
    Side("employees", ("employee", "name", "department"), ("employee",)),
    Side("departments", ("id", "title"), ("id",)),
    {"department": "id"},
    "inner",
)
COLUMNS = "k0 c0 c1 c2 c3 c4 c5 c6 c7"
RESULTS = pa.schema(
    {"o0": pa.int64(), "o1": pa.string(), "o2": pa.int64(), "o3": pa.string(), "o4": pa.bool_()}
)


class Bucket:
    """A bucket with one department in it, and the worker that has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spark = Spark()
        self.restart()

    def restart(self) -> None:
        """Go on in another worker."""
        self.process = BucketProcessor(TableJoin(SHAPE), 1, RESULTS, str(self.directory))

    def batch(self, changes: list[tuple[int, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        frames = given(COLUMNS, [(1, *SHAPE.row(side, change)) for side, change in changes])
        self.process.init(self.spark)  # type: ignore[arg-type]
        return made(self.process.handleInputRows((0,), frames, self.spark))  # type: ignore[arg-type]

    def employ(self) -> None:
        people = [(LEFT, (False, n, n, f"employee {n}", 1)) for n in range(PEOPLE)]
        assert len(self.batch([(RIGHT, (False, 0, 1, "Sales")), *people])) == PEOPLE

    def written(self) -> dict[bytes, bytes]:
        """Return what all of the entries make together."""
        kept: dict[bytes, bytes] = {}
        for (entry,) in self.spark.entries:
            for key, state, _ in unpack(entry):
                if state is None:
                    kept.pop(key, None)
                else:
                    kept[key] = state
        return kept


@pytest.fixture
def department(tmp_path: Path) -> Bucket:
    bucket = Bucket(tmp_path / "cache")
    bucket.employ()
    return bucket


def test_a_change_of_one_of_100_000_reads_and_writes_one_page_and_survives_another_worker(
    department: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    get = Cache.get

    def counting(cache: Cache, key: bytes) -> bytes | None:
        found = get(cache, key)
        read.append(len(found or b""))
        return found

    total = sum(map(len, department.written().values()))
    entries = len(department.spark.entries)
    with monkeypatch.context() as patched:
        patched.setattr(Cache, "get", counting)
        assert department.batch([(LEFT, (False, PEOPLE, 5, "Ann", 1))]) == [(5, "Ann", 1, "Sales", False)]
    assert len(read) == 2, "the key's state, and one page"
    (added,) = department.spark.entries[entries:]
    assert [len(state) for _, state, _ in unpack(added[0])] == [pytest.approx(read[1], abs=20), read[0]]
    assert len(added[0]) < total / 500

    shutil.rmtree(department.directory)
    department.restart()
    renamed = department.batch([(RIGHT, (False, 1, 1, "Marketing"))])
    assert sorted(renamed) == sorted(
        (n, "Ann" if n == 5 else f"employee {n}", 1, "Marketing", False) for n in range(PEOPLE)
    )


def test_the_pages_of_a_key_that_is_forgotten_go(department: Bucket) -> None:
    assert len(department.written()) > PAGES
    gone = [(LEFT, (True, PEOPLE, n, None, None)) for n in range(PEOPLE)]
    assert len(department.batch([*gone, (RIGHT, (True, 1, 1, None))])) == PEOPLE
    assert department.written() == {}
    (cached,) = (department.directory / "headwater-state").glob("*/0")
    cache = Cache(cached)
    assert department.spark.head is not None
    cache.begin(department.spark.head[0], [])
    assert list(cache.everything()) == []
    cache.close()
