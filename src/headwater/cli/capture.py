"""`headwater capture`: databases followed into topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.output import json_option, note, print_rows
from headwater.cli.shared_options import broker_url_option
from headwater.cli.workers import metrics_option, work

if TYPE_CHECKING:
    from headwater.capture.captures import Capture
    from headwater.capture.runner import Progress
    from headwater.workers.group import Group

C = TypeVar("C", bound=Callable[..., Any])

_STATUS_SECONDS = 30.0
"""How often a line about progress is logged where it is not on a terminal."""


broker_option = broker_url_option("The broker that the topics are on, Headwater's or Kafka's.")


@click.group("capture")
def capture_command() -> None:
    """Follow databases into topics: a snapshot of their tables, then every change."""


@capture_command.command("run")
@click.argument("what", metavar="APP|URL#TABLE…", nargs=-1, required=True)
@broker_option
@click.option(
    "--name", help="What the capture is called, and its position known by.  [default: the database's name]"
)
@click.option("--prefix", help="The topics are PREFIX.SCHEMA.TABLE.  [default: the capture's name]")
@click.option("--flat", is_flag=True, help="Write the rows as they are, without Debezium's envelope.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many partitions new topics have; without it, the broker's num.partitions.",
)
@click.option("--once", is_flag=True, help="End once the database has nothing more: 0 if all is published.")
@metrics_option
def run_command(
    what: tuple[str, ...],
    broker: str,
    name: str | None,
    prefix: str | None,
    flat: bool,
    partitions: int | None,
    once: bool,
    metrics: tuple[str, int] | None,
) -> None:
    """Follow tables into topics until SIGTERM or Ctrl-C.

    Give the tables of one database, as in sqlite:///shop.db#users, or an application, whose tables with a source
    are followed. A first start begins with a snapshot; each further one goes on where it was. Prints one line that
    starts with "ready" once the changes are followed, or wait for what does not answer.
    """
    from headwater.capture.metrics import exposition
    from headwater.capture.running import running_captures
    from headwater.core.urls import KafkaUrl

    captures = _captures(what, name=name, prefix=prefix, flat=flat, partitions=partitions)
    running = running_captures(
        captures, KafkaUrl.parse(broker), say=lambda name, line: note(f"{name}: {line}")
    )
    said = ", ".join(f"{capture.name} ({capture.database})" for capture in captures)
    work(running, said, once=once, metrics=metrics, exposition=exposition, tick=_ticker(running))


def _captures(
    what: tuple[str, ...], *, name: str | None, prefix: str | None, flat: bool, partitions: int | None
) -> list[Capture]:
    from pathlib import Path

    from headwater.app import load
    from headwater.capture.captures import capture_of, captures_of_app
    from headwater.core.errors import HeadwaterError

    if len(what) == 1 and "://" not in what[0]:
        path = Path(what[0])
        if not path.is_file():
            raise HeadwaterError(
                f"{what[0]} is neither an application's file nor URL#TABLE, as in sqlite:///shop.db#users"
            )
        if name or prefix or flat or partitions:
            raise HeadwaterError(
                "what an application declares says all: --name, --prefix, --flat and --partitions are"
                " for URL#TABLE"
            )
        captures = captures_of_app(load(path))
        if not captures:
            raise HeadwaterError(
                f"no table of {path} has a source: write one, as in app.table(…, source=URL#TABLE)"
            )
        return captures
    return [capture_of(what, name=name, prefix=prefix, flat=flat, partitions=partitions)]


def _ticker(running: Group[Progress]) -> Callable[[], None]:
    """Return what shows progress: on a terminal a line that changes, elsewhere one now and then."""
    import sys

    from headwater.capture.running import status_line

    live = sys.stderr.isatty()
    every = 1.0 if live else _STATUS_SECONDS
    last = {"at": time.monotonic()}
    rows = dict.fromkeys(running.progress, 0)

    def tick() -> None:
        now = time.monotonic()
        passed = now - last["at"]
        if passed < every:
            return
        last["at"] = now
        for name, progress in running.progress.items():
            if not live and progress.rows == rows[name]:
                continue
            line = status_line(name, progress, (progress.rows - rows[name]) / passed)
            rows[name] = progress.rows
            click.echo(
                f"\r\x1b[K{line}" if live and len(rows) == 1 else line, err=True, nl=not live or len(rows) > 1
            )

    return tick


@capture_command.command("describe")
@click.argument("address", metavar="URL#TABLE")
def describe_command(address: str) -> None:
    """Print the columns of tables, in the form that `app.table` takes."""
    from headwater.capture.captures import describe
    from headwater.capture.schemas import ddl

    for table in describe(address):
        click.echo(f"{table} (key {', '.join(table.key)}): {ddl(table)}")


@capture_command.command("install")
@click.argument("address", metavar="sqlite:///FILE#TABLE")
def install_command(address: str) -> None:
    """Put the change table and the triggers into a SQLite file; `run` does so by itself."""
    from headwater.capture.sqlite import install

    url, tables = _sqlite(address)
    install(url, tables)
    note(f"Installed on {', '.join(tables)}.")


@capture_command.command("remove")
@click.argument("address", metavar="sqlite:///FILE#TABLE")
def remove_command(address: str) -> None:
    """Take the triggers off a SQLite file's tables, and the change table out with the last of them."""
    from headwater.capture.sqlite import remove

    url, tables = _sqlite(address)
    remove(url, tables)
    note(f"Removed from {', '.join(tables)}.")


