"""Operators with keyed state in Spark: over several batches, out of order, with every type of column."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.deduplicate import deduplicate
from headwater.pipeline.duplicates import Deduplicate
from headwater.pipeline.patterns.engine import Match
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.match import match
from headwater.pipeline.watermark import TimeError

from . import streams
from .streams import Events, micros, random_events

pytestmark = pytest.mark.real

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


def some_events(seed: int) -> Events:
    return random_events(seed, start=START, spread=timedelta(minutes=2), keys=6, rows=150, batches=5)


def by_key(events: Events) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in events.on_time():
        grouped[row["k"]].append(row)
    return grouped


def test_a_pattern_is_found_as_the_engine_finds_it(spark: SparkSession, tmp_path: Path) -> None:
    events = some_events(3)
    frame = streams.stream(spark, tmp_path / "topic", events)
    measures = {
        "begins": "start()",
        "values": "collect(v)",
        "times": "collect(t)",
        "path": "collect(classifier())",
    }
    found = match(
        frame,
        by="k",
        pattern="even (-> odd){2,} -> even",
        define={"even": F.col("v") % 2 == 0, "odd": (F.col("v") % 2 == 1, "v > even.v")},
        within="1 minute",
        measures=measures,
        skip="to next row",
    )
    assert [field.dataType.simpleString() for field in found.schema] == [
        frame.schema["k"].dataType.simpleString(),
        "timestamp",
        f"array<{frame.schema['v'].dataType.simpleString()}>",
        "array<timestamp>",
        "array<string>",
    ]
    rows = sorted(
        (row["k"], micros(row["begins"]), row["values"], [micros(each) for each in row["times"]], row["path"])
        for _, row in streams.run(found, tmp_path / "checkpoint")
    )
    engine = Match(
        "even (-> odd){2,} -> even",
        ("t", "v"),
        conditions={"odd": "v > even.v"},
        within=60_000_000,
        measures=measures,
        skip="to next row",
    )
    end = events.watermarks[-1] * 1000
    expected = []
    for key, some in by_key(events).items():
        mask = {0: 1, 1: 2}
        done = engine.step(
            (key,), None, [(row["t"], 0, 0, mask[row["v"] % 2], row["t"], row["v"]) for row in some], end
        )
        expected += [
            (row[1], row[2], list(row[3]), list(row[4]), list(row[5])) for row in done.out if not row[0]
        ]
    assert len(expected) > 20
    assert rows == sorted(expected)


def test_duplicates_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    events = some_events(5)
    frame = streams.stream(spark, tmp_path / "topic", events)
    extra = F.struct(F.col("t").alias("at"), F.lit("2026-01-02").cast("date").alias("day"))
    frame = frame.withColumn("extra", extra).withColumn("none", F.lit(None).cast("bigint"))
    result = deduplicate(frame, by="k", within="10 seconds", ordered=True)
    assert result.schema["extra"].dataType == frame.schema["extra"].dataType
    rows = [row for _, row in streams.run(result, tmp_path / "checkpoint")]
    assert all(row["extra"]["at"] == row["t"] and row["none"] is None for row in rows)
    logic = Deduplicate(10_000_000, ordered=True)
    end = events.watermarks[-1] * 1000
    expected = []
    for key, some in by_key(events).items():
        done = logic.step((key,), None, [(row["t"], 0, 0, row["t"], row["v"]) for row in some], end)
        expected += [(key, time, value) for time, value in done.out]
    assert len(expected) > 20
    assert sorted((row["k"], micros(row["t"]), row["v"]) for row in rows) == sorted(expected)


def test_what_they_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = streams.stream(spark, tmp_path / "topic", Events([], [], 0))
    with pytest.raises(PatternError, match="match by who; the columns are k, t, v"):
        match(frame, by="who", pattern="a", define={})
    with pytest.raises(PatternError, match="define= has b, which is not in the pattern; it has a"):
        match(frame, by="k", pattern="a", define={"b": F.col("v") > 1})
    with pytest.raises(TimeError, match="deduplicate by who"):
        deduplicate(frame, by="who", within="1 minute")
    with pytest.raises(TimeError, match="has no event time"):
        deduplicate(frame.select("k", "v"), by="k", within="1 minute")
