"""`headwater derived`: indexes, caches and warehouses of an application's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.capture import broker_option
from headwater.cli.output import json_option, note, print_rows, wants_json
from headwater.cli.shared_options import app_argument, data_option, master_option
from headwater.cli.workers import metrics_option, work

if TYPE_CHECKING:
    from headwater.app import App, Warehouse
    from headwater.derived.follower import Progress


@click.group("derived")
def derived_command() -> None:
    """Keep search indexes, caches and warehouses in step with tables."""


@derived_command.command("run")
@app_argument
@broker_option
@data_option
@click.option("--once", is_flag=True, help="End once every store has all that its topic holds by now.")
@metrics_option
def run_command(app: Path, broker: str, data: Path, once: bool, metrics: tuple[str, int] | None) -> None:
    """Keep an application's indexes, caches and warehouses in step until SIGTERM or Ctrl-C.

    Warehouses that Spark writes are kept in step by `headwater run`.

    Each goes on where it was, with every change exactly once. Prints one line that starts with "ready" once all
    are as far as their topics, or wait for what does not answer.
    """
    from headwater.core.errors import HeadwaterError
    from headwater.core.urls import KafkaUrl
    from headwater.derived.metrics import exposition
    from headwater.derived.running import running_stores

    loaded = load_resolved(app)
    stores = loaded.derived()
    if not stores:
        raise HeadwaterError(
            f"{app} declares no index, cache or warehouse: write one, as in app.cache(NAME, of=TABLE)"
        )
    left = loaded.spark_warehouses()
    stores = [each for each in stores if each not in left]
    if left:
        names = " and ".join(each.name for each in left)
        note(f"{names}: written by Spark, in `headwater run {app}`.")
    if not stores:
        return
    running = running_stores(
        loaded, stores, data, KafkaUrl.parse(broker), say=lambda name, line: note(f"{name}: {line}")
    )
    said = ", ".join(f"{each.name} ({each.kind} of {each.of})" for each in stores)
    work(running, said, once=once, metrics=metrics, exposition=exposition)


@derived_command.command("rebuild")
@app_argument
@click.argument("name")
@broker_option
@data_option
@master_option
def rebuild_command(app: Path, name: str, broker: str, data: Path, master: str) -> None:
    """Build an index, cache or warehouse anew from its topic's first record on.

    It is built beside the live one, which serves until the new one takes its place, at once. `headwater derived run`
    and `headwater run` may go on meanwhile.
    """
    from headwater.app import Warehouse
    from headwater.core.urls import KafkaUrl
    from headwater.derived.locking import locked
    from headwater.derived.rebuild import rebuild
    from headwater.derived.stores import find, open_store, stream_of

    loaded = load_resolved(app)
    definition = find(loaded, name)
    lock = data / "derived" / f".{name}.rebuild"
    with locked(lock, otherwise=f"{name} is being built anew by another process: wait for it"):
        if isinstance(definition, Warehouse) and definition.engine == "spark":
            rows = _rebuild_through_spark(loaded, definition, data, broker, master)
            note(f"{name} is built anew: {rows:,} rows.")
            return
        store = open_store(loaded, definition, data)
        try:
            with _bar(name) as show:
                stream = stream_of(loaded, definition)
                rows = rebuild(
                    name,
                    stream,
                    store,
                    KafkaUrl.parse(broker),
                    dead_letters=loaded.dead_letters,
                    say=note,
                    progress=show,
                )
        finally:
            store.close()
    note(f"{name} is built anew: {rows:,} rows.")


@derived_command.command("list")
@app_argument
@broker_option
@data_option
@json_option
def list_command(app: Path, broker: str, data: Path, as_json: bool) -> None:
    """List an application's indexes, caches and warehouses, and how far they are."""
    from headwater.client import LATEST, ClientError, Cluster
    from headwater.core.urls import KafkaUrl
    from headwater.derived.stores import open_store

    loaded = load_resolved(app)
    cluster = Cluster(KafkaUrl.parse(broker), "headwater-cli", deadline_seconds=3)
    rows: list[dict[str, Any]] = []
    try:
        for each in loaded.derived():
            store = open_store(loaded, each, data)
            position = store.position()
            behind = None
            if position is not None:
                try:
                    ends = cluster.offsets(each.of, dict.fromkeys(cluster.partitions(each.of), LATEST))
                    behind = sum(end - position.offsets.get(partition, 0) for partition, end in ends.items())
                except ClientError as error:
                    note(f"{each.of}: {error}")
            rows.append(
                {
                    "store": each.name,
                    "kind": each.kind,
                    "of": each.of,
                    "rows": store.count(),
                    "behind": behind,
                    # Spark's queries tell it themselves: in the log, and by the dead letters.
                    "unreadable": None
                    if each in loaded.spark_warehouses()
                    else (0 if position is None else position.unreadable),
                }
            )
            store.close()
    finally:
        cluster.close()
    print_rows(rows, ["store", "kind", "of", "rows", "behind", "unreadable"], as_json=as_json)


