"""`headwater derived rebuild` of a warehouse through Spark: all of its topic in one job, beside the live one.

Partitions are cut into pieces that tasks read side by side, and every part is written once. What came meanwhile is
read in another, shorter round. Whoever reads sees the old version until the link leads to the new one, and
`headwater run` goes on with that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.app import App, Warehouse
from headwater.client import LATEST, Cluster
from headwater.derived.change import Position
from headwater.derived.errors import DerivedError
from headwater.derived.rebuild import switched
from headwater.derived.stores import open_store
from headwater.derived.warehouse import Warehouse as Store
from headwater.pipeline.failures import sentence
from headwater.pipeline.session import SessionOptions, session
from headwater.pipeline.sinks.warehouse import WarehouseWriter, begin
from headwater.pipeline.sinks.warehouse_rows import WarehouseRows, rows_of
from headwater.pipeline.source import TopicSource, read_batch
from headwater.pipeline.source.offsets import SourceOffset

__all__ = ["RebuildPlace", "build_anew", "rebuild_warehouse"]

_TASK_ROWS = 100_000
_POLL_SECONDS = 0.3
_GROUP = "headwater.rebuild"

Report = Callable[[int, int], None]
"""Is told how many offsets of how many are done."""


@dataclass(frozen=True)
class RebuildPlace:
    """Where a rebuild takes place."""

    data: Path
    broker: str
    master: str = "local[*]"


def rebuild_warehouse(app: App, definition: Warehouse, place: RebuildPlace, report: Report) -> int:
    """Build a warehouse anew and put it in the live one's place; return how many rows it has."""
    name = f"{app.name}.{definition.name}"
    scratch = place.data / "rebuild" / "scratch" / name
    store = open_store(app, definition, place.data)
    assert isinstance(store, Store)
    read = rows_of(app, definition, broker=place.broker, query=name)
    with session(SessionOptions(f"{name} rebuild", scratch, place.master)) as spark:
        return build_anew(spark, store, read, report)


def build_anew(spark: SparkSession, store: Store, read: WarehouseRows, report: Report) -> int:
    """Build a warehouse anew in a session that is open."""
    beside = store.beside()

    def catch_up() -> None:
        base = begin(beside, read.source)
        ends = _ends(read.source, base)
        total = sum(end - base.offsets.get(each, 0) for each, end in ends.items())
        job = _Job(spark, lambda: _round(spark, store, beside, read, base, ends))
        job.watch(lambda share: report(int(share * total), total))

    return switched(store.name, store, beside, catch_up, writer="headwater run")


def _round(
    spark: SparkSession,
    store: Store,
    beside: Store,
    read: WarehouseRows,
    base: Position,
    ends: dict[int, int],
) -> None:
    """Read from where the new one is to the ends."""
    source = replace(
        read.source,
        offsets=tuple(base.offsets.items()),
        ends=tuple(ends.items()),
        task_rows=_TASK_ROWS,
    )
    rows = read.keyed(read_batch(spark, source))
    end = SourceOffset(ends, topic_id=base.topic_id or None)
    WarehouseWriter(beside, read).write(rows, base.offsets, end, expected=_expected(store, base, ends))


def _expected(store: Store, base: Position, ends: dict[int, int]) -> int:
    """Return how many rows there may be: those of the live one and one for each change since, if there is one."""
    live = store.position()
    of_same = live is not None and live.topic_id == base.topic_id
    since = live.offsets if live is not None and of_same else {}
    changes = sum(end - since.get(each, 0) for each, end in ends.items())
    return changes + (store.count() if of_same else 0)


def _ends(source: TopicSource, base: Position) -> dict[int, int]:
    cluster = Cluster(source.url, "headwater-rebuild")
    try:
        partitions = {*base.offsets, *cluster.partitions(source.topic)}
        return cluster.offsets(source.topic, dict.fromkeys(sorted(partitions), LATEST))
    finally:
        cluster.close()


class _Job:
    """Work in a thread of its own, for its tasks to be counted meanwhile."""

    def __init__(self, spark: SparkSession, work: Callable[[], None]) -> None:
        self._spark = spark
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def watch(self, report: Callable[[float], None]) -> None:
        """Do the work; tell every now and then which share of its tasks is done."""
        self._thread.start()
        while self._thread.is_alive():
            self._thread.join(_POLL_SECONDS)
            report(self._share())
        if self._error is not None:
            if isinstance(self._error, DerivedError):
                raise self._error
            raise DerivedError(f"it could not be built anew: {sentence(self._error)}") from self._error
        report(1.0)

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(_GROUP, "rebuild of a warehouse")
            self._work()
        except BaseException as error:
            self._error = error

    def _share(self) -> float:
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(_GROUP)]
        latest = max((job for job in jobs if job is not None), key=lambda job: job.jobId, default=None)
        stages = [tracker.getStageInfo(each) for each in latest.stageIds] if latest is not None else []
        known = [stage for stage in stages if stage is not None]
        tasks = sum(stage.numTasks for stage in known)
        return sum(stage.numCompletedTasks for stage in known) / tasks if tasks else 0.0
