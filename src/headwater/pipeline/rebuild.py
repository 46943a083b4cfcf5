"""`headwater views rebuild`: a view built anew from its topics beside the live one, then put in its place.

The view's function runs as a query of its own, with a checkpoint of its own, into the view's shadow in the store.
Once it has read as far as the live query, that one stands still (`handover`), the last records are read, and rows
and checkpoint are swapped. The live query then goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.app import App, Table, View, load
from headwater.app.errors import did_you_mean
from headwater.capture.captures import resolve_tables
from headwater.client import EARLIEST, LATEST, Cluster
from headwater.core.errors import HeadwaterError
from headwater.core.urls import KafkaUrl
from headwater.pipeline import sinks
from headwater.pipeline.checkpoint import Checkpoint, Fingerprint, fingerprint
from headwater.pipeline.compile import Query, Reading, compile_app
from headwater.pipeline.failures import sentence
from headwater.pipeline.handover import Handover, alone, finish, shadow_query, swap
from headwater.pipeline.offsets import Offsets, committed, merged, progress_offsets, reached
from headwater.pipeline.run import let_workers_import_from
from headwater.pipeline.session import SessionOptions, session
from headwater.pipeline.source import TopicSource, read_stream
from headwater.views import ViewDefinition, ViewStore, open_store

__all__ = ["RebuildError", "RebuildOptions", "Rebuilding", "rebuild"]

_POLL_SECONDS = 0.2


class RebuildError(HeadwaterError):
    """A view that cannot be rebuilt, or a rebuild that failed; the live view is as it was."""


@dataclass(frozen=True)
class RebuildOptions:
    """What `headwater views rebuild` was told."""

    app: Path
    view: str
    data: Path
    broker: str
    views: str
    start: str = "earliest"
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Where to begin in single partitions, by topic and number."""
    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)


class Rebuilding(NamedTuple):
    """How far a rebuild is, in records, and what it waits for if anything."""

    read: int
    of: int
    waits_for: str = ""


Report = Callable[[Rebuilding], None]


def rebuild(options: RebuildOptions, report: Report) -> int:
    """Rebuild a view and swap it in; return how many of its rows differed."""
    _moment(options.start)
    app = load(options.app)
    resolve_tables(app)
    function = _view(app, options.view)
    named = _named_offsets(app, function, options)
    live = f"{app.name}.{function.name}"
    busy = f"{options.view} is being rebuilt already in {options.data}: wait until that is done"
    with alone(Handover(options.data, live).lock, busy), open_store(options.views) as store:
        directory = options.data / "rebuild"
        scratch = directory / "scratch" / live
        let_workers_import_from(options.app.resolve().parent)
        with session(
            SessionOptions(f"{app.name} rebuild", scratch, options.master, None, options.settings)
        ) as spark:
            return _Rebuild(spark, app, function, live, store, options, report, named).run(scratch)


