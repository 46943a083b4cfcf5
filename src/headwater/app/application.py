"""`App`: what a user declares topics, tables, views, streams, alerts and sinks on.

Declaring only declares: nothing runs, connects or imports Spark. What one declaration shows to be wrong is
refused at its line; what only the whole shows (`graph`, `event_time`), when the application is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headwater.app import event_time as clocks
from headwater.app import graph, names, options
from headwater.app import schema as schemas
from headwater.app.calls import declaration
from headwater.app.definitions import (
    Alert,
    Definition,
    Format,
    Function,
    Late,
    Lost,
    Sink,
    SourceKind,
    Stream,
    StreamFormat,
    StreamMode,
    Table,
    Topic,
    View,
    ViewMode,
)
from headwater.app.errors import AppError, Location
from headwater.app.functions import inputs_of, location, name_of, refuse_unless_one_list

F = TypeVar("F", bound=Callable[..., Any])


class App:
    """An application: a name, and what is declared on it."""

    def __init__(self, name: str) -> None:
        self.where = Location.of_caller()
        problem = names.problem_with(name)
        if problem:
            raise AppError(self.where, problem, 'name the application in one word, as in App("shop")')
        self.name = name
        self.definitions: dict[str, Definition] = {}

    def __repr__(self) -> str:
        return f"App({self.name!r})"

    @property
    def dead_letters(self) -> str:
        """The topic of the records that could not be read."""
        return f"{self.name}.dead"

    def late_topic(self, topic: str) -> str:
        """Return the topic of a topic's records that came too late, where they are set aside."""
        return f"{topic}.late"

    @declaration
    def topic(
        self,
        name: str,
        schema: str,
        *,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        lateness: str = "0 seconds",
        idle: str = "1 minute",
        late: Late = "drop",
        corrections: str | None = None,
        format: Format = "json",
        partitions: int | None = None,
        lost: Lost = "fail",
        metadata: Sequence[str] = (),
        source: SourceKind = "arrow",
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Topic:
        """Declare a topic that functions read, with its records' columns and their time.

        A window over `event_time` waits `lateness` for events that are out of order; what comes later yet
        is dropped and counted, set `aside` in a topic, or is let `correct` what was published, for as long
        as `corrections` says. A partition without records for `idle` does not hold time back.
        """
        where = Location.of_caller()
        fields = options.schema(where, schema)
        keys = options.columns(where, "key", key)
        options.in_schema(where, "key", keys, fields)
        about = options.metadata(where, metadata, fields)
        options.event_time(where, event_time, fields, about)
        options.choice(where, "late", late, Late)
        definition = Topic(
            name=name,
            where=where,
            schema=schemas.text(schemas.nullable(fields)),
            fields=fields,
            key=keys,
            event_time=event_time,
            lateness_ms=options.duration(where, "lateness", lateness),
            idle_ms=options.duration(where, "idle", idle, zero=False),
            late=late,
            corrections_ms=_corrections(where, late, corrections),
            format=options.topic_format(where, format, fields),
            partitions=options.count(where, "partitions", partitions),
            lost=options.choice(where, "lost", lost, Lost),
            metadata=about,
            source=options.choice(where, "source", source, SourceKind),
            max_rows=options.count(where, "max_rows", max_rows),
            max_bytes=options.count(where, "max_bytes", max_bytes),
        )
        _refuse_untimed(definition, lateness=lateness)
        self._add(definition)
        return definition

    @declaration
    def table(self, name: str, *, key: str | Sequence[str], source: str, schema: str | None = None) -> Table:
        """Declare a table of a database, which change data capture keeps in step."""
        where = Location.of_caller()
        keys = options.some_columns(where, "key", key)
        if schema is not None:
            fields = options.schema(where, schema)
            options.in_schema(where, "key", keys, fields)
            schema = schemas.text(fields)
        address = options.address(where, "source", source)
        definition = Table(name=name, where=where, key=keys, source=address, schema=schema)
        self._add(definition)
        return definition

    @declaration
    def view(self, *, key: str | Sequence[str], mode: ViewMode = "rows") -> Callable[[F], F]:
        """Declare that a function's rows are served by `key`; with mode "changes", `_deleted` ones go."""
        called = Location.of_caller()

        def declare(function: F) -> F:
            where, name, inputs = _function(called, function, "view")
            keys = options.some_columns(where, "key", key)
            checked = options.choice(where, "mode", mode, ViewMode)
            self._add(View(name, where, inputs, function, keys, checked))
            return function

        return declare

    @declaration
    def stream(
        self,
        *,
        key: str | Sequence[str],
        mode: StreamMode = "append",
        format: StreamFormat = "json",
        partitions: int | None = None,
        event_time: str | None = None,
        lateness: str = "0 seconds",
        idle: str = "1 minute",
    ) -> Callable[[F], F]:
        """Declare that a function's rows go to the topic of its name, exactly once.

        Mode "append" publishes rows once they are final; "changes" publishes each change of a row, and a
        record without value for a `_deleted` one. Functions that read the stream see its `event_time`.
        """
        called = Location.of_caller()

        def declare(function: F) -> F:
            where, name, inputs = _function(called, function, "stream")
            definition = Stream(
                name=name,
                where=where,
                inputs=inputs,
                function=function,
                key=options.some_columns(where, "key", key),
                mode=options.choice(where, "mode", mode, StreamMode),
                format=options.choice(where, "format", format, StreamFormat),
                partitions=options.count(where, "partitions", partitions),
                event_time=event_time,
                lateness_ms=options.duration(where, "lateness", lateness),
                idle_ms=options.duration(where, "idle", idle, zero=False),
            )
            _refuse_untimed(definition, lateness=lateness)
            self._add(definition)
            return function

        return declare

    @declaration
    def alert(self, *, to: str, secret_env: str | None = None) -> Callable[[F], F]:
        """Declare that a function's rows are sent to the address `to`.

        They are signed with the secret that the environment variable `secret_env` holds.
        """
        called = Location.of_caller()

        def declare(function: F) -> F:
            where, name, inputs = _function(called, function, "alert")
            address = options.web_address(where, "to", to)
            variable = options.variable(where, "secret_env", secret_env)
            self._add(Alert(name, where, inputs, function, address, variable))
            return function

        return declare

    @declaration
    def sink(self, *, of: str, key: str | Sequence[str]) -> Callable[[F], F]:
        """Declare that a function is called with lists of the rows `of` a topic, stream or view.

        It is called at least once for each row; the `id` of a `Delivery`, made of `key`, tells repetitions.
        """
        called = Location.of_caller()

        def declare(function: F) -> F:
            where = location(function) if callable(function) else called
            name = name_of(where, function, "sink")
            refuse_unless_one_list(where, function)
            read = options.one_name(where, "of", of)
            self._add(Sink(name, where, (read,), function, options.some_columns(where, "key", key)))
            return function

        return declare

    def check(self) -> None:
        """Refuse an application whose parts do not fit together."""
        graph.check(self)
        clocks.check(self)

    def ordered(self) -> list[Function]:
        """Return the functions, each after those that it reads."""
        return graph.ordered(self)

    def _add(self, definition: Definition) -> None:
        problem = names.problem_with(definition.name)
        if problem:
            raise AppError(definition.where, problem, "choose another")
        for other in self.definitions.values():
            if names.collision_key(other.name) == names.collision_key(definition.name):
                same = "" if other.name == definition.name else " ('.' and '_' are the same in metrics)"
                problem = f"{definition.name} is declared already: the {other.kind} {other.name}, {other.where}{same}"
                raise AppError(definition.where, problem, "rename one of them")
        self.definitions[definition.name] = definition


def _function(called: Location, function: F, decorator: str) -> tuple[Location, str, tuple[str, ...]]:
    where = location(function) if callable(function) else called
    name = name_of(where, function, decorator)
    return where, name, inputs_of(where, function)


def _corrections(where: Location, late: Late, corrections: str | None) -> int:
    if late == "correct" and corrections is None:
        fix = 'say for how long, as in corrections="1 hour"'
        raise AppError(where, 'late="correct" without corrections', fix)
    if late != "correct" and corrections is not None:
        raise AppError(where, f'corrections={corrections!r} with late="{late}"', 'add late="correct"')
    return 0 if corrections is None else options.duration(where, "corrections", corrections, zero=False)


def _refuse_untimed(definition: Topic | Stream, *, lateness: str) -> None:
    """Refuse options about lateness where there is no event time to be late by."""
    if definition.event_time is not None:
        return
    given = f"lateness={lateness!r}" if definition.lateness_ms else ""
    if isinstance(definition, Topic) and definition.late != "drop":
        given = f'late="{definition.late}"'
    if given:
        fix = 'name the column that holds the time, as in event_time="placed_at"'
        raise AppError(definition.where, f"{definition.name} has {given} and no event_time", fix)
