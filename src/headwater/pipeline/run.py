"""`headwater run`, whole: the application loaded, compared with its checkpoints, started, watched, stopped."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.app import Alert, App, Sink, Stream, Table, Topic, View, Warehouse, load
from headwater.capture.captures import PARTITIONS, resolve_tables
from headwater.client import Cluster
from headwater.client.errors import Unreachable
from headwater.client.topic_settings import DEAD_LETTERS
from headwater.core.errors import HeadwaterError
from headwater.core.urls import KafkaUrl
from headwater.derived.stores import open_store as open_derived
from headwater.derived.warehouse import Warehouse as WarehouseStore
from headwater.pipeline import checkpoint as checkpoints
from headwater.pipeline import sinks
from headwater.pipeline.checkpoint import Checkpoint, Fingerprint, fingerprint
from headwater.pipeline.compile import Query, Reading, compile_app, compile_warehouses
from headwater.pipeline.handover import Rebuilds, alone, finish
from headwater.pipeline.lag import TopicEnds
from headwater.pipeline.progress import QueryProgress
from headwater.pipeline.runner import Runner, Running
from headwater.pipeline.session import GONE, SessionOptions, cores, is_gone, session
from headwater.views import ALERT, open_store

__all__ = ["RunOptions", "let_workers_import_from", "run_app"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """What `headwater run` was told."""

    app: Path
    data: Path
    broker: str
    views: str
    master: str = "local[*]"
    once: bool = False
    start: str | None = None
    reset: tuple[str, ...] = ()
    ui_port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def run_app(options: RunOptions) -> int:
    """Run an application until a signal, or once over what is there; return the exit status."""
    app = load(options.app)
    resolve_tables(app)
    broker = KafkaUrl.parse(options.broker)
    busy = f"another `headwater run` works in {options.data}: stop it, or give this one a --data of its own"
    # Two drivers on the same checkpoints would each undo what the other does.
    with alone(options.data / "run.lock", busy):
        let_workers_import_from(options.app.resolve().parent)
        with session(
            SessionOptions(
                app.name, options.data / "scratch", options.master, options.ui_port, options.settings
            )
        ) as spark:
            return _run(spark, app, broker, options)


def _run(spark: SparkSession, app: App, broker: KafkaUrl, options: RunOptions) -> int:
    _on_signal(_end)  # PySpark has taken SIGINT over, to cancel jobs with it
    reading = Reading(
        options.broker,
        options.start or "earliest",
        until_now=options.once,
        meetings=(options.data / "scratch" / "meetings").resolve(),
    )
    queries = [*compile_app(spark, app, reading), *compile_warehouses(spark, app, reading)]
    made = {query.name: fingerprint(query) for query in queries}
    directory = (options.data / "checkpoints").resolve()
    kept = {query.name: Checkpoint(directory, query.name) for query in queries}
    reset = _named(options.reset, app, queries)
    finish(options.data, options.views)
    # The files of a warehouse tell how far it is.
    resumed = {query.name: kept[query.name] for query in queries if not isinstance(query.function, Warehouse)}
    _compare(options, resumed, made, reset)
    # So far nothing was touched.
    _make_topics(app, broker)
    for name, checkpoint in kept.items():
        _begin(checkpoint, made[name], start_over=name in reset, start=options.start)
    running = [_running(query, kept[query.name], made[query.name].topics, app) for query in queries]
    with open_store(options.views) as store:
        ends = TopicEnds(options.broker, (topic for each in made.values() for topic in each.topics))
        at_once = cores(options.master)
        rebuilds = Rebuilds(options.data, options.app, options.views)
        runner = Runner(
            spark,
            running,
            start=_starter(app, options),
            store=store,
            ends=ends,
            at_once=at_once,
            rebuilds=rebuilds,
        )
        _on_signal(runner.stop)
        try:
            return _drive(runner, app, options)
        except (Py4JError, OSError):
            if is_gone(spark):
                if runner.is_stopping:  # whoever told us to end has told Spark as well, as systemd does
                    return 1 if options.once else 0
                runner.give_up(GONE)
            raise
        finally:
            runner.close()
            ends.close()


def let_workers_import_from(directory: Path) -> None:
    """Let functions of the application use modules beside it in Spark's Python workers, as they do here."""
    others = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(directory), *others])


def _begin(checkpoint: Checkpoint, made: Fingerprint, *, start_over: bool, start: str | None) -> None:
    """Note what a query is started with, on a new checkpoint where it is to start over."""
    if start_over or not checkpoint.exists():
        # The sink sees that the checkpoint is new, and forgets the epochs that it has noted.
        checkpoint.remove()
    elif start:
        _log.warning(
            "%s goes on from its checkpoint: --from is for a first start, or one with --reset",
            checkpoint.query,
        )
    checkpoint.save(made)


def _running(query: Query, checkpoint: Checkpoint, topics: tuple[str, ...], app: App) -> Running:
    definitions = app.definitions.values()
    lateness = {
        each.name: each.lateness_ms for each in definitions if isinstance(each, Topic | Table | Stream)
    }
    return Running(query, checkpoint, QueryProgress(query.name, query.kind, topics, lateness))


