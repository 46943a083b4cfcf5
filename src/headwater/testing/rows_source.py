"""Rows given in Python as the source of a Spark query, with the watermark that a topic's source would decide.

A topic is a directory with one file of JSON lines for each step, and a query reads one file a batch: the steps
of all its topics side by side. What a partition has seen counts from the next batch on, as with a topic.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.app import schema as schemas
from headwater.app.durations import milliseconds
from headwater.core.errors import HeadwaterError
from headwater.pipeline.source import TopicSource
from headwater.pipeline.source.event_time import watermark
from headwater.pipeline.source.spec import CHANGE_COLUMNS, METADATA
from headwater.pipeline.tables import CHANGED_AT, DELETED, VERSION
from headwater.pipeline.watermark import MARKER, WATERMARK, stamped
from headwater.serve import checks

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RowsError(HeadwaterError):
    """Rows of a test that do not fit the topic that they are meant for."""


@dataclass(frozen=True)
class Advance:
    """Between batches of rows: time passes in every topic."""

    by_ms: int


def advance(duration: str) -> Advance:
    """Let time pass between rows: every topic has then seen the latest event time so far plus `duration`."""
    return Advance(milliseconds(duration))


Row = Mapping[str, Any]
Items = Sequence[Row | Sequence[Row] | Advance]


def steps_of(items: Items) -> list[list[Row] | Advance]:
    """Return batches and advances in order: rows that stand side by side outside of a list are one batch."""
    if isinstance(items, Mapping | str):
        raise RowsError(f"{items!r:.60} is no list of rows; give rows as [{{…}}, {{…}}]")
    steps: list[list[Row] | Advance] = []
    loose: list[Row] | None = None
    for item in items:
        if isinstance(item, Mapping):
            if loose is None:
                steps.append(loose := [])
            loose.append(item)
        else:
            loose = None
            steps.append(item if isinstance(item, Advance) else list(item))
    return steps


class ScriptedTopic:
    """A topic whose batches are written one by one."""

    def __init__(self, directory: Path, source: TopicSource) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._is_table = source.envelope is not None
        if self._is_table:
            about = ", ".join(f"{name} {kind}" for name, kind in CHANGE_COLUMNS.items())
            source = replace(source, schema=f"{source.schema}, {about}", event_time=CHANGED_AT)
        self._source = source
        self._fields = cast(StructType, StructType.fromDDL(source.schema)).fields
        self._corrections_ms = source.corrections_ms if source.late == "correct" else 0
        self._highs: dict[int, int] = {}
        self._watermark_ms: int | None = None
        self._ends: dict[int, int] = {}
        self._written = 0
        self.late: list[Row] = []

    def misfit(self) -> str | None:
        """Return what of the first row that does not fit the schema does not, or None where all fit.

        Spark says that it could not read a line, and seldom which of its values that is because of.
        """
        fields = schemas.parse(self._source.schema)
        for path in sorted(self._directory.glob("*.json")):
            for row in map(json.loads, path.read_text().splitlines()):
                if not row.get(MARKER) and (found := checks.problem(row, fields)) is not None:
                    return f"{self._source.topic}: {found}"
        return None

    @property
    def high_ms(self) -> int | None:
        """The latest event time seen."""
        return max(self._highs.values(), default=None)

    def write(self, rows: Iterable[Row]) -> None:
        """Add a batch; a row without `_partition` is of partition 0."""
        kept = []
        for row in rows:
            self._refuse_unknown_columns(row)
            partition = int(row.get("_partition", 0))
            offset = self._ends.get(partition, 0)
            self._ends[partition] = offset + 1
            if self._is_table:
                row = self._change(row, offset)
            if self._is_late(row, partition):
                self.late.append(row)
            else:
                kept.append({"_partition": partition, "_offset": offset, "_timestamp": EPOCH} | dict(row))
        self._write(kept)

    def advance_to(self, at_ms: int) -> None:
        """Let every partition have seen the event time `at_ms`."""
        if self._source.event_time is not None:
            self._highs = {partition: max(high, at_ms) for partition, high in self._highs.items()} or {
                0: at_ms
            }
        self._write([])

    def _change(self, row: Row, offset: int) -> Row:
        """Return a row of a table as a change; without a time it has always been there."""
        valid_from = self._source.valid_from
        at = None if valid_from is None or row.get(DELETED) else row.get(valid_from)
        return {DELETED: False, CHANGED_AT: at, VERSION: offset} | dict(row)

    def read(self, spark: SparkSession, *, in_time: bool = True) -> DataFrame:
        """Return the stream of the batches, one a micro-batch; of a table also without its time."""
        columns = StructType([*self._fields])
        about = ", ".join(f"{name} {METADATA[name]}" for name in self._source.metadata)
        for field in cast(StructType, StructType.fromDDL(about)).fields if about else ():
            columns.add(field)
        event_time = self._source.event_time
        if event_time is not None:
            columns.add(WATERMARK, "timestamp").add(MARKER, "boolean")
        options = {"maxFilesPerTrigger": "1", "mode": "FAILFAST"}
        df = spark.readStream.schema(columns).options(**options).json(str(self._directory))
        if event_time is not None and in_time:
            return stamped(df, event_time)
        return df if event_time is None else df.where(~F.col(MARKER)).drop(WATERMARK, MARKER)

    def _is_late(self, row: Row, partition: int) -> bool:
        """Tell whether a row comes after the time of its batch, or too far ahead, and take note of its own."""
        at = row.get(self._source.event_time) if self._source.event_time is not None else None
        if at is None:
            return False
        at_ms = _milliseconds(self._time(at))
        if self._is_ahead(at_ms, row.get("_timestamp")):
            return True
        self._highs[partition] = max(at_ms, self._highs.get(partition, at_ms))
        if self._is_table:
            return False
        # Time begins at 1970, as Spark's watermark does.
        return at_ms < max(0, (self._watermark_ms or 0) - self._corrections_ms)

    def _is_ahead(self, at_ms: int, written: object) -> bool:
        ahead_ms = self._source.ahead_ms
        if written is None or ahead_ms is None:
            return False
        return at_ms > _milliseconds(self._time(written)) + ahead_ms

    def _write(self, rows: list[dict[str, Any]]) -> None:
        if self._source.event_time is not None:
            reached = watermark(self._highs, self._highs, self._source.lateness_ms, before=self._watermark_ms)
            self._watermark_ms = reached
            stamp = (
                EPOCH if reached is None else EPOCH + timedelta(milliseconds=reached - self._corrections_ms)
            )
            for row in rows:
                row |= {WATERMARK: stamp, MARKER: False}
            rows = rows or [{WATERMARK: stamp, MARKER: True}]
        path = self._directory / f"{self._written:06}.json"
        path.write_text("".join(json.dumps(row, default=_plain) + "\n" for row in rows))
        # Spark reads files in the order of their times.
        os.utime(path, (self._written, self._written))
        self._written += 1

    def _time(self, value: object) -> datetime:
        try:
            time = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            time = None
        if isinstance(time, datetime):
            return time
        where = f"{self._source.topic}: {self._source.event_time}"
        raise RowsError(f"{where} is {value!r}; give a datetime, or a time as ISO 8601 has it")

    def _refuse_unknown_columns(self, row: Row) -> None:
        known = [field.name for field in self._fields]
        unknown = sorted(row.keys() - set(known) - METADATA.keys())
        if unknown:
            columns = f"its columns are {', '.join(known)}"
            raise RowsError(f"{self._source.topic} has no column {', '.join(unknown)}; {columns}")


def _milliseconds(time: datetime) -> int:
    return (time.replace(tzinfo=time.tzinfo or UTC) - EPOCH) // timedelta(milliseconds=1)


def _plain(value: object) -> object:
    """Return a value as JSON has it: what Spark reads back as the column's type."""
    match value:
        case datetime():
            return (
                value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC).isoformat(timespec="microseconds")
            )
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise RowsError(f"a row holds {value!r}, which has no place in JSON")
