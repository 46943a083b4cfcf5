"""What reads what: every input is there, may be read, and nothing reads itself in the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.app import options
from headwater.app.definitions import (
    Alert,
    Cache,
    Derived,
    Function,
    Index,
    Sink,
    Stream,
    Table,
    Topic,
    View,
    Warehouse,
)
from headwater.app.errors import AppError, did_you_mean

if TYPE_CHECKING:
    from headwater.app.application import App


def check(app: App) -> None:
    """Refuse names that nothing bears, reads that cannot be, and what reads itself in the end."""
    for function in ordered(app):
        read = app.definitions[function.inputs[0]]
        if isinstance(function, Sink) and isinstance(read, Topic | Table) and read.fields:
            more = read.metadata if isinstance(read, Topic) else options.CHANGE
            columns = [*(field.name for field in read.fields), *more]
            options.in_columns(function.where, "key", function.key, columns)
    for store in app.derived():
        _check_derived(app, store)
    _refuse_dead_letters(app)


def check_webhooks(app: App) -> None:
    """Refuse webhooks into what is no topic of the application, or none of JSON."""
    for hook in app.webhooks.values():
        topic = app.definitions.get(hook.topic)
        if not isinstance(topic, Topic):
            known = [each.name for each in app.definitions.values() if isinstance(each, Topic)]
            problem = f"the webhook {hook.name} writes to {hook.topic}, which is no declared topic"
            fix = f"the topics are {', '.join(known)}" if known else "declare it with app.topic"
            raise AppError(hook.where, problem + did_you_mean(hook.topic, known), fix)
        if topic.format != "json":
            problem = f"the webhook {hook.name} writes JSON, and the topic {hook.topic} holds {topic.format}"
            raise AppError(hook.where, problem, 'declare the topic with format="json"')


def ordered(app: App) -> list[Function]:
    """Return the functions, each after those that it reads, otherwise in the order of their declaration."""
    done: dict[str, Function] = {}
    for definition in app.definitions.values():
        if isinstance(definition, Function):
            _visit(app, definition, [], done)
    return list(done.values())


def _visit(app: App, function: Function, path: list[str], done: dict[str, Function]) -> None:
    if function.name in done:
        return
    if function.name in path:
        cycle = " → ".join([*path[path.index(function.name) :], function.name])
        fix = "let one of them read a topic instead of the next"
        raise AppError(function.where, f"{function.name} reads itself in the end: {cycle}", fix)
    for name in function.inputs:
        read = _readable(app, function, name)
        if isinstance(read, Function):
            _visit(app, read, [*path, function.name], done)
    done[function.name] = function


def _readable(app: App, function: Function, name: str) -> Topic | Table | Stream | View:
    definition = app.definitions.get(name)
    match definition:
        case Topic() | Table() | Stream():
            return definition
        case View() if isinstance(function, Sink):
            return definition
        case None:
            raise _unknown(app, function, name)
        case View():
            problem = f"{function.name} reads the view {name}, and a view is only served"
            raise AppError(function.where, problem, f"declare {name} with @app.stream to read it")
        case Index() | Cache() | Warehouse():
            problem = f"{function.name} reads the {definition.kind} {name}, which is of {definition.of}"
            raise AppError(function.where, problem, f"read {definition.of}")
        case Alert() | Sink():
            problem = f"{function.name} reads the {definition.kind} {name}, which holds no rows"
            raise AppError(function.where, problem, "read a topic or stream")


def _check_derived(app: App, store: Derived) -> None:
    """Refuse a store of what does not tell its rows by key, and columns that it does not have."""
    read = app.definitions.get(store.of)
    match read:
        case Table():
            columns = [field.name for field in read.fields]
            if not isinstance(store, Cache) and store.schema is not None:
                fix = f"leave schema out: {store.of} has its columns"
                raise AppError(
                    store.where, f"{store.name} has a schema, and so has the table {store.of}", fix
                )
        case Stream(mode="changes"):
            if not isinstance(store, Cache) and store.schema is None:
                problem = f"{store.name} is of the stream {store.of}, whose columns only Spark knows"
                raise AppError(store.where, problem, 'write them, as in schema="id bigint, name string"')
            columns = [] if isinstance(store, Cache) else [field.name for field in store.fields]
            if columns:
                options.in_columns(store.where, "the stream's key", read.key, columns)
        case None:
            known = [each.name for each in app.definitions.values() if isinstance(each, Table | Stream)]
            problem = f"{store.name} is of {store.of}, which is not declared{did_you_mean(store.of, known)}"
            raise AppError(
                store.where, problem, f"name a table, as in {' or '.join(known) or 'app.table(…)'}"
            )
        case _:
            problem = f"{store.name} is of the {read.kind} {store.of}, which does not hold rows by key"
            raise AppError(store.where, problem, 'name a table, or a stream with mode="changes"')
    if isinstance(store, Warehouse):
        kept = ("_key", *options.CHANGE, *options.WAREHOUSE) if store.engine == "spark" else ("_key",)
        for name in columns:
            if name.lower() in kept:
                problem = f"{store.of} has a column {name}, which the warehouse {store.name} keeps for itself"
                raise AppError(store.where, problem, "rename it")
    if isinstance(store, Index) and columns:
        options.in_columns(store.where, "text", store.text, columns)


def _unknown(app: App, function: Function, name: str) -> AppError:
    known = [each.name for each in app.definitions.values() if isinstance(each, Topic | Table | Stream)]
    problem = f"{function.name} reads {name}, which is not declared"
    for other in known:
        if re.sub(r"\W", "_", other) == name:
            problem += f" ({other} has a name that no parameter can have)"
            return AppError(
                function.where, problem, "only topics whose names are names in Python can be read yet"
            )
    fix = f"there {'are' if len(known) > 1 else 'is'} {', '.join(known)}" if known else "declare it"
    return AppError(function.where, problem + did_you_mean(name, known), fix)


def _refuse_dead_letters(app: App) -> None:
    """Refuse the application's dead letters as a topic: one that cannot be read would come back for ever."""
    topic = app.definitions.get(app.dead_letters)
    if topic is not None:
        problem = (
            f"{topic.name} is where the records go that {app.name} cannot read, those of {topic.name} too"
        )
        raise AppError(topic.where, problem, "read it in an application of its own")