def _drive(runner: Runner, app: App, options: RunOptions) -> int:
    if options.once:
        return 0 if runner.drain() else 1
    runner.start()
    names = ", ".join(each.name for each in (*app.ordered(), *app.spark_warehouses()))
    sys.stdout.write(f"ready {app.name}: {names}\n")
    sys.stdout.flush()
    runner.watch()
    return 0


def _starter(app: App, options: RunOptions) -> Callable[[Query, Path], StreamingQuery]:
    """Return what starts a query into what its function was declared to be."""

    def start(query: Query, path: Path) -> StreamingQuery:
        function, checkpoint = query.function, str(path)
        match function:
            case View():
                return sinks.start_view(
                    query.frame,
                    store_url=options.views,
                    view=function.name,
                    key=function.key,
                    mode=function.mode,
                    query=query.name,
                    checkpoint=checkpoint,
                    ttl_ms=function.ttl_ms,
                    indexes=function.indexes,
                    history_ms=function.history_ms,
                )
            case Alert():
                return sinks.start_view(
                    query.frame,
                    store_url=options.views,
                    view=f"{ALERT}{function.name}",
                    key=(),
                    mode="rows",
                    query=query.name,
                    checkpoint=checkpoint,
                )
            case Stream():
                return sinks.start_topic(
                    query.frame,
                    broker=options.broker,
                    topic=function.name,
                    key=function.key,
                    mode=function.mode,
                    format=function.format,
                    query=query.name,
                    checkpoint=checkpoint,
                    partitions=function.partitions,
                )
            case Sink():
                return sinks.start_function(
                    query.frame,
                    function=function.function,
                    key=function.key,
                    query=query.name,
                    checkpoint=checkpoint,
                )
            case Warehouse():
                store = open_derived(app, function, options.data)
                assert isinstance(store, WarehouseStore)
                assert query.read is not None
                return sinks.start_warehouse(
                    query.frame.sparkSession,
                    query.read,
                    store,
                    query=query.name,
                    checkpoint=checkpoint,
                    every_ms=0 if options.once else function.every_ms,
                )

    return start


def _named(names: tuple[str, ...], app: App, queries: list[Query]) -> set[str]:
    """Return the queries that are to start over, which may be named without the application."""
    known = {query.name for query in queries if not isinstance(query.function, Warehouse)}
    found = {name if name in known else f"{app.name}.{name}" for name in names}
    for each in app.spark_warehouses():
        if f"{app.name}.{each.name}" in found:
            raise HeadwaterError(
                f"{each.name} is a warehouse, whose files tell how far it is:"
                f" `headwater derived rebuild APP {each.name}` builds it anew"
            )
    for name in sorted(found - known):
        raise HeadwaterError(f"there is no query {name} to reset: there are {', '.join(sorted(known))}")
    return found


def _compare(
    options: RunOptions, kept: Mapping[str, Checkpoint], made: Mapping[str, Fingerprint], reset: set[str]
) -> None:
    """Refuse to run where a query cannot go on from its checkpoint."""
    differences = []
    for name, checkpoint in kept.items():
        old = checkpoint.saved()
        if old is None or name in reset:
            continue
        what = checkpoints.difference(old, made[name])
        if what:
            differences.append((name, what))
            continue
        for before, after in checkpoints.changed_expressions(old, made[name]):
            _log.warning(
                "%s goes on with the state of another expression: it was %s, it is %s", name, before, after
            )
    if differences:
        raise checkpoints.refusal(str(options.app), differences)


def _make_topics(app: App, broker: KafkaUrl) -> None:
    """Make the topics that the application reads and writes, where they are missing."""
    wanted: dict[str, tuple[int, dict[str, str]]] = {app.dead_letters: (1, dict(DEAD_LETTERS))}
    for definition in app.definitions.values():
        if isinstance(definition, Topic | Table | Stream):
            partitions = definition.partitions or PARTITIONS
            settings = _topic_settings(definition)
            wanted[definition.name] = partitions, settings
            if isinstance(definition, Topic) and definition.late == "aside":
                wanted[app.late_topic(definition.name)] = partitions, {}
    cluster = Cluster(broker, f"headwater-run-{app.name}")
    try:
        try:
            cluster.connection()
        except Unreachable as error:
            _log.warning("%s; trying again for %.0f s", error, cluster.deadline_seconds)
        for name, (partitions, settings) in wanted.items():
            cluster.ensure_topic(name, partitions, settings)
    finally:
        cluster.close()


def _topic_settings(definition: Topic | Table | Stream) -> dict[str, str]:
    """Return the settings of a topic that has to be made: a table's keeps the last change of each row."""
    match definition:
        case Table():
            return sinks.topic_settings("changes")
        case Stream():
            return sinks.topic_settings(definition.mode)
        case Topic():
            return {}


def _on_signal(stop: Callable[[], None]) -> None:
    """Call `stop` on the first SIGTERM or Ctrl-C; a second one ends the process where it stands."""

    def handle(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)


def _end() -> None:
    """End while nothing runs yet."""
    raise SystemExit(0)