class _Rebuild:
    def __init__(
        self,
        spark: SparkSession,
        app: App,
        function: View,
        live: str,
        store: ViewStore,
        options: RebuildOptions,
        report: Report,
        named: Offsets,
    ) -> None:
        self._spark = spark
        self._app = app
        self._function = function
        self._live = live
        self._store = store
        self._options = options
        self._report = report
        self._cluster = Cluster(KafkaUrl.parse(options.broker), "headwater-rebuild")
        self._named = named
        self._begin: Offsets = {}
        self._done: Offsets = {}

    def run(self, scratch: Path) -> int:
        query = self._compiled(scratch)
        made = fingerprint(query)
        handover = Handover(self._options.data, self._live)
        checkpoint = Checkpoint((self._options.data / "rebuild" / "checkpoints").resolve(), query.name)
        checkpoint.remove()
        definition = ViewDefinition(
            self._function.name,
            self._function.key,
            self._function.ttl_ms,
            self._function.indexes,
            self._function.history_ms,
        )
        if all(view.name != definition.name for view in self._store.definitions()):
            self._store.define(definition)
        shadow = self._store.shadow(self._function.name, query.name)
        checkpoint.save(made)
        running = self._start(query, shadow, checkpoint)
        try:
            self._begin = self._done = {**self._offsets(made, _moment(self._options.start)), **self._named}
            target = merged(self._offsets(made, LATEST), self._live_offsets())
            self._await(running, made, target)
            with handover.standstill(self._options.app, lambda what: self._wait(running, made, what)):
                finish(self._options.data, self._options.views)
                # Now that nobody moves it any more: as far as the live query came.
                self._await(running, made, self._live_offsets())
                _stop(running)
                return swap(self._options.data, self._store, self._function.name, self._live)
        except BaseException:
            _stop(running)
            if handover.swapping.exists():
                finish(self._options.data, self._options.views)
            else:
                self._store.discard(self._function.name, query.name)
                checkpoint.remove()
            raise
        finally:
            self._cluster.close()

    def _compiled(self, scratch: Path) -> Query:
        name = shadow_query(self._live)

        def read(spark: SparkSession, source: TopicSource) -> DataFrame:
            # The live query's group tells how far that one is.
            offsets = tuple(self._named.get(source.topic, {}).items())
            return read_stream(spark, replace(source, group=f"headwater.{name}", offsets=offsets))

        reading = Reading(
            self._options.broker, self._options.start, meetings=(scratch / "meetings").resolve()
        )
        queries = compile_app(self._spark, self._app, reading, read)
        [found] = [query for query in queries if query.name == self._live]
        return replace(found, name=name)

    def _start(self, query: Query, shadow: str, checkpoint: Checkpoint) -> StreamingQuery:
        return sinks.start_view(
            query.frame,
            store_url=self._options.views,
            view=shadow,
            key=self._function.key,
            mode=self._function.mode,
            query=query.name,
            checkpoint=str(checkpoint.path),
        )

    def _await(self, running: StreamingQuery, made: Fingerprint, target: Offsets) -> None:
        """Wait until the query has read as far as `target`, and committed what came of it."""
        while not reached(self._done, target):
            self._look(running, made)
            self._report(self._figures(target))
            time.sleep(_POLL_SECONDS)
        self._report(self._figures(target))

    def _wait(self, running: StreamingQuery, made: Fingerprint, what: str) -> None:
        self._look(running, made)
        self._report(self._figures(self._done, what))

    def _look(self, running: StreamingQuery, made: Fingerprint) -> None:
        if not running.isActive:
            error = running.exception()
            said = sentence(error) if error is not None else "it stopped by itself"
            raise RebuildError(
                f"{self._function.name} could not be rebuilt: {said}. The live view is as it was"
            )
        last: Any = running.lastProgress
        if last is not None:
            self._done = {**self._done, **progress_offsets(last, made.topics)}

    def _figures(self, target: Offsets, waits_for: str = "") -> Rebuilding:
        def distance(to: Offsets) -> int:
            return sum(
                max(0, end - self._begin.get(topic, {}).get(partition, 0))
                for topic, partitions in to.items()
                for partition, end in partitions.items()
            )

        of = distance(target)
        return Rebuilding(min(distance(self._done), of), of, waits_for)

    def _offsets(self, made: Fingerprint, at: int) -> Offsets:
        """Return where topics begin, end, or are at a time; a table is read as a whole."""
        found: dict[str, dict[int, int]] = {}
        for topic in dict.fromkeys(made.topics):
            whole = at != LATEST and isinstance(self._app.definitions.get(topic), Table)
            wanted = dict.fromkeys(self._cluster.partitions(topic), EARLIEST if whole else at)
            found[topic] = self._cluster.offsets(topic, wanted, read_committed=True)
        return found

    def _live_offsets(self) -> Offsets:
        """Return how far the live query has come, of what this one reads too."""
        checkpoint = Checkpoint(self._options.data / "checkpoints", self._live)
        saved = checkpoint.saved()
        return committed(checkpoint.path, saved.topics) if saved is not None else {}


def _view(app: App, name: str) -> View:
    views = [each.name for each in app.definitions.values() if isinstance(each, View)]
    found = app.definitions.get(name)
    if not isinstance(found, View):
        there = f"there are {', '.join(views)}" if views else "there is none"
        raise RebuildError(f"{app.name} has no view {name}{did_you_mean(name, views)}: {there}")
    return found


def _named_offsets(app: App, function: View, options: RebuildOptions) -> Offsets:
    """Return where to begin in the topics of which a partition was named, or refuse what is not there."""
    read = [name for name in function.inputs if not isinstance(app.definitions[name], Table)]
    found: dict[str, dict[int, int]] = {}
    with closing(Cluster(KafkaUrl.parse(options.broker), "headwater-rebuild")) as cluster:
        for (topic, partition), offset in options.offsets.items():
            if topic not in read:
                raise RebuildError(
                    f"{function.name} reads no topic {topic}{did_you_mean(topic, read)}: --offset is for "
                    f"{', '.join(read) or 'none of its own'}, and a table is read as a whole"
                )
            begin = found.get(topic)
            if begin is None:
                places = dict.fromkeys(cluster.partitions(topic), _moment(options.start))
                begin = found[topic] = cluster.offsets(topic, places)
            if partition not in begin:
                raise RebuildError(f"{topic} has the partitions 0 to {len(begin) - 1}, and no {partition}")
            first, end = (
                cluster.offsets(topic, {partition: where})[partition] for where in (EARLIEST, LATEST)
            )
            if not first <= offset <= end:
                raise RebuildError(f"{topic}-{partition} holds the offsets {first} to {end}, and no {offset}")
            begin[partition] = offset
    return found


def _moment(start: str) -> int:
    if start == "earliest":
        return EARLIEST
    try:
        return int(datetime.fromisoformat(start).timestamp() * 1000)
    except ValueError:
        raise RebuildError(f"--from {start} does not fit: write earliest, or a time in ISO 8601") from None


def _stop(query: StreamingQuery) -> None:
    """Stop a query between two batches, if it comes to the end of one soon; one cut short runs again."""
    deadline = time.monotonic() + 5
    while query.isActive and query.status["message"] == "Processing new data" and time.monotonic() < deadline:
        time.sleep(0.02)
    query.stop()
