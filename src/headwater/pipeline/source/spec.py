"""What a query reads: a topic, how its records are read, and how its time goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater.core.errors import SettingError
from headwater.core.urls import KafkaUrl

__all__ = ["CHANGE_COLUMNS", "FORMATS", "LATE", "METADATA", "TopicSource"]

FORMATS = ("json", "avro", "arrow", "raw")
LATE = ("drop", "aside", "correct")
LOST = ("fail", "skip")
SOURCES = ("arrow", "jvm")
ENVELOPES = (None, "flat", "debezium")
METADATA = {
    "_key": "binary",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_headers": "array<struct<name:string,value:binary>>",
}
"""The columns that may be asked for beside the declared ones, with their types."""
CHANGE_COLUMNS = {
    "_deleted": "boolean",
    "_changed_at": "timestamp",
    "_version": "bigint",
}
"""The columns about a change that a table has beside its own, with their types."""


@dataclass(frozen=True)
class TopicSource:
    """One topic as one query reads it."""

    broker: str
    topic: str
    schema: str
    format: str = "json"
    event_time: str | None = None
    lateness_ms: int = 0
    idle_ms: int = 60_000
    ahead_ms: int | None = None
    """How far an event's time may be after its record's."""
    late: str = "drop"
    corrections_ms: int = 0
    metadata: tuple[str, ...] = ()
    lost: str = "fail"
    dead_letters: str | None = None
    late_topic: str | None = None
    group: str | None = None
    start: str = "earliest"
    max_rows: int | None = None
    max_bytes: int | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    """Where to begin, by partition, where it is known better than by `start`; others begin at their first record."""
    ends: tuple[tuple[int, int], ...] = ()
    """Where to end, by partition, where all of it is read at once."""
    task_rows: int | None = None
    """How many offsets one task reads at most, where all of it is read at once."""
    until_now: bool = False
    watch: tuple[str, ...] = ()
    meeting: str | None = None
    """The directory in which the sources of a query meet, where quiet topics are to follow the others."""
    envelope: str | None = None
    """Of a table, read as changes of its rows: `flat` or `debezium`. No change is late: its time is `_changed_at`."""
    key: tuple[str, ...] = ()
    """The columns of a table's key."""
    key_types: str | None = None
    """The key's columns with their types, where a row without them is malformed; some may be read as text."""
    valid_from: str | None = None
    """The column of a table that its changes have their time from."""
    leaders: tuple[str, ...] = ()
    """The topics that the time of this one lags behind by no more than `wait_ms`, where the sources meet."""
    wait_ms: int | None = None
    source: str = "arrow"
    """`arrow`, this package, or `jvm`, Spark's own connector."""

    def __post_init__(self) -> None:
        KafkaUrl.parse(self.broker)
        for name, value, known in (
            ("format", self.format, FORMATS),
            ("late", self.late, LATE),
            ("lost", self.lost, LOST),
            ("source", self.source, SOURCES),
            ("envelope", self.envelope, ENVELOPES),
        ):
            if value not in known:
                choices = ", ".join(filter(None, known))
                raise SettingError(f"{name}={value} does not fit: it must be one of {choices}")
        if unknown := [name for name in self.metadata if name not in METADATA]:
            raise SettingError(
                f"there is no metadata column {', '.join(unknown)}: there are {', '.join(METADATA)}"
            )
        if self.late == "aside" and not self.late_topic:
            raise SettingError(f'late="aside" of topic {self.topic} needs a topic for what comes late')

    @property
    def url(self) -> KafkaUrl:
        """The broker's address, parsed."""
        return KafkaUrl.parse(self.broker)

    def options(self) -> dict[str, str]:
        """Return this as a data source's options; what may hold a password is named so that Spark hides it."""
        said = asdict(self)
        del said["broker"]
        return {"source": json.dumps(said), "url": self.broker}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TopicSource:
        """Return what `options` said."""
        said = json.loads(options["source"])
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in said.items()
        }
        return cls(broker=options["url"], **values)
