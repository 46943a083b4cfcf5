"""An application, or one function of it, on rows given in Python.

    from headwater.testing import advance, run_app

    outputs = run_app("shop.py", {"orders": [{"order_id": "1", ...}, advance("1 hour")], "payments": []})
    assert outputs["revenue"] == [...]

Functions run in Spark as they do in `headwater run`, without a broker and without waiting: each list of rows is
one micro-batch, and time is event time, which only rows and `advance` move.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headwater.app import App, Delivery, Sink, Stream, Table, Topic, View, load
from headwater.pipeline.compile import DELETED, Query, Reading, compile_app
from headwater.pipeline.session import SessionOptions, open_session, settings
from headwater.pipeline.sinks.columns import ABSENT, SinkError, no_key
from headwater.pipeline.sinks.output_mode import upserting_mode
from headwater.pipeline.source import TopicSource
from headwater.testing.jars import BRIEF_SPARK
from headwater.testing.rows_source import Advance, Items, RowsError, ScriptedTopic, advance, steps_of
from headwater.views.keys import key_of

__all__ = ["Advance", "Recorder", "RowsError", "Run", "advance", "run_app", "run_function", "session"]

Rows = list[dict[str, Any]]

_FOR_EVER_MS = 10 * 365 * 86_400_000
_SMALL = {
    # A test has a handful of rows: what pays for millions of them (generated code, state on disk, a task
    # for each core) costs more than it brings.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.memory": "1g",
}


def session() -> SparkSession:
    """Return the Spark session that all tests of a process share, opened by the first that asks."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    scratch = Path(tempfile.mkdtemp(prefix="headwater-test-"))
    options = SessionOptions("headwater-test", scratch, master="local[2]", settings=_SMALL)
    java = "spark.driver.extraJavaOptions"
    opened = open_session(
        replace(options, settings=_SMALL | {java: f"{settings(options)[java]} {BRIEF_SPARK}"})
    )
    atexit.register(_end, opened, scratch)
    return opened


def _end(spark: SparkSession, scratch: Path) -> None:
    spark.stop()  # or it writes to the directory while that is removed
    shutil.rmtree(scratch, ignore_errors=True)


def run_app(app: App | str | Path, inputs: Mapping[str, Items], *, drain: bool = False) -> dict[str, Rows]:
    """Run every function of an application on the rows of its topics; return the rows of each by its name.

    A view gives the rows that it holds in the end, a stream and an alert the rows that they emitted, in order
    (with mode "changes" each upsert, and deletes with `_deleted`), a sink the rows that it was called with. Late rows
    of a topic with `late="aside"` are there under the name of the topic that they go to.

    `inputs` names a list of rows for each topic and table: dictionaries, times as datetimes or ISO 8601 texts. Those
    rows are one batch; lists within the list are batches of their own, one after the other and side by side with
    those of other topics; `advance("5 minutes")` between them lets time pass for all. A row may say of which
    `_partition` it is, and one of a table that it is `_deleted`, and since when: `_changed_at`. A stream that has rows
    here is not run, and its readers get these. With `drain`, time goes on in the end until everything that waits for
    it has come out.
    """
    with Run(app, inputs, drain=drain) as run:
        outputs = {query.function.name: run.output(query, Recorder()) for query in run.queries}
        return outputs | run.set_aside()


def run_function(
    app: App | str | Path, name: str, inputs: Mapping[str, Items], *, drain: bool = False
) -> Rows:
    """Run one function of an application, and the streams that it reads; return its rows as `run_app` does."""
    with Run(app, inputs, drain=drain, only=name) as run:
        return [run.output(query, Recorder()) for query in run.queries][-1]


class Recorder:
    """A sink that keeps what each epoch brought."""

    def __init__(self) -> None:
        self.epochs: dict[int, Rows] = {}

    def commit(self, frame: DataFrame, epoch: int) -> None:
        """Take the rows of an epoch."""
        self.epochs[epoch] = frame.toArrow().to_pylist()

    def survived(self) -> bool:
        """Tell whether a failure is one that the query is to be restarted after."""
        return False


