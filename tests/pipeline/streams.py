"""Random events in batches, what a source makes of their times, and a query over them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline.source import TopicSource
from headwater.testing.rows_source import ScriptedTopic

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Events:
    """Batches of rows with a time `t` in µs since 1970, and the watermark in ms after each batch."""

    batches: list[list[Row]]
    watermarks: list[int]
    lateness_ms: int

    def arrivals(self) -> list[tuple[int, Row]]:
        """The events that are not late, each with the number of its batch: the rule, written out once more."""
        found = []
        for number, batch in enumerate(self.batches):
            before = self.watermarks[number - 1] if number else None
            found += [(number, row) for row in batch if before is None or row["t"] >= before * 1000]
        return found

    def on_time(self) -> list[Row]:
        return [row for _, row in self.arrivals()]


def random_events(
    seed: int,
    *,
    start: datetime,
    spread: timedelta,
    batches: int = 4,
    rows: int = 150,
    partitions: int = 3,
    keys: int = 40,
    unit: int = 1,
) -> Events:
    """Events whose time goes on from batch to batch, out of order, some late; the last batch ends far ahead.

    Times are whole multiples of `unit` µs.
    """
    rng = random.Random(seed)
    lateness_ms = int(spread / timedelta(milliseconds=1)) // 4
    step = int(spread / timedelta(microseconds=1))
    origin = int((start - EPOCH) / timedelta(microseconds=1))
    highs: dict[int, int] = {}
    made: list[list[Row]] = []
    watermarks: list[int] = []
    for number in range(batches):
        batch: list[Row] = []
        for _ in range(rows):
            at = origin + number * step + int(rng.triangular(-step, step, step // 2))
            key = f"k{rng.randrange(keys)}"
            batch.append(
                {"k": key, "t": at // unit * unit, "v": rng.randrange(100), "p": rng.randrange(partitions)}
            )
        if number == batches - 1:
            batch += [{"k": "end", "t": origin + 40 * step, "v": 0, "p": each} for each in range(partitions)]
        made.append(batch)
        for row in batch:
            highs[row["p"]] = max(highs.get(row["p"], 0), row["t"] // 1000)
        watermarks.append(max(min(highs.values()) - lateness_ms, *watermarks[-1:], 0))
    return Events(made, watermarks, lateness_ms)


def topic(directory: Path, events: Events, columns: str = "k string, t timestamp, v int") -> ScriptedTopic:
    """Write events as a scripted topic whose columns are called as `columns` says, in the order key, time, value."""
    names = [column.split()[0] for column in columns.split(", ")]
    source = TopicSource(
        "kafka://rows:9092", names[1], columns, event_time=names[1], lateness_ms=events.lateness_ms
    )
    written = ScriptedTopic(directory, source)
    for batch in events.batches:
        write(written, batch, names)
    return written


def write(written: ScriptedTopic, batch: list[Row], names: Sequence[str] = ("k", "t", "v")) -> None:
    """Add a batch to a scripted topic."""
    values = ((row["p"], (row["k"], EPOCH + timedelta(microseconds=row["t"]), row["v"])) for row in batch)
    written.write({"_partition": part, **dict(zip(names, row, strict=True))} for part, row in values)


def run(frame: DataFrame, checkpoint: Path, mode: str = "append") -> list[tuple[int, Row]]:
    """Return the rows of a query, each with the number of the batch that it came out of."""
    found: list[tuple[int, Row]] = []

    def keep(batch: DataFrame, epoch: int) -> None:
        found.extend((epoch, row) for row in batch.toArrow().to_pylist())

    writer = frame.writeStream.foreachBatch(keep).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        return found
    finally:
        query.stop()


def micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def closes_in(watermarks: list[int], at: int) -> int | None:
    """Return the batch in which something comes out that waits for the watermark `at`, in µs.

    It is the one after the batch that brings the watermark.
    """
    return next((number + 1 for number, each in enumerate(watermarks) if each * 1000 >= at), None)


def stream(spark: SparkSession, directory: Path, events: Events) -> DataFrame:
    return topic(directory, events).read(spark)
