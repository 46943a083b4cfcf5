"""Spark's state of one bucket, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa

from headwater.pipeline.packing import frame, tables


def given(columns: str, rows: list[tuple[Any, ...]]) -> Iterator[pd.DataFrame]:
    """Return rows as a processor is given them."""
    names = columns.split()
    yield frame(pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)}))


def made(frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
    """Return the rows that a processor has made."""
    return [tuple(row.values()) for table in tables(frames) for row in table.to_pylist()]


@dataclass
class Spark:
    """What the processor sees of Spark's state, for one bucket."""

    entries: list[tuple[bytes]] = field(default_factory=list)
    head: tuple[Any, ...] | None = None
    timers: set[int] = field(default_factory=set)
    watermark_ms: int = 0

    def getListState(self, name: str, schema: str) -> Entries:
        return Entries(self)

    def getValueState(self, name: str, schema: str) -> Head:
        return Head(self)

    def registerTimer(self, at: int) -> None:
        self.timers.add(at)

    def deleteTimer(self, at: int) -> None:
        self.timers.remove(at)

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms


@dataclass
class Entries:
    spark: Spark

    def get(self) -> Iterator[tuple[bytes]]:
        return iter(list(self.spark.entries))

    def put(self, entries: list[tuple[bytes]]) -> None:
        self.spark.entries = list(entries)

    def appendList(self, entries: list[tuple[bytes]]) -> None:
        self.spark.entries += entries


@dataclass
class Head:
    spark: Spark

    def get(self) -> tuple[Any, ...] | None:
        return self.spark.head

    def update(self, head: tuple[Any, ...]) -> None:
        self.spark.head = head
