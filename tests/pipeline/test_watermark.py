"""The watermark that a source decides, as Spark sees it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.clocks import corrected_time
from headwater.pipeline.source import TopicSource
from headwater.pipeline.watermark import TimeError, event_time_of
from headwater.pipeline.windows import tumbling
from headwater.testing.rows_source import ScriptedTopic

from . import streams

pytestmark = pytest.mark.real

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def ms(second: float) -> int:
    return streams.micros(at(second)) // 1000


def ticks(directory: Path, steps: Iterable[list[tuple[str, float]] | int], **options: Any) -> ScriptedTopic:
    """A topic of keys at times; a number between batches is a second that time moves to without a record."""
    columns = "k string, t timestamp"
    topic = ScriptedTopic(
        directory, TopicSource("kafka://rows:9092", "ticks", columns, event_time="t", **options)
    )
    for step in steps:
        if isinstance(step, int):
            topic.advance_to(ms(step))
        else:
            topic.write({"k": key, "t": at(second)} for key, second in step)
    return topic


def counted(frame: DataFrame) -> DataFrame:
    return frame.transform(tumbling("t", "10 seconds")).groupBy("window").agg(F.count("*").alias("n"))


def by_second(rows: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, float, int]]:
    return [(epoch, (row["window"]["start"] - NOON).total_seconds(), row["n"]) for epoch, row in rows]


def test_time_goes_on_where_no_row_passes_a_filter(spark: SparkSession, tmp_path: Path) -> None:
    """Spark pushes filters below its watermark, which would then not see what they drop, or a marker."""
    topic = ticks(tmp_path / "topic", [[("a", 1), ("b", 2)], [("b", 10)], 20, [("b", 25)], 40])
    frame = counted(topic.read(spark).where("k = 'a' or t is null").where(F.length("k") > 0))
    assert by_second(streams.run(frame, tmp_path / "checkpoint")) == [(2, 0, 1)]


def test_a_window_closes_when_the_watermark_reaches_its_end(spark: SparkSession, tmp_path: Path) -> None:
    topic = ticks(tmp_path / "topic", [[("a", 1)], [("a", 9.999)], [("a", 10)], [("a", 10)], [("a", 19.999)]])
    assert by_second(streams.run(counted(topic.read(spark)), tmp_path / "checkpoint")) == [(3, 0, 2)]


def test_the_slowest_source_of_a_query_says_what_time_it_is(spark: SparkSession, tmp_path: Path) -> None:
    fast = ticks(tmp_path / "fast", [[("a", 1)], [("a", 50)], 60, 70])
    slow = ticks(tmp_path / "slow", [[("a", 2)], [("a", 3)], 10, 15])
    frame = counted(fast.read(spark).unionByName(slow.read(spark)))
    assert by_second(streams.run(frame, tmp_path / "checkpoint")) == [(3, 0, 3)]


def test_late_events_correct_what_was_published(spark: SparkSession, tmp_path: Path) -> None:
    steps: list[Any] = [[("a", 5)], [("a", 30)], [("a", 6)], [("a", 130)], [("a", 7)]]
    topic = ticks(tmp_path / "topic", steps, late="correct", corrections_ms=60_000)
    updates = by_second(streams.run(counted(topic.read(spark)), tmp_path / "checkpoint", "update"))
    assert [(start, n) for _, start, n in updates] == [(0, 1), (30, 1), (0, 2), (130, 1)]
    assert [row["t"] for row in topic.late] == [at(7)]


def test_duplicates_are_dropped_until_time_has_passed_them(spark: SparkSession, tmp_path: Path) -> None:
    topic = ticks(tmp_path / "topic", [[("a", 1), ("b", 2)], [("a", 3)], 20, 30, [("a", 31)]])
    frame = topic.read(spark).dropDuplicatesWithinWatermark(["k"])
    found = streams.run(frame, tmp_path / "checkpoint")
    assert sorted((epoch, row["k"]) for epoch, row in found) == [(0, "a"), (0, "b"), (4, "a")]


def test_wrong_clocks_are_corrected_and_windowed(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k string, occurred timestamp, sent timestamp, received timestamp"
    source = TopicSource("kafka://rows:9092", "readings", columns, event_time="received", lateness_ms=60_000)
    topic = ScriptedTopic(tmp_path / "topic", source)
    # Clocks that are days off; each reading was held for some seconds before it was sent.
    batch = [
        {"k": str(n), "occurred": at(off), "sent": at(off + held), "received": at(arrived)}
        for n, (off, held, arrived) in enumerate([(90_000, 5, 12), (-400_000, 20, 21), (0.5, 0, 3)])
    ]
    topic.write(batch)
    topic.advance_to(ms(120))
    frame = topic.read(spark).withColumn("t", corrected_time("occurred", "sent", "received"))
    # Corrected to seconds 7, 1 and 3.
    assert by_second(streams.run(counted(frame), tmp_path / "checkpoint")) == [(2, 0, 3)]


def test_a_frame_without_event_time_is_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = ticks(tmp_path / "topic", []).read(spark)
    assert event_time_of(frame, "it") == "t"
    with pytest.raises(TimeError, match="it has no event time; declare event_time="):
        event_time_of(frame.select("k"), "it")
    with pytest.raises(TimeError, match=r"it has several event-time columns \(t, u\); select one"):
        event_time_of(frame.withColumn("u", F.col("t")), "it")
