"""`headwater events`: the history of streams, their states, and what is derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.output import json_option, note, print_rows
from headwater.cli.shared_options import broker_url_option

if TYPE_CHECKING:
    from headwater.events import EventStore, Upcasters
    from headwater.events.follow import Progress

C = TypeVar("C", bound=Callable[..., Any])


def _options(command: C) -> C:
    """Give a command the options that say where a store is; it gets `broker` and `data`."""
    broker = broker_url_option("The broker, Headwater's or Kafka's.")
    data = click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default="headwater-data/events",
        show_default=True,
        metavar="DIR",
        help="The directory of the stores' indexes; it is made where it is missing.",
    )
    return broker(data(command))


@click.group("events")
def events_command() -> None:
    """Show streams of the event store, and rebuild what is derived from them."""


@events_command.command("list")
@click.argument("store", metavar="STORE")
@json_option
@_options
def list_command(store: str, broker: str, data: Path, as_json: bool) -> None:
    """List the streams of a store, and how many events each has."""
    with _opened(broker, store, data) as opened:
        rows = [{"stream": f"{store}/{name}", "version": version} for name, version in _streams(opened)]
        print_rows(rows, ["stream", "version"], as_json=as_json)
        if opened.skipped:
            note(f"{opened.skipped} records of the topic are no events, and were left out.")


@events_command.command("show")
@click.argument("stream", metavar="STORE/STREAM")
@json_option
@_options
def show_command(stream: str, broker: str, data: Path, as_json: bool) -> None:
    """Show a stream's history: each event, when it was stored, and what caused it."""
    name, key = _split(stream)
    with _opened(broker, name, data) as opened:
        rows = [event.as_dict() for event in opened.read(key)]
        if not rows:
            raise click.ClickException(f"the stream {stream} has no events")
        columns = [
            "version",
            "time",
            "type",
            "data",
            "command_id",
            "causation_id",
            "correlation_id",
            "metadata",
        ]
        shown = [column for column in columns if any(column in row for row in rows)]
        print_rows(rows, shown, as_json=as_json)


@events_command.command("state")
@click.argument("stream", metavar="STORE/STREAM")
@click.option(
    "--by",
    required=True,
    metavar="FILE:NAME",
    help="The class or function that folds events into state, like bank.py:Account.",
)
@json_option
@_options
def state_command(stream: str, by: str, broker: str, data: Path, as_json: bool) -> None:
    """Show a stream's state at each version.

    The upcasters that FILE makes are applied.
    """
    name, key = _split(stream)
    fold, upcasters = _load(by)
    with _opened(broker, name, data, upcasters) as opened:
        aggregates = opened.aggregates(fold)
        rows = [
            {"version": event.version, "type": event.type, "state": _plain(state)}
            for event, state in aggregates.history(key)
        ]
        if not rows:
            raise click.ClickException(f"the stream {stream} has no events")
        print_rows(rows, ["version", "type", "state"], as_json=as_json)


@events_command.command("trace")
@click.argument("store", metavar="STORE")
@click.argument("correlation_id", metavar="CORRELATION")
@json_option
@_options
def trace_command(store: str, correlation_id: str, broker: str, data: Path, as_json: bool) -> None:
    """Show the events of one conversation, over all streams of a store."""
    with _opened(broker, store, data) as opened:
        rows = [
            {"stream": f"{store}/{event.stream}", **event.as_dict()}
            for event in opened.correlated(correlation_id)
        ]
        print_rows(rows, ["time", "stream", "version", "type", "id", "causation_id"], as_json=as_json)


@events_command.command("erase")
@click.argument("store", metavar="STORE")
@click.argument("subject", metavar="SUBJECT")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_options
def erase_command(store: str, subject: str, yes: bool, broker: str, data: Path) -> None:
    """Erase the personal data about somebody from all events of a store, for good.

    SUBJECT is whom the data are about: a stream's name, unless the events say otherwise. The events stay, without
    those data.
    """
    with _opened(broker, store, data) as opened:
        if not yes:
            click.confirm(f"Erase the personal data about {subject} for good?", abort=True, err=True)
        count = opened.erase(subject)
    if not count:
        raise click.ClickException(f"no event of {store} has personal data about {subject}")
    note(
        f"Erased the personal data about {subject}: {count:,} event{'' if count == 1 else 's'}. What was derived from "
        "them before stays: rebuild projections and views that hold such data."
    )


