"""`headwater views`: the views of a store, their rows, and a view built anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import Assignment, PartitionOffset
from headwater.cli.output import json_option, print_json, print_rows
from headwater.cli.shared_options import (
    app_argument,
    broker_url_option,
    data_option,
    existing_views,
    log_level_option,
    master_option,
    views_option,
    views_url,
)

if TYPE_CHECKING:
    from headwater.pipeline.rebuild import Rebuilding
    from headwater.views import ViewStore


@contextmanager
def _existing_view(views: str | None, data: Path, view: str) -> Iterator[ViewStore]:
    """Open the store of a view, and say how to find those there are where that one is not there."""
    from headwater.views import UnknownView

    with existing_views(views, data) as store:
        try:
            yield store
        except UnknownView as error:
            raise click.ClickException(f"{error}: headwater views list shows them") from None


@click.group("views")
def views_command() -> None:
    """List views, show their rows, and build one anew from its topics."""


@views_command.command("list")
@data_option
@views_option
@json_option
def list_command(data: Path, views: str | None, as_json: bool) -> None:
    """List the views of a store."""
    from headwater.app.durations import text
    from headwater.views import ALERT, OWN

    with existing_views(views, data) as store:
        store.expire()
        found = [
            {
                "view": view.name,
                "key": list(view.key),
                "rows": store.count(view.name),
                "changes": store.token(view.name),
                "ttl": text(view.ttl_ms) if view.ttl_ms is not None else None,
                "indexes": list(view.indexes),
                "history": text(view.history_ms) if view.history_ms is not None else None,
            }
            for view in store.definitions()
            if not view.name.startswith((ALERT, OWN))
        ]
    print_rows(found, ["view", "key", "rows", "changes", "ttl", "indexes", "history"], as_json=as_json)


@views_command.command("show")
@click.argument("view")
@click.argument("key", required=False)
@click.option(
    "--where", type=Assignment(), multiple=True, help="A column's value; may be given several times."
)
@click.option("--order", metavar="COLUMN", help="Sort by a column, -COLUMN downwards.  [default: by key]")
@click.option("--limit", default=100, show_default=True, help="How many rows at most.")
@click.option(
    "--at", metavar="TIME", help="As it was then, like 2026-01-31T14:00:00Z, where it has a history."
)
@click.option("--history", is_flag=True, help="What the row of KEY was, newest first.")
@data_option
@views_option
@json_option
def show_command(
    view: str,
    key: str | None,
    where: tuple[tuple[str, str], ...],
    order: str | None,
    limit: int,
    at: str | None,
    history: bool,
    data: Path,
    views: str | None,
    as_json: bool,
) -> None:
    """Show the rows of VIEW, or the one of KEY."""
    from headwater.views import Query, iso

    if history and key is None:
        raise click.UsageError("--history is of one row: give its KEY")
    query = Query(
        where=dict(where),
        order=order.removeprefix("-") if order else None,
        descending=bool(order and order.startswith("-")),
        at=_milliseconds(at) if at else None,
        limit=limit,
    )
    with _existing_view(views, data, view) as store:
        store.expire()
        if history:
            versions = store.history(view, key or "", limit)
            rows: list[dict[str, Any]] = [
                {"since": iso(each.since), "until": each.until and iso(each.until), **json.loads(each.row)}
                for each in versions
            ]
        elif key is not None and at is None:
            row = store.row(view, key)
            if row is None:
                raise click.ClickException(f"the view {view} has no row with the key {key}")
            print_json(json.loads(row.row))
            return
        else:
            found = store.read(view, query).rows
            rows = [json.loads(each.row) for each in found if key in (None, each.key)]
    columns = dict.fromkeys(column for each in rows for column in each)
    print_rows(rows, list(columns), as_json=as_json)


@views_command.command("rebuild")
@app_argument
@click.argument("view")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="earliest|TIME",
    help="Where to begin to read; TIME is like 2026-01-31T10:00:00Z.",
)
@click.option(
    "--offset",
    "offsets",
    type=PartitionOffset(),
    multiple=True,
    help="Where to begin in one partition, in place of --from, like orders:0=1200; may be given several times.",
)
@data_option
@broker_url_option("The broker whose topics are read.")
@views_option
@master_option
@click.option(
    "-c",
    "--config",
    "config",
    type=Assignment(),
    multiple=True,
    help="A setting of Spark's, which overrules ours; may be given several times.",
)
@log_level_option
def rebuild_command(
    app: Path,
    view: str,
    start: str,
    offsets: tuple[tuple[str, int, int], ...],
    data: Path,
    broker: str,
    views: str | None,
    master: str,
    config: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Build VIEW anew from its topics beside the live one, and swap it in at once.

    APP is the Python file that makes the App. `headwater run` may run meanwhile, in the same --data: the view is
    served as it is until the new one has caught up. Whoever follows the view sees the rows that differ as changes.
    """
    from headwater.cli.extras import set_up_pipelines

    set_up_pipelines(log_level)
    from headwater.pipeline.rebuild import RebuildOptions, rebuild

    options = RebuildOptions(
        app=app,
        view=view,
        data=data,
        broker=broker,
        views=views_url(views, data),
        start=start,
        offsets={(topic, partition): offset for topic, partition, offset in offsets},
        master=master,
        settings=dict(config),
    )
    with _Bar(view) as bar:
        changed = rebuild(options, bar.show)
    click.echo(f"{view} is rebuilt: {changed:,} of its rows differ from before")


class _Bar:
    """A bar on a terminal; elsewhere a line now and then."""

    def __init__(self, view: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("records"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task(f"rebuilding {view}", total=None)
        self._view = view
        self._waits_for = ""
        self._tenth = -1

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, state: Rebuilding) -> None:
        """Show how far it is."""
        self._progress.update(self._task, completed=state.read, total=state.of)
        if state.waits_for and state.waits_for != self._waits_for:
            self._waits_for = state.waits_for
            self._console.print(f"waiting: {state.waits_for}")
        tenth = 10 * state.read // state.of if state.of else 10
        if self._progress.disable and tenth > self._tenth:
            self._tenth = tenth
            click.echo(f"rebuilding {self._view}: {state.read:,} of {state.of:,} records", err=True)


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text} is no time: write one like 2026-01-31T14:00:00Z") from None
    return int(moment.timestamp() * 1000)
