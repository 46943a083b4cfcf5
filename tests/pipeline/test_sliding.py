"""`sliding` in Spark: every event's window, out of order and late, over several batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.core.errors import SettingError
from headwater.pipeline.sliding import sliding
from headwater.pipeline.watermark import TimeError

from . import streams
from .streams import Events, closes_in, micros, random_events

pytestmark = pytest.mark.real

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
LAST = 45_000_000


def test_every_event_gets_a_result_as_time_passes_it(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(11, start=START, spread=timedelta(minutes=1), keys=12, rows=200)
    frame = streams.stream(spark, tmp_path / "topic", events)
    frame = frame.withColumn(
        "extra", F.struct(F.col("t").alias("at"), F.lit(1.5).cast("decimal(5,2)").alias("price"))
    )
    wanted = {"n": "count(*)", "total": "sum(v)", "mean": "mean(v)", "low": "min(v)", "high": "max(v)"}
    result = sliding(frame, "t", "45 seconds", by="k", aggregate=wanted)
    assert result.schema["extra"].dataType == frame.schema["extra"].dataType
    found = sorted(
        (
            row["k"],
            micros(row["t"]),
            row["v"],
            epoch,
            row["n"],
            row["total"],
            row["mean"],
            row["low"],
            row["high"],
        )
        for epoch, row in streams.run(
            result.where("extra.at = t and extra.price = 1.5"), tmp_path / "checkpoint"
        )
    )
    on_time = events.on_time()
    expected = []
    for row in on_time:
        values = [
            each["v"] for each in on_time if each["k"] == row["k"] and row["t"] - LAST < each["t"] <= row["t"]
        ]
        epoch = closes_in(events.watermarks, row["t"] + 1)
        if epoch is not None:
            total = sum(values)
            aggregates = (len(values), total, total / len(values), min(values), max(values))
            expected.append((row["k"], row["t"], row["v"], epoch, *aggregates))
    assert len(expected) > 500
    assert found == sorted(expected)


def test_what_sliding_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = streams.stream(spark, tmp_path / "topic", Events([], [], 0))
    for aggregate, problem in (
        ({"n": "median(v)"}, "n='median\\(v\\)' is no aggregate; use count"),
        ({"n": "sum(w)"}, "there is no column 'w'; the columns are k, t, v"),
        ({"v": "count(*)"}, "aggregate= names v; give new columns"),
    ):
        with pytest.raises(TimeError, match=problem):
            sliding(frame, "t", "1 minute", by="k", aggregate=aggregate)
    with pytest.raises(TimeError, match="sliding by who; the columns are k, t, v"):
        sliding(frame, "t", "1 minute", by="who", aggregate={"n": "count(*)"})
    with pytest.raises(TimeError, match="sliding needs an event time, and v is none"):
        sliding(frame, "v", "1 minute", by="k", aggregate={"n": "count(*)"})
    with pytest.raises(SettingError, match="last='0 seconds' is no time at all"):
        sliding(frame, "t", "0 seconds", by="k", aggregate={"n": "count(*)"})
