"""An application as DataFrames: each function called once, with what its parameters name.

Nothing runs yet and no broker is asked: what a function does wrong is found, and told with its file and line,
before anything is touched.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.app import (
    Alert,
    App,
    AppError,
    Definition,
    Function,
    Location,
    Sink,
    Stream,
    Table,
    Topic,
    View,
    Warehouse,
)
from headwater.core.errors import HeadwaterError
from headwater.pipeline import tables
from headwater.pipeline.failures import sentence
from headwater.pipeline.results import check_result
from headwater.pipeline.sinks.warehouse_rows import WarehouseRows, rows_of
from headwater.pipeline.source import TopicSource, read_stream

__all__ = ["Query", "Reading", "compile_app", "compile_warehouses", "ddl", "query_name"]

DELETED = "_deleted"

Read = Callable[[SparkSession, TopicSource], DataFrame]


@dataclass(frozen=True)
class Reading:
    """Where and how an application's topics are read."""

    broker: str
    start: str = "earliest"
    until_now: bool = False
    meetings: Path | None = None
    """Where the sources of each query meet, so that a quiet topic does not hold back the others."""


@dataclass(frozen=True)
class Query:
    """One function or warehouse of an application, ready to be started."""

    name: str
    function: Function | Warehouse
    frame: DataFrame
    topics: tuple[str, ...]
    after: frozenset[str] = field(default_factory=frozenset)
    """The names of the queries whose output it reads."""
    read: WarehouseRows | None = None
    """What a warehouse reads from where its files are, which is known when it is started."""

    @property
    def kind(self) -> str:
        """What its rows become: a view, a stream, an alert, a sink's calls or a warehouse."""
        return self.function.kind


def query_name(app: App, function: Function | Warehouse) -> str:
    """Return what a function's query, and the directory of its checkpoint, is called."""
    return f"{app.name}.{function.name}"


def compile_app(spark: SparkSession, app: App, reading: Reading, read: Read = read_stream) -> list[Query]:
    """Return a query for each function, those it reads from first, or raise `AppError`.

    `read` turns a topic into rows; tests give one that needs no broker.
    """
    compiler = _Compiler(spark, app, reading, read)
    return [compiler.compile(function) for function in app.ordered()]


def compile_warehouses(spark: SparkSession, app: App, reading: Reading) -> list[Query]:
    """Return a query for each warehouse that Spark writes."""
    return [_warehouse(spark, app, each, reading) for each in app.spark_warehouses()]


def _warehouse(spark: SparkSession, app: App, warehouse: Warehouse, reading: Reading) -> Query:
    name = query_name(app, warehouse)
    read = rows_of(app, warehouse, broker=reading.broker, query=name, until_now=reading.until_now)
    of = app.definitions[warehouse.of]
    after = frozenset({query_name(app, of)} if isinstance(of, Stream) else ())
    # Where its files are is known when it is started: until then, columns without rows stand for the topic.
    frame = spark.createDataFrame([], read.source.schema)
    return Query(name, warehouse, frame, (warehouse.of,), after, read)


def ddl(schema: StructType) -> str:
    """Return a schema as the text that declares it; everything may be null in what comes from a topic."""
    fields = [each for each in schema.fields if each.name != DELETED]
    return ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in fields)


