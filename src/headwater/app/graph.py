"""What reads what: every input is there, may be read, and nothing reads itself in the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.app import options
from headwater.app.definitions import Alert, Function, Sink, Stream, Table, Topic, View
from headwater.app.errors import AppError, did_you_mean

if TYPE_CHECKING:
    from headwater.app.application import App


def check(app: App) -> None:
    """Refuse names that nothing bears, reads that cannot be, and what reads itself in the end."""
    for function in ordered(app):
        read = app.definitions[function.inputs[0]]
        if isinstance(function, Sink) and isinstance(read, Topic):
            columns = [*(field.name for field in read.fields), *read.metadata]
            options.in_columns(function.where, "key", function.key, columns)
    _refuse_dead_letters(app)


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


def _readable(app: App, function: Function, name: str) -> Topic | Stream | View:
    definition = app.definitions.get(name)
    match definition:
        case Topic() | Stream():
            return definition
        case View() if isinstance(function, Sink):
            return definition
        case None:
            raise _unknown(app, function, name)
        case Table():
            problem = f"{function.name} reads the table {name}, and tables cannot be read yet"
            raise AppError(function.where, problem, "read a topic or stream")
        case View():
            problem = f"{function.name} reads the view {name}, and a view is only served"
            raise AppError(function.where, problem, f"declare {name} with @app.stream to read it")
        case Alert() | Sink():
            problem = f"{function.name} reads the {definition.kind} {name}, which holds no rows"
            raise AppError(function.where, problem, "read a topic or stream")


def _unknown(app: App, function: Function, name: str) -> AppError:
    known = [each.name for each in app.definitions.values() if isinstance(each, Topic | Stream)]
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