@capture_command.command("alter")
@click.argument("address", metavar="sqlite:///FILE#TABLE")
@click.argument("statements", metavar="SQL…", nargs=-1, required=True)
def alter_command(address: str, statements: tuple[str, ...]) -> None:
    """Run statements on a captured SQLite table that its triggers stand in the way of, as DROP COLUMN.

    The triggers are taken off, the statements run and the triggers made anew in one transaction.
    """
    from headwater.capture.sqlite import alter

    url, tables = _sqlite(address)
    if len(tables) != 1:
        raise click.UsageError("One table at a time is altered.")
    alter(url, tables[0], statements)
    note(f"Altered {tables[0]}.")


def _sqlite(address: str) -> tuple[str, tuple[str, ...]]:
    from headwater.capture.databases import databases_of
    from headwater.core.errors import HeadwaterError

    [database] = databases_of([address])
    if database.connector != "sqlite":
        raise HeadwaterError(f"{database} needs no triggers: this is for sqlite:///FILE#TABLE")
    return database.url, database.tables


@capture_command.command("status")
@json_option
@broker_option
def status_command(broker: str, as_json: bool) -> None:
    """List the captures that a broker knows, with their topics and positions."""
    import json
    from datetime import UTC, datetime

    from headwater.capture.captures import statuses
    from headwater.client import Cluster
    from headwater.core.urls import KafkaUrl

    cluster = Cluster(KafkaUrl.parse(broker), "headwater-cli", deadline_seconds=5)
    try:
        found = statuses(cluster)
    finally:
        cluster.close()
    rows = [
        {
            "capture": name,
            "source": said["source"],
            "topics": sorted(said["topics"].values()),
            "written": datetime.fromtimestamp(said["at_ms"] / 1000, UTC).isoformat(timespec="milliseconds"),
            "position": json.dumps(said["position"]),
        }
        for name, said in sorted(found.items())
    ]
    print_rows(rows, ["capture", "source", "topics", "written", "position"], as_json=as_json)


@capture_command.command("snapshot")
@click.argument("name")
@broker_option
def snapshot_command(name: str, broker: str) -> None:
    """Have a capture start over with a new snapshot, after its position was lost.

    Every row of its topics is deleted and the position forgotten, in one transaction; the next run reads all tables
    anew. A capture that runs under this name ends: start it again.
    """
    from headwater.capture.captures import start_over
    from headwater.core.urls import KafkaUrl

    topics = start_over(KafkaUrl.parse(broker), name)
    note(f"{name} starts over: the next run takes a snapshot into {', '.join(topics)}.")
