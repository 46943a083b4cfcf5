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
    Cache,
    Definition,
    Derived,
    Engine,
    Envelope,
    Format,
    Function,
    Index,
    Late,
    Lost,
    Scheme,
    Sink,
    SourceKind,
    Stream,
    StreamFormat,
    StreamMode,
    Table,
    Topic,
    View,
    ViewMode,
    Warehouse,
    Webhook,
)
from headwater.app.errors import AppError, Location
from headwater.app.functions import inputs_of, location, name_of, refuse_unless_one_list

_LONGEST_TOLERANCE_MS = 12 * 3600 * 1000
"""What was received is known for a day, and a signed time may be off in either direction."""

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
        self.webhooks: dict[str, Webhook] = {}

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
        ahead: str | None = None,
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
        as `corrections` says. A partition without records for `idle` does not hold time back, and an event whose
        time is more than `ahead` after that of its record does not move it: it is dropped or set aside, too.
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
            ahead_ms=_span(where, "ahead", ahead),
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
        _refuse_untimed(definition, lateness=lateness, ahead=ahead)
        self._add(definition)
        return definition

    @declaration
    def table(
        self,
        name: str,
        schema: str | None = None,
        *,
        key: str | Sequence[str],
        source: str | None = None,
        envelope: Envelope | None = None,
        event_time: str | None = None,
        lateness: str = "0 seconds",
        idle: str = "1 minute",
        partitions: int | None = None,
        lost: Lost = "fail",
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Table:
        """Declare a table that functions read: the changes of its rows, from the compacted topic of its name.

        With `source`, the address of a table in a database, change data capture writes that topic, in the
        envelope "debezium"; without, somebody else does, and "flat" values are the rows themselves. A change
        counts from its record's time on, or from that which the envelope or the column `event_time` has.
        """
        where = Location.of_caller()
        keys = options.some_columns(where, "key", key)
        chosen = ("flat" if source is None else "debezium") if envelope is None else envelope
        definition = Table(
            name=name,
            where=where,
            key=keys,
            source=None if source is None else options.address(where, "source", source),
            envelope=options.choice(where, "envelope", chosen, Envelope),
            event_time=event_time,
            lateness_ms=options.duration(where, "lateness", lateness),
            idle_ms=options.duration(where, "idle", idle, zero=False),
            partitions=options.count(where, "partitions", partitions),
            lost=options.choice(where, "lost", lost, Lost),
            max_rows=options.count(where, "max_rows", max_rows),
            max_bytes=options.count(where, "max_bytes", max_bytes),
        )
        if schema is not None:
            definition = options.with_schema(definition, schema)
        elif source is None:
            problem = f"{name} has neither a schema nor a database that knows its columns"
            raise AppError(where, problem, 'write its columns, as in app.table(…, "id bigint, name string")')
        self._add(definition)
        return definition

    def resolve_table(self, name: str, schema: str) -> None:
        """Give a table that was declared without schema the columns that its database has."""
        definition = self.definitions[name]
        if not isinstance(definition, Table):
            raise TypeError(f"{name} is a {definition.kind}")
        self.definitions[name] = options.with_schema(definition, schema)

    @declaration
    def view(
        self,
        *,
        key: str | Sequence[str],
        mode: ViewMode = "rows",
        ttl: str | None = None,
        indexes: str | Sequence[str] = (),
        history: str | None = None,
    ) -> Callable[[F], F]:
        """Declare that a function's rows are served by `key`; with mode "changes", `_deleted` ones go.

        A row leaves the view when it was not written for `ttl`. Filters and orders by a column of `indexes`
        do not look at every row. With `history`, the view can be read as it was, that far back.
        """
        called = Location.of_caller()

        def declare(function: F) -> F:
            where, name, inputs = _function(called, function, "view")
            keys = options.some_columns(where, "key", key)
            checked = options.choice(where, "mode", mode, ViewMode)
            definition = View(
                name=name,
                where=where,
                inputs=inputs,
                function=function,
                key=keys,
                mode=checked,
                ttl_ms=_span(where, "ttl", ttl),
                indexes=options.columns(where, "indexes", indexes),
                history_ms=_span(where, "history", history),
            )
            self._add(definition)
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
    def alert(
        self,
        *,
        to: str,
        secret_env: str | None = None,
        group_by: str | Sequence[str] = (),
        throttle: str | None = None,
        digest: str | None = None,
    ) -> Callable[[F], F]:
        """Declare that a function's rows are sent to people, at the address `to`.

        That is a URL, "mailto:ops@example.com", or "browser:" for those who have the page open. Requests are
        signed with the secret that the environment variable `secret_env` holds. With a `throttle`, rows with the
        same `group_by` are one incident: the first is sent at once, those of the time that follows as one
        summary. A `digest` collects rows for one e-mail.
        """
        called = Location.of_caller()

        def declare(function: F) -> F:
            where, name, inputs = _function(called, function, "alert")
            definition = Alert(
                name=name,
                where=where,
                inputs=inputs,
                function=function,
                to=options.alert_address(where, "to", to),
                secret_env=options.variable(where, "secret_env", secret_env),
                group_by=options.columns(where, "group_by", group_by),
                throttle_ms=_span(where, "throttle", throttle),
                digest_ms=_span(where, "digest", digest),
            )
            _refuse_unfit(definition)
            self._add(definition)
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

    @declaration
    def index(self, name: str, *, of: str, text: str | Sequence[str], schema: str | None = None) -> Index:
        """Declare a search index of the rows `of` a table, kept in step with it.

        The columns of `text` are searched by their words and ranked, the others by their values. A stream with
        mode "changes" serves too; its columns are given as `schema`.
        """
        where = Location.of_caller()
        words = options.some_columns(where, "text", text)
        fields = () if schema is None else options.schema(where, schema)
        definition = Index(name, where, options.one_name(where, "of", of), words, schema, fields)
        self._add(definition)
        return definition

    @declaration
    def cache(self, name: str, *, of: str, url: str | None = None) -> Cache:
        """Declare a cache of the rows `of` a table by key, kept in step with it: in a Redis, or in a file."""
        where = Location.of_caller()
        address = None if url is None else options.address(where, "url", url)
        if address is not None and not address.startswith(("redis://", "rediss://")):
            problem = f"url={address.partition('://')[0]}://… is no address of a Redis"
            raise AppError(where, problem, 'write url="redis://HOST:PORT/0", or nothing for a file')
        definition = Cache(name, where, options.one_name(where, "of", of), address)
        self._add(definition)
        return definition

    @declaration
    def warehouse(
        self,
        name: str,
        *,
        of: str,
        path: str | None = None,
        every: str = "10 seconds",
        schema: str | None = None,
        engine: Engine = "spark",
    ) -> Warehouse:
        """Declare Parquet files of the rows `of` a table, kept in step with it.

        Changes are gathered for as long as `every` says. A stream with mode "changes" serves too; its columns
        are given as `schema`. The files are written by Spark, in `headwater run`; with the engine "process" by
        `headwater derived run`, without Spark.
        """
        where = Location.of_caller()
        fields = () if schema is None else options.schema(where, schema)
        every_ms = options.duration(where, "every", every)
        by = options.choice(where, "engine", engine, Engine)
        read = options.one_name(where, "of", of)
        definition = Warehouse(name, where, read, path, every_ms, schema, fields, by)
        self._add(definition)
        return definition

    def derived(self) -> list[Derived]:
        """Return the indexes, caches and warehouses."""
        return [each for each in self.definitions.values() if isinstance(each, Derived)]

    def spark_warehouses(self) -> list[Warehouse]:
        """Return the warehouses that Spark writes, which are queries like the functions."""
        return [each for each in self.derived() if isinstance(each, Warehouse) and each.engine == "spark"]

    @declaration
    def webhook(
        self,
        name: str,
        *,
        topic: str,
        secret_env: str,
        scheme: Scheme = "headwater",
        key: str | None = None,
        tolerance: str = "5 minutes",
    ) -> Webhook:
        """Declare that others post messages to `/hooks/NAME`, which go to a topic.

        Each is signed with the secret that the environment variable `secret_env` holds, in the way of the
        `scheme`. A signed time may be off by `tolerance`, and what comes again within a day is absorbed.
        """
        where = Location.of_caller()
        problem = names.problem_with(name)
        if problem:
            raise AppError(where, problem, "choose another")
        if name in self.webhooks:
            problem = f"the webhook {name} is declared already, {self.webhooks[name].where}"
            raise AppError(where, problem, "rename one of them")
        variable = options.variable(where, "secret_env", secret_env)
        if variable is None:
            raise AppError(where, f"the webhook {name} has no secret", 'name one, secret_env="HOOK_SECRET"')
        definition = Webhook(
            name=name,
            where=where,
            topic=options.one_name(where, "topic", topic),
            secret_env=variable,
            scheme=options.choice(where, "scheme", scheme, Scheme),
            key=None if key is None else options.some_columns(where, "key", key)[0],
            tolerance_ms=options.duration(where, "tolerance", tolerance, zero=False),
        )
        if definition.tolerance_ms > _LONGEST_TOLERANCE_MS:
            problem = f"the webhook {name} would believe signatures after it has forgotten the messages"
            raise AppError(where, problem, "let tolerance be at most 12 hours")
        self.webhooks[name] = definition
        return definition

    def check(self) -> None:
        """Refuse an application whose parts do not fit together."""
        graph.check(self)
        graph.check_webhooks(self)
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


def _span(where: Location, option: str, value: str | None) -> int | None:
    return None if value is None else options.duration(where, option, value, zero=False)


def _corrections(where: Location, late: Late, corrections: str | None) -> int:
    if late == "correct" and corrections is None:
        fix = 'say for how long, as in corrections="1 hour"'
        raise AppError(where, 'late="correct" without corrections', fix)
    if late != "correct" and corrections is not None:
        raise AppError(where, f'corrections={corrections!r} with late="{late}"', 'add late="correct"')
    return 0 if corrections is None else options.duration(where, "corrections", corrections, zero=False)


def _refuse_unfit(alert: Alert) -> None:
    """Refuse options that say nothing about messages to such an address, or do not go together."""
    if alert.group_by and alert.throttle_ms is None:
        problem = f"{alert.name} has group_by and no throttle"
        raise AppError(alert.where, problem, 'say how long an incident is quiet, as in throttle="15 minutes"')
    mail, web = alert.to.startswith("mailto:"), alert.to.startswith("http")
    if alert.digest_ms is not None and not mail:
        problem = f"{alert.name} has a digest and sends no e-mail"
        raise AppError(alert.where, problem, 'use throttle="15 minutes", or to="mailto:ops@example.com"')
    if alert.digest_ms is not None and alert.throttle_ms is not None:
        problem = f"{alert.name} has a digest and a throttle"
        raise AppError(alert.where, problem, "choose one: a digest is one e-mail for all rows of its time")
    if alert.secret_env is not None and not web:
        problem = f"{alert.name} has secret_env, and only requests to an http or https address are signed"
        raise AppError(alert.where, problem, "leave it out")


def _refuse_untimed(definition: Topic | Stream, *, lateness: str, ahead: str | None = None) -> None:
    """Refuse options about lateness where there is no event time to be late by."""
    if definition.event_time is not None:
        return
    given = f"lateness={lateness!r}" if definition.lateness_ms else ""
    if ahead is not None:
        given = f"ahead={ahead!r}"
    if isinstance(definition, Topic) and definition.late != "drop":
        given = f'late="{definition.late}"'
    if given:
        fix = 'name the column that holds the time, as in event_time="placed_at"'
        raise AppError(definition.where, f"{definition.name} has {given} and no event_time", fix)
