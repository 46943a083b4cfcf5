"""What is captured: databases and their tables, as a command or an application names them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater import __version__
from headwater.app import App, Table
from headwater.capture.change import TableSchema
from headwater.capture.databases import Database, databases_of, open_source
from headwater.capture.envelope import Encoder, Origin
from headwater.capture.publisher import Publisher
from headwater.capture.reading import last_by_key, records_of
from headwater.capture.runner import Limits, Runner
from headwater.capture.schemas import History, ddl
from headwater.capture.source import CaptureError
from headwater.capture.topics import POSITIONS_TOPIC, Naming
from headwater.client import Cluster, UnknownTopic
from headwater.core.urls import KafkaUrl

__all__ = [
    "PARTITIONS",
    "Capture",
    "capture_of",
    "captures_of_app",
    "describe",
    "resolve_tables",
    "start_over",
    "statuses",
]

PARTITIONS = 4
"""Of an application's topic that does not say how many it is to have, whether capture or its pipelines make it."""


@dataclass(frozen=True)
class Capture:
    """One database that is followed, under a name by which its position is known."""

    name: str
    database: Database
    prefix: str
    """Of the topics that nobody has named."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """By table, as it is given, the topics that somebody has named."""
    flat: frozenset[str] = frozenset()
    """The tables whose records are their rows, without an envelope."""
    partitions: int | None = None
    partitions_of: Mapping[str, int | None] = field(default_factory=dict)

    def runner(
        self,
        broker: KafkaUrl,
        *,
        say: Callable[[str], None] = lambda line: None,
        limits: Limits | None = None,
    ) -> Runner:
        """Return what runs it."""
        return Runner(
            lambda: open_source(self.database, name=self.name),
            lambda: self.publisher(broker),
            limits=limits,
            say=say,
        )

    def publisher(self, broker: KafkaUrl) -> Publisher:
        """Return what publishes its changes."""
        naming = Naming(
            self.prefix, self.topics, partitions=self.partitions, partitions_of=self.partitions_of
        )
        origin = Origin(self.database.connector, self.prefix, self.database.name, __version__)
        about = {
            "source": str(self.database),
            "connector": self.database.connector,
            "flat": sorted(self.flat),
        }
        return Publisher(broker, self.name, Encoder(origin, flat=self.flat), naming, about=about)


def capture_of(
    addresses: Iterable[str],
    *,
    name: str | None = None,
    prefix: str | None = None,
    flat: bool = False,
    partitions: int | None = None,
) -> Capture:
    """Return the capture of some tables of one database; it is called as the database unless `name` says how."""
    databases = databases_of(addresses)
    if len(databases) != 1:
        raise CaptureError("one capture follows one database: start one for each")
    [database] = databases
    called = name or database.name
    return Capture(
        called,
        database,
        prefix or called,
        flat=frozenset(database.tables) if flat else frozenset(),
        partitions=partitions,
    )


def captures_of_app(app: App) -> list[Capture]:
    """Return the captures of an application's tables that have a source: one for each database."""
    tables = _captured(app)
    databases = databases_of(_source(table) for table in tables)
    found: list[Capture] = []
    for database in databases:
        own = {
            _source(table).partition("#")[2]: table
            for table in tables
            if _source(table).partition("#")[0] == database.url
        }
        for given in own:
            if "," in given:
                raise CaptureError(
                    f"the source of the table {own[given].name} names several tables: declare each"
                )
        called = f"{app.name}.{database.name}"
        if called in [other.name for other in found]:
            called += f"-{database.fingerprint}"
        found.append(
            Capture(
                called,
                database,
                called,
                topics={given: table.name for given, table in own.items()},
                flat=frozenset(given for given, table in own.items() if table.envelope == "flat"),
                partitions_of={table.name: table.partitions or PARTITIONS for table in own.values()},
            )
        )
    return found


def describe(address: str) -> list[TableSchema]:
    """Return the tables of an address as their database has them now."""
    [database] = databases_of([address])
    source = open_source(database, name=database.name)
    try:
        return source.describe()
    finally:
        source.close()


def resolve_tables(app: App) -> None:
    """Give an application's tables that are declared without columns those that their databases have."""
    for table in _captured(app):
        if table.schema is None:
            [found] = describe(_source(table))
            app.resolve_table(table.name, ddl(found))


def statuses(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return, by name, what is known of every capture: source, topics, position, rows, when it was written."""
    found: dict[str, dict[str, Any]] = {}
    try:
        for record in records_of(cluster, POSITIONS_TOPIC, 0):
            name = (record.key or b"").decode()
            if record.value is None:
                found.pop(name, None)
            else:
                found[name] = json.loads(record.value)
    except UnknownTopic:
        pass  # nothing has ever been captured
    return found


def start_over(broker: KafkaUrl, name: str) -> list[str]:
    """Delete all rows of a capture's topics and forget its position; return the topics.

    The next run then begins with a snapshot. A process that captures under this name is shut out.
    """
    cluster = Cluster(broker, "headwater-capture")
    try:
        try:
            record = last_by_key(cluster, POSITIONS_TOPIC, name.encode())
        except UnknownTopic:
            record = None
        if record is None or record.value is None:
            known = ", ".join(sorted(statuses(cluster))) or "none"
            raise CaptureError(f"{broker} knows no capture {name!r}: it knows {known}")
        said = json.loads(record.value)
        tables = History.read(cluster, name).tables
    finally:
        cluster.close()
    origin = Origin(said["connector"], said["prefix"], "", __version__)
    encoder = Encoder(origin, flat=frozenset(said["flat"]))
    with Publisher(broker, name, encoder, Naming(said["prefix"], said["topics"])) as publisher:
        publisher.open(tables)
        publisher.start_over(tables)
    return sorted(said["topics"].values())


def _captured(app: App) -> list[Table]:
    return [each for each in app.definitions.values() if isinstance(each, Table) and each.source is not None]


def _source(table: Table) -> str:
    assert table.source is not None
    return table.source
