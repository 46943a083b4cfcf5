"""Joins of two streams against a reference in plain Python: the pairs, the lonely, and when they come."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.joins import How, join_within
from headwater.pipeline.source import TopicSource
from headwater.pipeline.watermark import TimeError
from headwater.pipeline.windows import tumbling
from headwater.testing.rows_source import ScriptedTopic

from . import streams
from .streams import Events, closes_in, micros, random_events

pytestmark = pytest.mark.real

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
WITHIN = 20_000_000


def two_sides() -> tuple[Events, Events]:
    # Times in whole seconds, so that many pairs lie exactly as far apart as is allowed.
    spread = timedelta(seconds=60)
    left = random_events(1, start=START, spread=spread, keys=60, partitions=2, unit=1_000_000)
    right = random_events(2, start=START, spread=spread, keys=60, partitions=3, rows=120, unit=1_000_000)
    return left, right


def expected(left: Events, right: Events, how: How) -> Counter[Any]:
    """Rows (batch, key, left time and value, right time and value) as they must come out."""
    rows: Counter[Any] = Counter()
    matched: set[tuple[str, int]] = set()
    lefts, rights = left.arrivals(), right.arrivals()
    for one, (batch, a) in enumerate(lefts):
        for other, (late, b) in enumerate(rights):
            if a["k"] == b["k"] and abs(a["t"] - b["t"]) <= WITHIN:
                matched |= {("left", one), ("right", other)}
                rows[max(batch, late), a["k"], a["t"], a["v"], b["t"], b["v"]] += 1
    watermarks = [min(pair) for pair in zip(left.watermarks, right.watermarks, strict=True)]
    for side, arrivals in (("left", lefts), ("right", rights)):
        for number, (_, row) in enumerate(arrivals):
            batch_of = closes_in(watermarks, row["t"] + WITHIN + 1)
            if how in (side, "full") and (side, number) not in matched and batch_of is not None:
                own, other_side = (row["t"], row["v"]), (None, None)
                pair = (*own, *other_side) if side == "left" else (*other_side, *own)
                rows[batch_of, row["k"], *pair] += 1
    return rows


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_pairs_and_the_unmatched_come_as_soon_as_they_can(
    spark: SparkSession, tmp_path: Path, how: How
) -> None:
    left, right = two_sides()
    a = streams.topic(tmp_path / "left", left, "k string, at timestamp, v int").read(spark)
    b = streams.topic(tmp_path / "right", right, "k string, seen timestamp, w int").read(spark)
    joined = join_within(a, b, on="k", within="20 seconds", how=how)
    assert joined.columns == ["k", "at", "v", "seen", "w"]
    found = Counter(
        (epoch, row["k"], _micros(row["at"]), row["v"], _micros(row["seen"]), row["w"])
        for epoch, row in streams.run(joined, tmp_path / "checkpoint")
    )
    wanted = expected(left, right, how)
    assert len(wanted) > 200
    assert any(abs(row[2] - row[4]) == WITHIN for row in wanted if row[2] and row[4])
    assert found == wanted


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_null_key_and_a_null_time_meet_nothing_and_come_out_at_once(
    spark: SparkSession, tmp_path: Path, how: How
) -> None:
    sides = {}
    for name, time in (("left", "at"), ("right", "seen")):
        source = TopicSource("kafka://rows:9092", name, f"k string, {time} timestamp", event_time=time)
        topic = ScriptedTopic(tmp_path / name, source)
        topic.write([{"k": "a", time: START}, {"k": None, time: START}, {"k": "b", time: None}])
        sides[name] = topic.read(spark)
    joined = join_within(sides["left"], sides["right"], on="k", within="20 seconds", how=how)
    found = streams.run(joined, tmp_path / "checkpoint")
    at_once = [tuple(row.values()) for epoch, row in found if epoch == 0]
    lonely: dict[str, list[Any]] = {
        "left": [("b", None, None), (None, START, None)],
        "right": [("b", None, None), (None, None, START)],
    }
    sides_out = [side for side in lonely if how in (side, "full")]
    wanted = [("a", START, START), *[row for side in sides_out for row in lonely[side]]]
    assert Counter(at_once) == Counter(wanted)
    assert len(found) == len(wanted)


def test_state_is_evicted_and_a_window_over_a_join_closes(spark: SparkSession, tmp_path: Path) -> None:
    left, right = two_sides()
    a = streams.topic(tmp_path / "left", left, "k string, at timestamp, v int").read(spark)
    b = streams.topic(tmp_path / "right", right, "k string, seen timestamp, w int").read(spark)
    joined = join_within(a, b, on="k", within="20 seconds").transform(tumbling("at", "1 minute"))
    counted = joined.groupBy("window").agg(F.count("*").alias("n"))
    found: dict[int, int] = {}

    def keep(batch: Any, _epoch: int) -> None:
        found.update({micros(row["window"]["start"]): row["n"] for row in batch.toArrow().to_pylist()})

    writer = counted.writeStream.foreachBatch(keep).outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        kept = [operator["numRowsTotal"] for operator in query.recentProgress[-1]["stateOperators"]]
    finally:
        query.stop()
    wanted: Counter[int] = Counter()
    for (_, key, at, _v, _seen, _w), times in expected(left, right, "inner").items():
        if key != "end":
            wanted[at // 60_000_000 * 60_000_000] += times
    assert found == wanted
    # What is left is the events far ahead that moved time.
    assert sum(kept) <= 2 * (2 + 3) + 1


def test_columns_that_clash_or_are_missing_are_named(spark: SparkSession, tmp_path: Path) -> None:
    none = Events([], [], 0)
    a = streams.topic(tmp_path / "left", none, "k string, at timestamp, v int").read(spark)
    b = streams.topic(tmp_path / "right", none, "k string, seen timestamp, v int").read(spark)
    with pytest.raises(TimeError, match=r"both sides of join_within have v; rename them on one side"):
        join_within(a, b, on="k", within="1 minute")
    with pytest.raises(TimeError, match=r"the right side of join_within has no column at; it has k, seen, v"):
        join_within(a, b, on=["k", "at"], within="1 minute")
    with pytest.raises(
        TimeError, match=r"the right side of join_within has no event time; declare event_time="
    ):
        join_within(a, b.select("k", "v"), on="k", within="1 minute")
    with pytest.raises(TimeError, match="is no join"):
        join_within(a, b.drop("v"), on="k", within="1 minute", how="cross")  # type: ignore[arg-type]


def _micros(time: datetime | None) -> int | None:
    return None if time is None else micros(time)