@events_command.command("rebuild-index")
@click.argument("store", metavar="STORE")
@_options
def rebuild_index_command(store: str, broker: str, data: Path) -> None:
    """Throw the index of a store away, and make it anew from the log."""
    from headwater.events.index_file import discard
    from headwater.events.store import index_path

    discard(index_path(data, store))
    with (
        _progress(f"index of {store}") as progress,
        _opened(broker, store, data, progress=progress) as opened,
    ):
        count = opened.index.count()
        skipped = opened.skipped
    left_out = f"; {skipped} records that are none were left out" if skipped else ""
    note(f"Rebuilt the index of {store}: {count:,} events{left_out}.")


@events_command.command("rebuild-projection")
@click.argument("store", metavar="STORE")
@click.argument("function", metavar="FILE:NAME")
@_options
def rebuild_projection_command(store: str, function: str, broker: str, data: Path) -> None:
    """Make the rows of a projection anew, while the old ones are served until the new have caught up.

    NAME is the projection's function in FILE; the upcasters that FILE makes are applied.
    """
    from headwater.events import Projection

    project, upcasters = _load(function)
    with _opened(broker, store, data, upcasters) as opened:
        projection = Projection(opened, project, directory=data)
        try:
            with _progress(f"projection {projection.name}") as progress:
                count = projection.rebuild(progress)
        finally:
            projection.close()
    note(f"Rebuilt the projection {projection.name} of {store}: {count:,} events.")


def _split(stream: str) -> tuple[str, str]:
    store, slash, key = stream.partition("/")
    if not slash or not store or not key:
        raise click.UsageError(f"{stream!r} is not STORE/STREAM, like accounts/ann.")
    return store, key


@contextmanager
def _opened(
    broker: str,
    store: str,
    data: Path,
    upcasters: Upcasters | None = None,
    progress: Progress | None = None,
) -> Iterator[EventStore]:
    """Give a store that is there already: a name that was mistyped is not to make one."""
    from headwater.client import Cluster, UnknownTopic
    from headwater.core.urls import KafkaUrl
    from headwater.events import EventStore

    url = KafkaUrl.parse(broker)
    cluster = Cluster(url, "headwater-cli", deadline_seconds=5)
    try:
        cluster.topic(store)
    except UnknownTopic:
        raise click.ClickException(
            f"there is no event store named {store} at {url.bootstrap}: the first to append to it makes it"
        ) from None
    finally:
        cluster.close()
    with EventStore(url, store, directory=data, upcasters=upcasters, progress=progress) as opened:
        yield opened


def _streams(store: EventStore) -> Iterator[tuple[str, int]]:
    after = ""
    while page := store.streams(after):
        yield from page
        after = page[-1][0]


def _load(text: str) -> tuple[Any, Upcasters | None]:
    """Return what FILE:NAME stands for, and the upcasters that the file makes."""
    import importlib.util
    import sys

    from headwater.events import Upcasters

    file, colon, name = text.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        raise click.UsageError(f"{text!r} is not FILE:NAME of a Python file, like bank.py:Account.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{file} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise click.ClickException(f"{file} has no class or function {name}")
    upcasters = [value for value in vars(module).values() if isinstance(value, Upcasters)]
    return found, upcasters[0] if upcasters else None


def _plain(state: Any) -> Any:
    """Return a state as JSON can show it, as it is now."""
    import copy

    return copy.deepcopy(vars(state) if hasattr(state, "__dict__") else state)


@contextmanager
def _progress(title: str) -> Iterator[Progress]:
    """Show a bar on a terminal; elsewhere, nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
