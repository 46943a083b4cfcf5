"""`summarise` on Spark: what `groupBy().agg()` gives, and when a window closes."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.core.errors import HeadwaterError
from headwater.pipeline.summarise import summarise
from headwater.pipeline.windows import session, tumbling

from . import streams
from .streams import closes_in, random_events
from .test_windows import BERLIN_SPRING, KINDS, bounds

pytestmark = pytest.mark.real


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_summed_up_when_they_close(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    transform, windows_of = KINDS[kind]
    spread = timedelta(days=1) if kind == "local days" else timedelta(seconds=40)
    events = random_events(len(kind), start=BERLIN_SPRING, spread=spread)
    frame = streams.stream(spark, tmp_path / "topic", events).transform(transform)
    summed = summarise(frame, "k", {"sum": "sum(v)", "n": "count(*)", "most": "max(v)"})
    got = streams.run(summed, tmp_path / "checkpoint")
    found = {(bounds(row), row["k"]): (epoch, row["sum"], row["n"], row["most"]) for epoch, row in got}
    sums: dict[Any, list[int]] = defaultdict(list)
    for row in events.on_time():
        for window in windows_of(row["t"]):
            sums[window, row["k"]].append(row["v"])
    expected = {
        (window, key): (epoch, sum(values), len(values), max(values))
        for (window, key), values in sums.items()
        if (epoch := closes_in(events.watermarks, window[1])) is not None
    }
    assert len(expected) > 50
    assert len(got) == len(found)
    assert found == expected


def test_results_have_the_types_and_nulls_that_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(3, start=BERLIN_SPRING, spread=timedelta(seconds=40))

    def typed(directory: str) -> DataFrame:
        v = F.when(F.col("v") % 5 != 0, F.col("v"))
        return (
            streams.stream(spark, tmp_path / directory, events)
            .withColumn("big", v.cast("bigint") + (1 << 60))
            .withColumn("money", (v / 8).cast("decimal(12,3)"))
            .withColumn("ratio", v / 7)
            .withColumn("word", v.cast("string"))
            .withColumn("day", F.date_add(F.lit("2026-01-01").cast("date"), v))
            .withColumn("at", F.col("t"))
            .withColumn("some", F.when(F.col("v") % 3 == 0, F.col("big")))
            .withColumn("yes", F.col("v") % 2 == 0)
            .transform(tumbling("t", "10 seconds"))
        )

    named = {
        "total": "sum(v)", "values": "count(some)", "money": "sum(money)", "mean": "mean(ratio)",
        "first": "min(at)", "last": "max(day)", "word": "min(word)", "most": "max(big)",
    }  # fmt: skip
    theirs = typed("theirs").groupBy("window", "some", "yes").agg(
        F.sum("v").alias("total"), F.count("some").alias("values"), F.sum("money").alias("money"),
        F.avg("ratio").alias("mean"), F.min("at").alias("first"), F.max("day").alias("last"),
        F.min("word").alias("word"), F.max("big").alias("most"),
    )  # fmt: skip
    ours = summarise(typed("ours"), ["some", "yes"], named)
    assert [(field.name, field.dataType) for field in ours.schema] == [
        (field.name, field.dataType) for field in theirs.schema
    ]
    wanted = _by_group(streams.run(theirs, tmp_path / "their-checkpoint"))
    found = _by_group(streams.run(ours, tmp_path / "our-checkpoint"))
    assert len(wanted) > 20
    assert any(group[1] is None for group in wanted)
    assert any(isinstance(row["money"], Decimal) for row in wanted.values())
    assert found == wanted


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(8, start=BERLIN_SPRING, spread=timedelta(seconds=40))
    first = streams.Events(events.batches[:2], events.watermarks[:2], events.lateness_ms)
    topic = streams.topic(tmp_path / "topic", first)
    summed = summarise(topic.read(spark).transform(tumbling("t", "10 seconds")), "k", {"n": "count(*)"})
    got = streams.run(summed, tmp_path / "checkpoint")
    for batch in events.batches[2:]:
        streams.write(topic, batch)
        got += streams.run(summed, tmp_path / "checkpoint")
    counts: dict[Any, int] = defaultdict(int)
    for row in events.on_time():
        counts[row["t"] // 10_000_000, row["k"]] += 1
    closed = {key: n for key, n in counts.items() if (key[0] + 1) * 10_000 <= events.watermarks[-1]}
    assert len(got) == len(closed) > 50
    assert {(bounds(row)[0] // 10_000_000, row["k"]): row["n"] for _, row in got} == closed


@pytest.mark.parametrize(
    ("by", "results", "problem"),
    [
        ("user", {"n": "count(*)"}, "summarise by user; there are k, t, v, beside the window"),
        ("k", {}, "aggregate= names nothing; give columns"),
        ("k", {"n": "median(v)"}, "is no aggregate; use count"),
        ("k", {"n": "sum(amount)"}, "there is no column 'amount'; the columns are k, t, v"),
        ("k", {"n": "mean(k)"}, "k is string, of which there is no mean"),
    ],
)
def test_what_cannot_be_summed_up_is_refused(
    spark: SparkSession, tmp_path: Path, by: str, results: dict[str, str], problem: str
) -> None:
    events = random_events(1, start=BERLIN_SPRING, spread=timedelta(seconds=40), batches=1, rows=1)
    frame = streams.stream(spark, tmp_path / "topic", events).transform(tumbling("t", "10 seconds"))
    with pytest.raises(HeadwaterError, match=problem):
        summarise(frame, by, results)


def test_windows_that_never_close_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(datetime(2026, 1, 1), 1)], "t timestamp, v int")
    with pytest.raises(HeadwaterError, match="has no event time"):
        summarise(rows.transform(tumbling("t", "1 minute")), (), {"n": "count(*)"})
    with pytest.raises(HeadwaterError, match="finds no column window"):
        summarise(rows, (), {"n": "count(*)"})
    events = random_events(1, start=BERLIN_SPRING, spread=timedelta(seconds=40), batches=1, rows=1)
    sessions = streams.stream(spark, tmp_path / "topic", events).transform(session("t", "1 minute"))
    with pytest.raises(HeadwaterError, match="does not take session windows"):
        summarise(sessions, "k", {"n": "count(*)"})


def _by_group(got: list[tuple[int, streams.Row]]) -> dict[Any, Any]:
    found = {}
    for epoch, row in got:
        mean = row.pop("mean")
        group = (bounds(row), row["some"], row["yes"])
        found[group] = {**row, "mean": None if mean is None else pytest.approx(mean), "epoch": epoch}
    return found
