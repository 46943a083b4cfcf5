"""Runs an application: starts its queries, starts a failed one again, and stops them between batches.

Each query fails alone. One that did is started again after a pause that doubles up to a minute, with the
others going on; a query that then runs well for a while has its pauses start over. Spark itself being gone
ends the run, for whoever supervises it to start another.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.app import AppError
from headwater.pipeline.checkpoint import Checkpoint
from headwater.pipeline.compile import Query
from headwater.pipeline.failures import sentence
from headwater.pipeline.handover import Rebuilds
from headwater.pipeline.lag import TopicEnds
from headwater.pipeline.progress import QueryProgress
from headwater.pipeline.stderr import mute_jvm
from headwater.views import ViewStore

__all__ = ["Pause", "Runner"]

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
RAN_WELL_SECONDS = 60.0
WATCH_SECONDS = 1.0
BETWEEN_BATCHES_SECONDS = 2.0
STOP_SECONDS = 4.0
STARTS_SECONDS = 10.0
ONCE_TRIES = 3
UNCHANGED_MS = 5_000

IN_BATCH = "Processing new data"
WAITING = "Waiting for data to arrive"

_log = logging.getLogger(__name__)


class Pause:
    """How long to wait before a failed query is started again.

    >>> pause = Pause(jitter=lambda: 0.0)
    >>> [pause.after(ran_seconds=0) for _ in range(8)]
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    >>> pause.after(ran_seconds=300)
    1.0
    """

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._failures = 0

    def after(self, ran_seconds: float) -> float:
        """Return the pause after a failure of a query that had run for so long."""
        if ran_seconds >= RAN_WELL_SECONDS:
            self._failures = 0
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * float(2**self._failures))
        self._failures += 1
        # Up to a quarter more, so that queries which failed together do not come back together.
        return pause * (1 + self._jitter() / 4)


@dataclass
class Running:
    """A query of the application, whether it runs at the moment or not."""

    query: Query
    checkpoint: Checkpoint
    progress: QueryProgress
    pause: Pause = field(default_factory=Pause)
    spark: StreamingQuery | None = None
    started: float = 0.0
    due: float = 0.0
    error: str | None = None
    paused: bool = False
    """Standing still, for a rebuilt view to take the place of its own."""
    reported: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Return the word of its status."""
        if self.spark is not None:
            return "running"
        if self.due:
            return "restarting"
        return "failed" if self.error else "stopped"


