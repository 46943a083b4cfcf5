"""`headwater check`: whether an application is sound, and what reads what in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import json_option, print_json, wants_json

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from headwater.app import App, Definition


@click.command("check")
@click.argument("path", metavar="APP", type=click.Path())
@json_option
def check_command(path: str, as_json: bool) -> None:
    """Load an application and print its graph; nothing is started.

    APP is the Python file that makes the App. What is wrong with it is said with the line and the fix, and
    the status is 1.
    """
    from headwater.app import load

    app = load(path)
    if wants_json(as_json):
        print_json(_document(app))
        return
    from rich.console import Console

    Console(markup=False, highlight=False).print(_tree(app))


def _document(app: App) -> dict[str, Any]:
    from dataclasses import asdict

    definitions = [_fields(each) for each in app.definitions.values()]
    return {
        "app": app.name,
        "where": str(app.where),
        "dead_letters": app.dead_letters,
        "definitions": definitions,
        "webhooks": [asdict(hook) | {"where": str(hook.where)} for hook in app.webhooks.values()],
    }


def _fields(definition: Definition) -> dict[str, Any]:
    from dataclasses import fields

    from headwater.app import Table, Topic, schema

    values = {field.name: getattr(definition, field.name) for field in fields(definition)}
    values.pop("function", None)
    if values.pop("fields", None) and isinstance(definition, Topic | Table):
        values["schema"] = schema.text(definition.fields)
    for name in values.keys() & {"source", "to", "url"}:
        values[name] = values[name] and _without_password(values[name])
    return {"kind": definition.kind, **values, "where": str(definition.where)}


def _tree(app: App) -> Tree:
    """Return topics with the functions that read them below, and below streams those that read these."""
    from rich.text import Text
    from rich.tree import Tree

    from headwater.app import Table, Topic

    title = Text.assemble((app.name, "bold"), (f"  {app.where}", "dim"))
    tree = Tree(title, guide_style="dim")
    shown: set[str] = set()
    for definition in app.definitions.values():
        if isinstance(definition, Topic | Table):
            _grow(tree, app, definition, shown)
    return tree


def _grow(tree: Tree, app: App, definition: Definition, shown: set[str]) -> None:
    from rich.text import Text

    from headwater.app import Table, Topic

    branch = tree.add(_label(definition, again=definition.name in shown))
    if definition.name in shown:
        return
    shown.add(definition.name)
    for function in app.ordered():
        if definition.name in function.inputs:
            _grow(branch, app, function, shown)
    for store in app.derived():
        if store.of == definition.name:
            _grow(branch, app, store, shown)
    if isinstance(definition, Topic | Table) and not branch.children:
        branch.add(Text("read by nothing", "dim"))
    for hook in app.webhooks.values():
        if hook.topic == definition.name:
            told = (f"  writes here, scheme {hook.scheme}", "dim")
            branch.add(Text.assemble(("webhook ", "cyan"), (hook.name, "bold"), told))


def _label(definition: Definition, *, again: bool) -> Text:
    from rich.text import Text

    details = ["see above"] if again else _details(definition)
    kind, name = (f"{definition.kind} ", "cyan"), (definition.name, "bold")
    return Text.assemble(kind, name, ("  " + ", ".join(details), "dim"))


def _details(definition: Definition) -> list[str]:
    """Return what a person wants to see of a definition: what differs from one to the next."""
    from headwater.app import Alert, Cache, Derived, Index, Stream, Table, Topic, Warehouse, durations

    details = []
    inputs: tuple[str, ...] = getattr(definition, "inputs", ())
    if len(inputs) > 1:
        details.append(f"reads {' and '.join(inputs)}")
    if not isinstance(definition, Alert | Derived) and definition.key:
        details.append(f"key {' and '.join(definition.key)}")
    if isinstance(definition, Topic | Stream | Table) and definition.event_time:
        details.append(f"event time {definition.event_time}")
        details.append(f"lateness {durations.text(definition.lateness_ms)}")
        if isinstance(definition, Topic) and definition.ahead_ms is not None:
            details.append(f"ahead {durations.text(definition.ahead_ms)}")
    match definition:
        case Topic(late="aside"):
            details.append(f"late ones set aside in {definition.name}.late")
        case Topic(late="correct"):
            details.append(f"late ones correct for {durations.text(definition.corrections_ms)}")
        case Table(source=str(source)):
            details.append(f"from {_without_password(source)}")
        case Alert():
            details.append(f"to {_without_password(definition.to)}")
            if definition.throttle_ms is not None:
                by = f" by {' and '.join(definition.group_by)}" if definition.group_by else ""
                details.append(f"throttle {durations.text(definition.throttle_ms)}{by}")
            if definition.digest_ms is not None:
                details.append(f"digest {durations.text(definition.digest_ms)}")
        case Index():
            details.append(f"words of {' and '.join(definition.text)}")
        case Cache():
            details.append(
                "in a file" if definition.url is None else f"in {_without_password(definition.url)}"
            )
        case Warehouse():
            details.append(f"every {durations.text(definition.every_ms)}")
            details.append("by Spark" if definition.engine == "spark" else "without Spark")
    if isinstance(definition, Table):
        details.append(f"envelope {definition.envelope}")
    mode = getattr(definition, "mode", None)
    if mode is not None:
        details.append(f"mode {mode}")
    if isinstance(definition, Topic | Stream) and definition.format != "json":
        details.append(f"format {definition.format}")
    return details


def _without_password(url: str) -> str:
    import re

    return re.sub(r"(://[^/@:]*):[^/]*@", r"\1:***@", url)
