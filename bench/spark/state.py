"""`python -m bench.spark.state WORK`: keyed state, patterns and stored searches, each in a process of its own.

Prints one line of JSON: rows a second, CPU seconds for a million rows, the most memory of all processes, and what
the work found.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StringType

from bench.cep import payments
from bench.process import PeakMemory, tree_cpu_seconds
from bench.spark import events, lookups
from bench.spark.child import MASTER
from headwater.app.durations import milliseconds
from headwater.pipeline.keyed.logic import Logic, Step
from headwater.pipeline.keyed.operator import Output, keyed
from headwater.pipeline.patterns.match import match
from headwater.pipeline.searches.matching import matching
from headwater.pipeline.session import SessionOptions, open_session
from headwater.pipeline.source import TopicSource, read_stream, register

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

Work = Callable[[SparkSession, str], DataFrame]


class Counter(Logic):
    """How many events a key has had, as an operator of ours."""

    def step(
        self, key: tuple[Any, ...], state: bytes | None, rows: list[tuple[Any, ...]], watermark: int
    ) -> Step:
        """Count, and tell."""
        total = len(rows) + (0 if state is None else int.from_bytes(state, "big"))
        return Step(total.to_bytes(8, "big"), [(*key, total)])


class PlainCounter(StatefulProcessor):
    """The same as Spark's documentation has it: one key, its rows, its state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the handle of the state."""
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Count, and tell."""
        import pandas as pd

        total = sum(len(frame) for frame in rows)
        before = self._count.get() if self._count.exists() else None
        total += 0 if before is None else before[0]
        self._count.update((total,))
        yield pd.DataFrame({"k": [key[0]], "n": [total]})

    def close(self) -> None:
        """Leave nothing open."""


def counted(rows: DataFrame) -> DataFrame:
    """Return the count of each key, through our mechanism."""
    outputs = [Output("k", StringType()), Output("n", LongType())]
    return keyed(rows, [F.col("k")], [(F.col("v"), LongType())], None, Counter(), outputs)


def counted_plainly(rows: DataFrame) -> DataFrame:
    """Return the count of each key, through `transformWithStateInPandas` by key."""
    by_key = rows.groupBy("k")
    return by_key.transformWithStateInPandas(PlainCounter(), "k string, n bigint", "Append", "None")


def keyed_work(topic: str, count: Callable[[DataFrame], DataFrame]) -> Work:
    """Return the work that counts the events of a topic in one way or the other."""

    def work(spark: SparkSession, bootstrap: str) -> DataFrame:
        source = TopicSource(
            f"kafka://{bootstrap}", topic, events.SCHEMA, max_rows=events.BATCH, until_now=True
        )
        return count(read_stream(spark, source))

    return work


def match_work(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Look for card testing."""
    source = TopicSource(
        f"kafka://{bootstrap}",
        payments.TOPIC,
        payments.SCHEMA,
        event_time="at",
        lateness_ms=milliseconds(payments.LATENESS),
        max_rows=events.BATCH * 2,
    )
    return match(
        read_stream(spark, source),
        by="card",
        pattern="small{3,} large",
        define={"small": F.col("amount") < payments.SMALL, "large": F.col("amount") > payments.LARGE},
        within=payments.WITHIN,
    )


def searches_work(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Match flats against stored searches."""
    broker = f"kafka://{bootstrap}"
    flats = TopicSource(
        broker,
        events.FLATS,
        events.FLATS_SCHEMA,
        metadata=("_partition", "_offset"),
        max_rows=events.BATCH // 4,
        until_now=True,
    )
    stored = TopicSource(
        broker,
        events.SEARCHES,
        "key string, value string",
        format="raw",
        metadata=("_offset",),
        until_now=True,
    )
    return matching(read_stream(spark, flats), read_stream(spark, stored))


WORK: dict[str, Work] = {
    "keyed": keyed_work(events.FEW_KEYS, counted),
    "keyed-many": keyed_work(events.MANY_KEYS, counted),
    "plain": keyed_work(events.FEW_KEYS, counted_plainly),
    "lookup": lookups.ours,
    "lookup-by-hand": lookups.by_hand,
    "match": match_work,
    "searches": searches_work,
}


@click.command(help=__doc__)
@click.argument("work", type=click.Choice(list(WORK)))
@click.option("--broker", "bootstrap", required=True, metavar="HOST:PORT")
@click.option("--rows", required=True, type=int, help="How many rows there are to read.")
@click.option("--skip", default=0, type=int, help="How many of them are read before the clock is started.")
@click.option("--passes", default=1, show_default=True)
@click.option("--scratch", required=True, type=click.Path(path_type=Path))
def main(work: str, bootstrap: str, rows: int, skip: int, passes: int, scratch: Path) -> None:
    # Every batch is looked at afterwards.
    kept = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    spark = open_session(SessionOptions("bench", scratch / "spark", MASTER, settings=kept))
    register(spark)
    try:
        with PeakMemory(os.getpid()) as memory:
            measured = [
                measure(WORK[work](spark, bootstrap), rows, skip, str(scratch / f"{work}-{number}"))
                for number in range(passes)
            ]
    finally:
        spark.stop()
    best = max(measured, key=lambda each: each["rate"])
    click.echo(json.dumps({**best, "memory": memory.megabytes}))


def measure(frame: DataFrame, rows: int, skip: int, checkpoint: str) -> dict[str, float]:
    """Drain a query; time its batches but those at the beginning that read what is to be skipped."""
    found = {"found": 0, "sum": 0}
    ends: list[tuple[float, float]] = [_now()]

    def keep(batch: DataFrame, _epoch: int) -> None:
        table = batch.toArrow()
        found["found"] += table.num_rows
        if {"card", "start", "end", "rows"} <= set(table.column_names):
            matches = (
                (int(row["card"]), _ms(row["start"]), _ms(row["end"]), row["rows"])
                for row in table.to_pylist()
            )
            found["sum"] += payments.checksum(matches)["sum"]
        ends.append(_now())

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    skipped = batches_of(query, rows, skip)
    counted = sum(each.numInputRows for each in query.recentProgress[skipped:])
    seconds, cpu = (last - first for last, first in zip(ends[-1], ends[skipped], strict=True))
    return {"rate": counted / seconds, "cpu": cpu / counted * 1e6, **found}


def batches_of(query: StreamingQuery, rows: int, skip: int) -> int:
    """Return in how many batches the first `skip` rows were read; all rows have to have been."""
    read = skipped = 0
    for progress in query.recentProgress:
        if read < skip:
            skipped += 1
        read += progress.numInputRows
    if read < rows:
        raise RuntimeError(f"{read} of {rows} rows were read")
    return skipped


def _now() -> tuple[float, float]:
    return time.monotonic(), tree_cpu_seconds(os.getpid())


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


if __name__ == "__main__":
    main()
