"""What an application declares: frozen, and each knows its line.

Topic, Table                    come from outside
View, Stream, Alert             functions of the inputs that their parameters name
Sink                            a function that is handed what another definition holds
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
    """A table of a database, kept in step by change data capture."""

    kind: ClassVar = "table"
    name: str
    where: Location
    key: tuple[str, ...]
    source: str
    schema: str | None = None


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
    """A function whose rows are sent to a URL."""

    kind: ClassVar = "alert"
    name: str
    where: Location
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    to: str
    secret_env: str | None = None


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


Function = View | Stream | Alert | Sink
Definition = Topic | Table | Function
