"""What an application declares: frozen, and each knows its line.

Topic, Table                    come from outside
View, Stream, Alert             functions of the inputs that their parameters name
Sink                            a function that is handed what another definition holds
Webhook                         an address that others post to; it has names of its own
Index, Cache, Warehouse         stores that hold the rows of a table, kept in step with it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from headwater.app.errors import Location
from headwater.app.types import Field

Late = Literal["drop", "aside", "correct"]
Format = Literal["json", "avro", "arrow", "raw"]
StreamFormat = Literal["json", "raw"]
Lost = Literal["fail", "skip"]
SourceKind = Literal["arrow", "jvm"]
ViewMode = Literal["rows", "changes"]
StreamMode = Literal["append", "changes"]
Envelope = Literal["flat", "debezium"]
Scheme = Literal["headwater", "github", "stripe"]
Engine = Literal["spark", "process"]


class Delivery(NamedTuple):
    """A row for a sink's function; the same row that comes again has the same id."""

    id: str
    row: dict[str, Any]


@dataclass(frozen=True)
class Topic:
    """A topic that functions read: its records' columns, their time and what to do with the late ones."""

    kind: ClassVar = "topic"
    name: str
    where: Location
    schema: str
    """As DDL, in the form that Spark reads; all may be null, since a record may lack any field."""
    fields: tuple[Field, ...]
    """The columns as they are declared."""
    key: tuple[str, ...] = ()
    event_time: str | None = None
    lateness_ms: int = 0
    idle_ms: int = 60_000
    ahead_ms: int | None = None
    """How far an event's time may be after its record's; as far as it likes without it."""
    late: Late = "drop"
    corrections_ms: int = 0
    format: Format = "json"
    partitions: int | None = None
    lost: Lost = "fail"
    metadata: tuple[str, ...] = ()
    source: SourceKind = "arrow"
    max_rows: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Table:
    """A table, known by a compacted topic of its name with a record for each change of a row.

    Change data capture writes the topic where there is a `source`; otherwise somebody else does.
    """

    kind: ClassVar = "table"
    name: str
    where: Location
    key: tuple[str, ...]
    schema: str | None = None
    """As DDL, in the form that Spark reads; None where the database has to be asked for it."""
    fields: tuple[Field, ...] = ()
    """The columns as they are declared."""
    source: str | None = None
    """The database and the table, as a URL; it may hold a password."""
    envelope: Envelope = "flat"
    event_time: str | None = None
    """The column with the time of a change, where it is neither the record's nor the envelope's."""
    lateness_ms: int = 0
    idle_ms: int = 60_000
    partitions: int | None = None
    lost: Lost = "fail"
    max_rows: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class View:
    """A function whose rows are served by key."""

    kind: ClassVar = "view"
    name: str
    where: Location
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    key: tuple[str, ...]
    mode: ViewMode = "rows"
    ttl_ms: int | None = None
    """How long a row stays after it was last written; for ever without it."""
    indexes: tuple[str, ...] = ()
    """The columns that filters and orders find rows by."""
    history_ms: int | None = None
    """How long what rows were before can be asked for; not at all without it."""


@dataclass(frozen=True)
class Stream:
    """A function whose rows go to the topic of its name, exactly once."""

    kind: ClassVar = "stream"
    name: str
    where: Location
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    key: tuple[str, ...]
    mode: StreamMode = "append"
    format: StreamFormat = "json"
    partitions: int | None = None
    event_time: str | None = None
    lateness_ms: int = 0
    idle_ms: int = 60_000


@dataclass(frozen=True)
class Alert:
    """A function whose rows are sent to people: to a URL, an e-mail address or the browsers that look."""

    kind: ClassVar = "alert"
    name: str
    where: Location
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    to: str
    secret_env: str | None = None
    group_by: tuple[str, ...] = ()
    """The columns that tell incidents apart; without them, all rows are of one."""
    throttle_ms: int | None = None
    """How long nothing more is sent of an incident; rows of that time are summed up at its end."""
    digest_ms: int | None = None
    """How long rows are collected for one e-mail."""


@dataclass(frozen=True)
class Sink:
    """A function that is called with what a topic, stream or view holds, at least once."""

    kind: ClassVar = "sink"
    name: str
    where: Location
    inputs: tuple[str, ...]
    function: Callable[[list[Delivery]], object]
    key: tuple[str, ...]

    @property
    def of(self) -> str:
        """The name of what it is called with."""
        return self.inputs[0]


@dataclass(frozen=True)
class Index:
    """A search index of the rows of a table."""

    kind: ClassVar = "index"
    name: str
    where: Location
    of: str
    text: tuple[str, ...]
    """The columns that are searched by their words; the others are found by their values."""
    schema: str | None = None
    """The columns of a stream, which does not say them."""
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Cache:
    """The rows of a table by key, in Redis or in a file."""

    kind: ClassVar = "cache"
    name: str
    where: Location
    of: str
    url: str | None = None
    """The address of a Redis; it may hold a password. Without it, a file."""


@dataclass(frozen=True)
class Warehouse:
    """The rows of a table as Parquet files."""

    kind: ClassVar = "warehouse"
    name: str
    where: Location
    of: str
    path: str | None = None
    """The directory; by default one in the data directory."""
    every_ms: int = 10_000
    """How long changes are gathered before the files are written anew."""
    schema: str | None = None
    """The columns of a stream, which does not say them."""
    fields: tuple[Field, ...] = ()
    engine: Engine = "spark"
    """What writes the files: a query of `headwater run`, or the process of `headwater derived run`."""


@dataclass(frozen=True)
class Webhook:
    """An address that others post signed messages to, which go to a topic."""

    name: str
    where: Location
    topic: str
    secret_env: str
    scheme: Scheme
    key: str | None = None
    """The field of a message that becomes its record's key, where it is not the topic's."""
    tolerance_ms: int = 300_000
    """How far a signed time may be off."""


Function = View | Stream | Alert | Sink
Derived = Index | Cache | Warehouse
Definition = Topic | Table | Function | Derived