class Run:
    """The queries of an application over scripted topics, for as long as its directory is there."""

    def __init__(
        self,
        app: App | str | Path,
        inputs: Mapping[str, Items],
        *,
        drain: bool = False,
        only: str | None = None,
    ) -> None:
        self._app = app if isinstance(app, App) else load(Path(app))
        if isinstance(app, App):
            app.check()
        self._inputs = {name: steps_of(items) for name, items in inputs.items()}
        self._refuse_unknown_inputs()
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-run-"))
        self._topics: dict[str, ScriptedTopic] = {}
        self._drain = drain
        self._now_ms: int | None = None
        try:
            compiled = compile_app(session(), self._app, Reading("kafka://rows:9092"), self._read)
            wanted = self._wanted(compiled, only)
            self.queries = [query for query in compiled if query.function.name in wanted]
            self._write_inputs()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def output(self, query: Query, recorder: Recorder) -> Rows:
        """Run a query to the end of its inputs; return its rows."""
        function = query.function
        appends = isinstance(function, Stream) and function.mode == "append"
        mode = "append" if appends else upserting_mode(query.frame)
        self._run_to_end(query, recorder, mode)
        epochs = [rows for _, rows in sorted(recorder.epochs.items())]
        emitted = [row for rows in epochs for row in rows]
        _refuse_null_keys(query, emitted)
        if isinstance(function, Stream) and function.name in self._topics:
            self._write_stream(self._topics[function.name], epochs)
        if isinstance(function, Sink):
            for rows in epochs:
                if rows:
                    function.function([Delivery(key_of(row, function.key), row) for row in rows])
        return _held(emitted, function) if isinstance(function, View) else emitted

    def set_aside(self) -> dict[str, Rows]:
        """Return the late rows of the topics that set theirs aside."""
        return {
            self._app.late_topic(name): [dict(row) for row in self._topics[name].late]
            for name, topic in self._app.definitions.items()
            if isinstance(topic, Topic) and topic.late == "aside" and name in self._topics
        }

    def _run_to_end(self, query: Query, recorder: Recorder, mode: str) -> None:
        checkpoint = str(self._directory / "checkpoints" / query.name)
        while True:
            writer = query.frame.writeStream.foreachBatch(recorder.commit).outputMode(mode)
            running = writer.option("checkpointLocation", checkpoint).queryName(query.name).start()
            try:
                running.processAllAvailable()
                return
            except StreamingQueryException as error:
                if recorder.survived():
                    continue
                if "MALFORMED_RECORD_IN_PARSING" in str(error) and (problem := self._misfit(query)):
                    raise RowsError(problem) from None
                raise
            finally:
                running.stop()

    def _misfit(self, query: Query) -> str | None:
        """Return what does not fit of the rows that a query reads."""
        problems = (self._topics[name].misfit() for name in query.topics if name in self._topics)
        return next(filter(None, problems), None)

    def _read(self, spark: SparkSession, source: TopicSource) -> DataFrame:
        if source.topic not in self._topics:
            self._topics[source.topic] = ScriptedTopic(self._directory / "topics" / source.topic, source)
        return self._topics[source.topic].read(spark, in_time=source.event_time is not None)

    def _wanted(self, compiled: Iterable[Query], only: str | None) -> set[str]:
        by_name = {query.function.name: query for query in compiled}
        if only is None:
            return by_name.keys() - self._inputs.keys()
        if only not in by_name:
            raise RowsError(f"{self._app.name} has no function {only}; it has {', '.join(by_name)}")
        found, left = set(), [only]
        while left:
            name = left.pop()
            found.add(name)
            left += [read for read in by_name[name].topics if read in by_name and read not in self._inputs]
        return found

    def _refuse_unknown_inputs(self) -> None:
        definitions = self._app.definitions.values()
        read = [each.name for each in definitions if isinstance(each, Topic | Table | Stream)]
        unknown = sorted(self._inputs.keys() - set(read))
        if unknown:
            raise RowsError(
                f"{self._app.name} reads no {', '.join(unknown)}; give rows for {', '.join(read)}"
            )

    def _write_inputs(self) -> None:
        """Write the topics' batches step by step, because an advance in one is one in all."""
        written = {name: topic for name, topic in self._topics.items() if not self._is_computed(name)}
        for number in range(max((len(steps) for steps in self._inputs.values()), default=0)):
            step = {name: steps[number] for name, steps in self._inputs.items() if number < len(steps)}
            rows = {name: each for name, each in step.items() if not isinstance(each, Advance)}
            if rows:
                for name, topic in written.items():
                    topic.write(rows.get(name, []))
            by_ms = [each.by_ms for each in step.values() if isinstance(each, Advance)]
            if by_ms:
                self._advance(written.values(), max(by_ms))
        # Without an event nothing waits for time.
        if self._drain and any(topic.high_ms is not None for topic in self._topics.values()):
            self._advance(written.values(), _FOR_EVER_MS)

    def _advance(self, topics: Iterable[ScriptedTopic], by_ms: int) -> None:
        seen = [topic.high_ms for topic in self._topics.values() if topic.high_ms is not None]
        if not seen:
            raise RowsError("time cannot advance before the first event; give a row with an event time first")
        self._now_ms = max(seen) + by_ms
        for topic in topics:
            topic.advance_to(self._now_ms)

    def _write_stream(self, topic: ScriptedTopic, epochs: Iterable[Rows]) -> None:
        for rows in epochs:
            topic.write(
                [{name: row[name] for name in row if name != DELETED} for row in rows if not row.get(DELETED)]
            )
        if self._now_ms is not None:
            topic.advance_to(self._now_ms)

    def _is_computed(self, name: str) -> bool:
        return isinstance(self._app.definitions[name], Stream) and name not in self._inputs


def _refuse_null_keys(query: Query, rows: Rows) -> None:
    """Refuse rows without a key, as the sink of a view, of a stream of changes and of a function does."""
    function = query.function
    if not isinstance(function, View | Sink) and not (
        isinstance(function, Stream) and function.mode == "changes"
    ):
        return
    schema = query.frame.schema
    for name in function.key:
        optional = len(function.key) > 1 and schema[name].metadata.get(ABSENT)
        if not optional and any(row[name] is None for row in rows):
            raise SinkError(no_key(query.name, name))


def _held(emitted: Rows, view: View) -> Rows:
    """Return the rows that a view holds after all of these, by key in the order of their first coming."""
    held: dict[str, dict[str, Any]] = {}
    for row in emitted:
        key = key_of(row, view.key)
        if row.get(DELETED):
            held.pop(key, None)
        else:
            held[key] = {name: value for name, value in row.items() if name != DELETED}
    return list(held.values())
