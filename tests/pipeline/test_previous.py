"""Intervals against earlier ones in Spark, beside the same worked out by hand."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import App, tumbling, versus_previous
from headwater.core.errors import SettingError
from headwater.pipeline.watermark import TimeError
from headwater.testing import replay, run_app

from . import streams
from .streams import Events, micros, random_events

pytestmark = pytest.mark.real

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
MINUTE = 60_000_000


def test_closed_windows_against_earlier_ones(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(5, start=START, spread=timedelta(minutes=5), keys=3, rows=60, batches=5)
    frame = streams.stream(spark, tmp_path / "topic", events)
    counts = frame.transform(tumbling("t", "1 minute")).groupBy("window", "k").agg(F.count("*").alias("n"))
    result = versus_previous(counts, "n", ["1 minute", "3 minutes"], by="k")
    kinds = [field.dataType.simpleString() for field in result.schema]
    compared = ["bigint", "bigint", "double", "boolean"]
    assert kinds == ["struct<start:timestamp,end:timestamp>", "string", "bigint", *compared, *compared]
    assert result.columns[3:7] == [
        "previous_1_minute",
        "change_1_minute",
        "ratio_1_minute",
        "missing_1_minute",
    ]
    found: dict[tuple[str, int], list[Any]] = {}
    for _, row in streams.run(result, tmp_path / "checkpoint"):
        found[row["k"], micros(row["window"]["start"])] = list(row.values())[2:]
    closed = Counter((row["k"], row["t"] // MINUTE * MINUTE) for row in events.on_time())
    closed = Counter({key: n for key, n in closed.items() if key[0] != "end"})
    wanted = {}
    for (key, start), n in closed.items():
        expected: list[Any] = [n]
        for period in (MINUTE, 3 * MINUTE):
            before = closed.get((key, start - period))
            if before is None:
                expected += [None, None, None, True]
            else:
                expected += [before, n - before, n / before, False]
        wanted[key, start] = expected
    assert found == wanted
    assert {row[4] for row in wanted.values()} == {True, False}


def declared() -> App:
    app = App("sales")
    app.topic("hours", "shop string, revenue double, at timestamp", event_time="at", lateness="3 hours")
    return app


def hour(number: int, revenue: float | None) -> dict[str, Any]:
    return {
        "shop": "a",
        "revenue": revenue,
        "at": datetime(2026, 3, 28, tzinfo=UTC) + timedelta(hours=number),
    }


def test_intervals_that_come_late_and_again_correct_what_was_compared_with_them() -> None:
    app = declared()

    @app.view(key=["at", "shop"])
    def growth(hours: DataFrame) -> DataFrame:
        return versus_previous(hours, "revenue", ["1 hour", "1 day"], by="shop", interval="1 hour")

    @app.stream(key="at")
    def overall(hours: DataFrame) -> DataFrame:
        return versus_previous(
            hours.drop("shop"), "revenue", ["1 day"], interval="1 hour", tz="Europe/Berlin"
        )

    batches = [
        [hour(0, 4.0), hour(2, 8.0), hour(1, None)],
        [hour(0, 5.0), hour(3, 0.0)],
        [hour(4, 1.0)],
        [hour(1, 10.0)],
        [hour(24, 15.0), hour(27, 3.0)],
        [hour(1, 99.0)],  # too late: the stream drops it
        [hour(25, 20.0)],
    ]
    outputs = run_app(app, {"hours": batches})
    rows = {int((row["at"] - hour(0, 0)["at"]) / timedelta(hours=1)): row for row in outputs["growth"]}
    last = {
        n: [row[f"{what}_1_hour"] for what in ("previous", "change", "ratio", "missing")]
        for n, row in rows.items()
    }
    assert last == {
        0: [None, None, None, True],
        1: [5.0, 5.0, 2.0, False],
        2: [10.0, -2.0, 0.8, False],
        3: [8.0, -8.0, 0.0, False],
        4: [0.0, 1.0, None, False],
        24: [None, None, None, True],
        25: [15.0, 5.0, pytest.approx(4 / 3), False],
        27: [None, None, None, True],
    }
    days = {n: (row["previous_1_day"], row["ratio_1_day"]) for n, row in rows.items() if n >= 24}
    assert days == {24: (5.0, 3.0), 25: (10.0, 2.0), 27: (0.0, None)}
    # In Berlin the clocks went forward with hour 25: from then on the day before lies 23 hours back.
    told = {
        int((row["at"] - hour(0, 0)["at"]) / timedelta(hours=1)): row["previous_1_day"]
        for row in outputs["overall"]
    }
    assert {n: told[n] for n in (24, 25, 27)} == {24: 5.0, 25: 8.0, 27: 1.0}


def test_a_crash_around_every_commit_changes_nothing() -> None:
    app = declared()

    @app.view(key=["window", "shop"])
    def growth(hours: DataFrame) -> DataFrame:
        sums = (
            hours.transform(tumbling("at", "1 hour"))
            .groupBy("window", "shop")
            .agg(F.sum("revenue").alias("sum"))
        )
        return versus_previous(sums, "sum", ["1 hour"], by="shop")

    outputs = replay(app, {"hours": [[hour(0, 4.0), hour(1, 6.0)], [hour(9, 1.0)]]})
    assert [(row["sum"], row["previous_1_hour"]) for row in outputs["growth"]] == [(4.0, None), (6.0, 4.0)]


def test_what_cannot_be_compared_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = streams.stream(spark, tmp_path / "topic", Events([], [], 0))
    with pytest.raises(
        TimeError, match="versus_previous of n, and there is no such column; the columns are k, t, v"
    ):
        versus_previous(frame, "n", ["1 day"])
    with pytest.raises(TimeError, match=r"does not know what k is to it: name it in by="):
        versus_previous(frame, "v", ["1 day"], interval="1 hour")
    with pytest.raises(TimeError, match=r'how long an interval is; give it, as in interval="1 hour"'):
        versus_previous(frame, "v", ["1 day"], by="k")
    with pytest.raises(TimeError, match="compares numbers, and k is a string"):
        versus_previous(frame, "k", ["1 day"])
    with pytest.raises(TimeError, match="'Berlin' is no time zone"):
        versus_previous(frame, "v", ["1 day"], by="k", interval="1 hour", tz="Berlin")
    with pytest.raises(SettingError, match="'90 minutes' is not a multiple"):
        versus_previous(frame, "v", ["90 minutes"], by="k", interval="1 hour")
    with pytest.raises(TimeError, match="has no event time"):
        versus_previous(frame.select("k", "v"), "v", ["1 day"], by="k", interval="1 hour")