@click.group("index")
def index_command() -> None:
    """Search in the indexes that an application declares."""


@index_command.command("search")
@click.argument("name")
@click.argument("query")
@click.option("--limit", default=10, show_default=True, help="How many rows at most.")
@data_option
@json_option
def search_command(name: str, query: str, limit: int, data: Path, as_json: bool) -> None:
    """Print the rows of an index that a query finds, best first.

    Words are searched in the columns of text: `quick fox`, `+both +words`, `"a phrase"`, `-without`. A column's
    value is found by `city:"New York"`, a range by `age:[30 TO 50]`, `age:>30`. AND, OR and parentheses combine.
    """
    from headwater.derived.search import Search

    found = Search(data / "derived" / name).find(query, limit=limit)
    rows: list[dict[str, Any]] = [{"key": hit.key, "score": hit.score, "row": hit.row} for hit in found.hits]
    if wants_json(as_json) or not rows:
        print_rows(rows, ["key", "score", "row"], as_json=as_json)
    else:
        columns = [*rows[0]["row"]]
        print_rows(
            [{"score": row["score"], **row["row"]} for row in rows], ["score", *columns], as_json=False
        )
    note(f"{found.total:,} found.")


@click.group("cache")
def cache_command() -> None:
    """Look into the caches that an application declares."""


@cache_command.command("get")
@click.argument("name")
@click.argument("key")
@click.option("--url", metavar="URL", help="The Redis that the cache is in; without it, a file in --data.")
@data_option
@click.pass_context
def get_command(ctx: click.Context, name: str, key: str, url: str | None, data: Path) -> None:
    """Print the row of a key as JSON; the status is 1 where there is none.

    KEY is the value of the key's column, or several with commas between them.
    """
    from headwater.core.errors import HeadwaterError
    from headwater.derived.cache_file import FileCache
    from headwater.derived.cache_redis import RedisCache
    from headwater.derived.stores import cache_file

    path = cache_file(data, name)
    if url is None and not path.is_file():
        raise HeadwaterError(
            f"there is no cache {path}: `headwater derived run APP` makes it, or give its --url"
        )
    cache: FileCache | RedisCache = FileCache(path) if url is None else RedisCache(url, name)
    try:
        row = cache.get(key)
    finally:
        cache.close()
    if row is None:
        note(f"{name} has no row {key}.")
        ctx.exit(1)
    click.echo(row)


def _rebuild_through_spark(app: App, definition: Warehouse, data: Path, broker: str, master: str) -> int:
    from headwater.cli.extras import needs_spark, set_up_pipelines
    from headwater.derived.follower import Progress

    needs_spark([definition])
    set_up_pipelines("warning")
    from headwater.pipeline.warehouse_rebuild import RebuildPlace, rebuild_warehouse

    with _bar(definition.name) as show:
        return rebuild_warehouse(
            app,
            definition,
            RebuildPlace(data, broker, master),
            lambda done, total: show(Progress(done=done, total=total)),
        )


@contextmanager
def _bar(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far it is: a bar on a terminal, elsewhere a line for each tenth."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    told = -1
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"building {name}", total=None)

        def show(progress: Progress) -> None:
            nonlocal told
            bar.update(task, completed=progress.done, total=progress.total)
            tenth = 10 * progress.done // progress.total if progress.total else 10
            if bar.disable and tenth > told:
                told = tenth
                note(f"building {name}: {progress.done:,} of {progress.total:,} offsets")

        yield show


def load_resolved(path: Path) -> App:
    """Load an application, with the columns of the tables that its stores are of."""
    from headwater.app import load
    from headwater.capture.captures import resolve_tables

    loaded = load(path)
    resolve_tables(loaded)
    loaded.check()
    return loaded