class _Compiler:
    def __init__(self, spark: SparkSession, app: App, reading: Reading, read: Read) -> None:
        self._spark = spark
        self._app = app
        self._reading = reading
        self._read_topic = read
        self._schemas: dict[str, str] = {}

    def compile(self, function: Function) -> Query:
        name = query_name(self._app, function)
        frame = self._sink(function, name) if isinstance(function, Sink) else self._called(function, name)
        check_result(function, frame)
        if isinstance(function, Stream):
            self._schemas[function.name] = ddl(frame.schema)
        read = self._read(function)
        return Query(
            name,
            function,
            frame,
            topics=tuple(each.name for each in read),
            after=frozenset(query_name(self._app, each) for each in read if isinstance(each, Stream)),
        )

    def _read(self, function: Function) -> list[Topic | Table | Stream]:
        """Return what a function reads topics of; a sink of a view reads what the view does."""
        found: list[Topic | Table | Stream] = []
        for name in function.inputs:
            definition = self._app.definitions[name]
            if isinstance(definition, View):
                found += self._read(definition)
            elif isinstance(definition, Topic | Table | Stream):
                found.append(definition)
        return found

    def _sink(self, sink: Sink, query: str) -> DataFrame:
        held = self._app.definitions[sink.of]
        if isinstance(held, View):
            return self._called(held, query)
        given = self._input(held.name, query, watch=(held.name,))
        return given.changes if isinstance(given, tables.Table) else given

    def _called(self, function: View | Stream | Alert, query: str) -> DataFrame:
        watch = tuple(each.name for each in self._read(function))
        inputs = {name: self._input(name, query, watch=watch) for name in function.inputs}
        try:
            frame = function.function(**inputs)
        except AppError:
            raise
        except Exception as error:
            where = _line(function, error)
            raise AppError(where, f"{function.name} fails: {_said(error)}", _columns(inputs)) from error
        if not isinstance(frame, DataFrame):
            problem = f"{function.name} returns {_describe(frame)}, not a DataFrame"
            raise AppError(function.where, problem, "end it with `return`, and the DataFrame")
        return frame

    def _input(self, name: str, query: str, *, watch: Sequence[str]) -> DataFrame | tables.Table:
        definition = self._app.definitions[name]
        match definition:
            case Table():
                return self._table(definition, query, watch)
            case Topic():
                source = self._topic(definition, query, watch)
            case Stream():
                source = self._stream(definition, query, watch)
            case _:  # the application was checked: nothing else is an input
                raise TypeError(f"{name} is a {definition.kind}")
        return self._read_topic(self._spark, replace(source, meeting=self._meeting(query, watch)))

    def _meeting(self, query: str, topics: Sequence[str]) -> str | None:
        """Return where the sources of a query meet, if there are several that have a time."""
        read = {name: self._app.definitions[name] for name in topics}
        timed = [each for each in read.values() if _has_time(each)]
        if self._reading.meetings is None or len(timed) < 2:
            return None
        return str(self._reading.meetings / query)

    def _table(self, table: Table, query: str, watch: Sequence[str]) -> tables.Table:
        if table.schema is None:
            problem = f"the columns of the table {table.name} are not known"
            fix = f'write them, as in app.table("{table.name}", "id bigint, name string", …)'
            raise AppError(table.where, problem, fix)
        leaders = [name for name in watch if isinstance(self._app.definitions[name], Topic | Stream)]
        source = TopicSource(
            broker=self._reading.broker,
            topic=table.name,
            schema=table.schema,
            lateness_ms=table.lateness_ms,
            idle_ms=table.idle_ms,
            lost=table.lost,
            dead_letters=self._app.dead_letters,
            group=f"headwater.{query}",
            # A table is all of its rows, from whatever point on the events that meet it are read.
            start="earliest",
            max_rows=table.max_rows,
            max_bytes=table.max_bytes,
            until_now=self._reading.until_now,
            watch=tuple(watch),
            meeting=self._meeting(query, watch),
            envelope=table.envelope,
            key=table.key,
            valid_from=table.event_time,
            leaders=tuple(leaders),
        )

        def in_time(wait_ms: int | None) -> DataFrame:
            timed = replace(source, event_time=tables.CHANGED_AT, wait_ms=wait_ms)
            return self._read_topic(self._spark, timed)

        return tables.Table(table.name, table.key, self._read_topic(self._spark, source), in_time)

    def _topic(self, topic: Topic, query: str, watch: Sequence[str]) -> TopicSource:
        return TopicSource(
            broker=self._reading.broker,
            topic=topic.name,
            schema=topic.schema,
            format=topic.format,
            event_time=topic.event_time,
            lateness_ms=topic.lateness_ms,
            idle_ms=topic.idle_ms,
            ahead_ms=topic.ahead_ms,
            late=topic.late,
            corrections_ms=topic.corrections_ms,
            metadata=topic.metadata,
            lost=topic.lost,
            dead_letters=self._app.dead_letters,
            late_topic=self._app.late_topic(topic.name) if topic.late == "aside" else None,
            group=f"headwater.{query}",
            start=self._reading.start,
            max_rows=topic.max_rows,
            max_bytes=topic.max_bytes,
            source=topic.source,
            until_now=self._reading.until_now,
            watch=tuple(watch),
        )

    def _stream(self, stream: Stream, query: str, watch: Sequence[str]) -> TopicSource:
        return TopicSource(
            broker=self._reading.broker,
            topic=stream.name,
            schema=self._schemas[stream.name],
            format=stream.format,
            event_time=stream.event_time,
            lateness_ms=stream.lateness_ms,
            idle_ms=stream.idle_ms,
            dead_letters=self._app.dead_letters,
            group=f"headwater.{query}",
            start=self._reading.start,
            until_now=self._reading.until_now,
            watch=tuple(watch),
        )


def _has_time(definition: Definition) -> bool:
    """Tell whether a definition's source may have a watermark; a table's has one where something waits for it."""
    return isinstance(definition, Table) or (
        isinstance(definition, Topic | Stream) and definition.event_time is not None
    )


def _line(function: Function, error: Exception) -> Location:
    """Return the innermost line of the user's file that an error came through."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == function.where.file and frame.lineno is not None
    ]
    return Location(function.where.file, lines[-1]) if lines else function.where


def _said(error: Exception) -> str:
    """Return what an error says, in one line; Spark's and ours say whose they are."""
    said = sentence(error)
    return said if isinstance(error, PySparkException | HeadwaterError) else f"{type(error).__name__}: {said}"


def _columns(inputs: dict[str, DataFrame | tables.Table]) -> str:
    given = (f"{name} has {', '.join(frame.columns)}" for name, frame in inputs.items())
    return f"correct it ({'; '.join(given)})"


def _describe(thing: object) -> str:
    return "nothing" if thing is None else f"a {type(thing).__name__}"