class Runner:
    """The queries of one application in one Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        queries: Iterable[Running],
        *,
        start: Callable[[Query, Path], StreamingQuery],
        store: ViewStore,
        ends: TopicEnds,
        at_once: int = 2,
        rebuilds: Rebuilds | None = None,
    ) -> None:
        self._spark = spark
        self._queries = list(queries)
        self._start_sink = start
        self._store = store
        self._ends = ends
        self._at_once = at_once
        self._rebuilds = rebuilds
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ask for the end; a signal handler may."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the end was asked for."""
        return self._stopping.is_set()

    def give_up(self, reason: str) -> None:
        """Let every query have failed, for the same reason."""
        for running in self._queries:
            running.error = reason

    def start(self) -> None:
        """Start every query, or raise `AppError` for one that Spark will not plan."""
        self._start_all(self._queries)

    def watch(self) -> None:
        """Keep the queries running until `stop`."""
        while not self._stopping.wait(WATCH_SECONDS):
            for running in self._queries:
                if not self._stands_still(running):
                    self._look_after(running)
            self._report()

    def drain(self) -> bool:
        """Run each query until it has read all there is, those it reads from first; tell whether all did."""
        done: set[str] = set()
        waiting = list(self._queries)
        while waiting and not self._stopping.is_set():
            level = [each for each in waiting if each.query.after <= done]
            waiting = [each for each in waiting if each not in level]
            self._drain(level)
            done |= {each.query.name for each in level}
        return not self._stopping.is_set() and not any(each.error for each in self._queries)

    def close(self) -> None:
        """Stop the queries, between two batches where they come to an end of one soon."""
        began = time.monotonic()
        # Hadoop, Arrow and Spark each complain, with stacks, of a batch that is cut short; it runs again.
        mute_jvm()
        active = [each.spark for each in self._queries if each.spark is not None]
        # Not a pool, which waits for its threads, however long a query takes.
        threads = [
            threading.Thread(target=_stop, args=(query, began + BETWEEN_BATCHES_SECONDS), daemon=True)
            for query in active
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, began + STOP_SECONDS - time.monotonic()))
        for running in self._queries:
            running.spark, running.due = None, 0.0
        self._report()

    # One query

    def _start(self, running: Running) -> None:
        query = running.query
        # The pool is a property of the thread that starts a query, which Spark hands on to the query's own.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.name)
        running.started, running.due = time.monotonic(), 0.0
        try:
            running.spark = self._start_sink(query, running.checkpoint.path)
        except AnalysisException as error:
            fix = "change what it returns, or the mode it is declared with"
            raise AppError(
                query.function.where, f"{query.function.name} cannot run: {sentence(error)}", fix
            ) from error
        except Py4JNetworkError:
            raise
        except Exception as error:
            self._failed(running, error)

    def _look_after(self, running: Running) -> None:
        if running.spark is None:
            if running.due and time.monotonic() >= running.due:
                _log.info("%s is started again", running.query.name)
                self._start(running)
        elif not running.spark.isActive:
            self._failed(running, running.spark.exception())
        elif running.error and time.monotonic() - running.started > RAN_WELL_SECONDS:
            running.error = None

    def _stands_still(self, running: Running) -> bool:
        """Tell whether a query is to stand still, and let it stop or go on accordingly."""
        if self._rebuilds is None or running.query.kind != "view":
            return False
        if self._rebuilds.asked(running.query.name):
            if running.spark is not None:
                _stop(running.spark, time.monotonic() + BETWEEN_BATCHES_SECONDS)
            running.spark, running.due, running.paused = None, 0.0, True
            self._rebuilds.paused(running.query.name)
        elif running.paused:
            running.paused = False
            self._rebuilds.over(running.query.name)
            _log.info("%s goes on after its view was rebuilt", running.query.name)
            self._start(running)
        return running.paused

    def _failed(self, running: Running, error: BaseException | None) -> None:
        ran = time.monotonic() - running.started
        running.spark = None
        running.error = sentence(error) if error else "it stopped by itself"
        pause = running.pause.after(ran)
        running.due = time.monotonic() + pause
        _log.error("%s failed, and is started again in %.0f s: %s", running.query.name, pause, running.error)
        _log.debug("%s", error)

    def _start_all(self, queries: list[Running]) -> None:
        """Start queries, no more at once than there are cores.

        Every source starts a Python process, which Spark gives ten seconds to call back: too short where
        dozens start together.
        """
        for running in queries:
            while sum(_is_starting(each) for each in queries) >= self._at_once:
                if self._stopping.wait(0.1):
                    return
            self._start(running)

    def _drain(self, level: list[Running]) -> None:
        """Let queries read all there is, side by side; one that fails is tried again."""
        for _ in range(ONCE_TRIES):
            self._start_all(level)
            self._await_drained(level)
            level = [each for each in level if each.error]
            if not level or self._stopping.wait(FIRST_PAUSE):
                return

    def _await_drained(self, level: list[Running]) -> None:
        with ThreadPoolExecutor(max(1, len(level))) as pool:
            pending = {pool.submit(_drained, each.spark): each for each in level if each.spark is not None}
            while pending and not self._stopping.is_set():
                finished, _ = wait_for(pending, WATCH_SECONDS)
                for future in finished:
                    running = pending.pop(future)
                    error = future.exception()
                    running.error = sentence(error) if error else None
                    if error is not None:
                        _log.error("%s failed: %s", running.query.name, running.error)
                self._report()
            for running in level:
                if running.spark is not None:
                    running.spark.stop()
        self._report()
        for running in level:
            running.spark, running.due = None, 0.0

    def _report(self) -> None:
        now = time.time_ns() // 1_000_000
        ends = self._ends.read()
        for running in self._queries:
            if running.spark is not None:
                _take_progress(running, now)
            status = running.progress.status(running.state, now, ends, running.error)
            # An idle query says the same each time: now and then is enough to tell that it lives.
            same = running.reported | {"at": now} == status
            if not same or now - running.reported["at"] >= UNCHANGED_MS:
                self._store.put_status(running.query.name, json.dumps(status))
                running.reported = status


def _take_progress(running: Running, now: int) -> None:
    assert running.spark is not None
    last = running.spark.lastProgress
    if last is None or running.progress.has_seen(last):
        return  # the usual case of an idle query; all recent ones are a hundred kilobytes of JSON
    for progress in running.spark.recentProgress:
        running.progress.take(progress, now)


def _is_starting(running: Running) -> bool:
    """Tell whether a query has yet to hear of its sources for the first time."""
    query = running.spark
    if query is None or query.lastProgress is not None or time.monotonic() - running.started > STARTS_SECONDS:
        return False
    return query.isActive and query.status["message"] not in (IN_BATCH, WAITING)


def _drained(query: StreamingQuery) -> None:
    query.processAllAvailable()


def _stop(query: StreamingQuery, deadline: float) -> None:
    """Stop a query once no batch runs, or at the deadline: a batch that is cut short runs again."""
    with suppress(Exception):
        while query.isActive and _is_in_batch(query) and time.monotonic() < deadline:
            time.sleep(0.02)
        query.stop()


def _is_in_batch(query: StreamingQuery) -> bool:
    """Tell whether a batch is under way, rather than asked for: a source waits for records in a trigger."""
    return bool(query.status["message"] == IN_BATCH)
