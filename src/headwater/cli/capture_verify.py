"""`headwater capture verify`: a database compared with what is derived from it, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.capture import broker_option
from headwater.cli.output import json_option, note, print_json, wants_json
from headwater.cli.shared_options import data_option

if TYPE_CHECKING:
    from headwater.app import App
    from headwater.core.urls import KafkaUrl
    from headwater.derived.comparing import Report, Side
    from headwater.derived.decode import KeyText
    from headwater.derived.store import Store


@dataclass(frozen=True)
class Pair:
    """A table of a database, and what it is compared with."""

    table: str
    derived: str
    source_side: Side
    derived_side: Side
    lag_seconds: float = 0.0
    """How long changes are gathered before what is derived has them."""


@click.command("verify")
@click.argument("what", metavar="APP|URL#TABLE…", nargs=-1, required=True)
@broker_option
@data_option
@click.option("--name", help="What the capture of URL is called.  [default: the database's name]")
@click.option("--store", help="Compare with this index, cache or warehouse of APP, instead of the topics.")
@click.option("--most", default=20, show_default=True, help="How many differences are told in full.")
@click.option(
    "--wait",
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait before each further look at a difference: what changes meanwhile is none.",
)
@json_option
@click.pass_context
def verify_command(
    ctx: click.Context,
    what: tuple[str, ...],
    broker: str,
    data: Path,
    name: str | None,
    store: str | None,
    most: int,
    wait: float,
    as_json: bool,
) -> None:
    """Compare tables with their topics, or with a store, and print the differences; the status is then 1.

    Give tables of one database that is captured, or an application. Nothing is changed anywhere. Rows are compared as
    capture writes them. They may be written to meanwhile: what is on its way is not taken for a difference.
    """
    from headwater.core.errors import HeadwaterError
    from headwater.core.urls import KafkaUrl
    from headwater.derived.comparing import compare

    is_app = len(what) == 1 and "://" not in what[0]
    if store is not None and not is_app:
        raise HeadwaterError("--store is for the stores of an application: give its file")
    url = KafkaUrl.parse(broker)
    pairs = _pairs_of_app(Path(what[0]), url, data, store) if is_app else _pairs_of(what, url, name)
    equal = True
    for pair in pairs:
        report = compare(
            pair.source_side, pair.derived_side, most=most, wait_seconds=max(wait, pair.lag_seconds)
        )
        equal = equal and report.is_equal
        show(pair, report, as_json=as_json)
    ctx.exit(0 if equal else 1)


def show(pair: Pair, report: Report, *, as_json: bool) -> None:
    """Print what a comparison has found."""
    if wants_json(as_json):
        print_json(
            {
                "table": pair.table,
                "derived": pair.derived,
                "equal": report.is_equal,
                "rows": report.rows,
                "missing": report.missing,
                "extra": report.extra,
                "different": report.different,
                "changing": report.changing,
                "first": [
                    {"kind": each.kind, "key": each.key, "columns": _shown(each.columns)}
                    for each in report.first
                ],
            }
        )
        return
    for each in report.first:
        click.echo(str(each))
    told = f"{report.rows:,} rows"
    if report.is_equal:
        told += ", all the same"
    else:
        told += f": {report.missing:,} missing, {report.extra:,} extra, {report.different:,} different"
    if report.changing:
        told += f"; {report.changing:,} are being changed"
    click.echo(f"{pair.table} and {pair.derived}: {told}")


def _shown(columns: Any) -> dict[str, list[Any]]:
    """Return differing values as JSON has them; those with a point as text, with all their digits."""
    from decimal import Decimal

    return {
        name: [str(value) if isinstance(value, Decimal) else value for value in both]
        for name, both in columns.items()
    }


def _pairs_of(addresses: tuple[str, ...], broker: KafkaUrl, name: str | None) -> list[Pair]:
    """Return the tables of a database with the topics that a capture has made of them."""
    from headwater.app.schema import parse
    from headwater.capture.captures import capture_of, describe, statuses
    from headwater.capture.schemas import ddl
    from headwater.client import Cluster
    from headwater.core.errors import HeadwaterError
    from headwater.derived.decode import Decoder, KeyText
    from headwater.derived.follower import Stream
    from headwater.derived.sides import topic_rows

    capture = capture_of(addresses, name=name)
    cluster = Cluster(broker, "headwater-verify", deadline_seconds=5)
    try:
        known = statuses(cluster)
    finally:
        cluster.close()
    if capture.name not in known:
        raise HeadwaterError(
            f"{broker} knows no capture {capture.name!r}: it knows {', '.join(sorted(known)) or 'none'}; say which with"
            " --name"
        )
    said = known[capture.name]
    pairs = []
    for given in capture.database.tables:
        [table] = describe(f"{capture.database.url}#{given}")
        topic = said["topics"].get(str(table))
        if topic is None:
            raise HeadwaterError(
                f"the capture {capture.name!r} has no topic of {table}: it was captured without it"
            )
        flat = given in said["flat"] or str(table) in said["flat"] or table.name in said["flat"]
        key = KeyText(table.key, parse(ddl(table)))
        stream = Stream(topic, Decoder("flat" if flat else "debezium", key))
        pairs.append(
            Pair(
                str(table),
                f"the topic {topic}",
                lambda given=given, key=key: _rows(f"{capture.database.url}#{given}", key),  # type: ignore[misc]
                lambda stream=stream: topic_rows(broker, stream, say=note),  # type: ignore[misc]
            )
        )
    return pairs


def _pairs_of_app(path: Path, broker: KafkaUrl, data: Path, store: str | None) -> list[Pair]:
    from headwater.app import Table
    from headwater.cli.derived import load_resolved
    from headwater.core.errors import HeadwaterError
    from headwater.derived.decode import Decoder, KeyText
    from headwater.derived.follower import Stream
    from headwater.derived.sides import topic_rows

    app = load_resolved(path)
    if store is not None:
        return [_pair_of_store(app, store, data)]
    pairs = []
    for table in app.definitions.values():
        if isinstance(table, Table) and table.source is not None:
            key = KeyText(table.key, table.fields)
            stream = Stream(table.name, Decoder(table.envelope, key))
            pairs.append(
                Pair(
                    table.source.partition("#")[2],
                    f"the topic {table.name}",
                    lambda source=table.source, key=key: _rows(source, key),  # type: ignore[misc]
                    lambda stream=stream: topic_rows(broker, stream, say=note),  # type: ignore[misc]
                )
            )
    if not pairs:
        raise HeadwaterError(f"no table of {path} has a source that it could be compared with")
    return pairs


def _pair_of_store(app: App, name: str, data: Path) -> Pair:
    from headwater.app import Table
    from headwater.core.errors import HeadwaterError
    from headwater.derived.sides import store_rows
    from headwater.derived.stores import find, key_of, open_store

    definition = find(app, name)
    table = app.definitions[definition.of]
    if not isinstance(table, Table) or table.source is None:
        raise HeadwaterError(f"{name} is of {definition.of}, which comes from no database to compare it with")
    source, key = table.source, key_of(app, definition)
    opened = open_store(app, definition, data)
    if opened.position() is None:
        raise HeadwaterError(f"{name} holds nothing yet: `headwater derived run` fills it")
    return Pair(
        source.partition("#")[2],
        f"the {definition.kind} {name}",
        lambda: _rows(source, key, opened),
        lambda: store_rows(opened, key),
        opened.gather_seconds,
    )


def _rows(address: str, key: KeyText, store: Store | None = None) -> Iterator[list[tuple[str, str | None]]]:
    from headwater.capture.databases import databases_of, read_table
    from headwater.derived.sides import source_rows

    [database] = databases_of([address])
    [table] = database.tables
    read = (
        ([column.name for column in schema.columns], rows) for schema, rows in read_table(database, table)
    )
    return source_rows(read, key, store)
