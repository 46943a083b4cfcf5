"""Windows against a reference in plain Python: which events they hold, and when they close."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.core.errors import HeadwaterError
from headwater.pipeline.windows import Transform, hopping, session, tumbling

from . import streams
from .streams import EPOCH, Events, closes_in, micros, random_events

pytestmark = pytest.mark.real

Window = tuple[int, int]
SECOND = 1_000_000
BERLIN_SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)


def fixed(size: int, every: int) -> Callable[[int], list[Window]]:
    """Windows of `size` µs that start every `every` µs."""

    def of(at: int) -> list[Window]:
        first = at // every * every
        starts = range(first, at - size, -every)
        return [(start, start + size) for start in starts if start <= at < start + size]

    return of


def local_days(zone: str) -> Callable[[int], list[Window]]:
    def of(at: int) -> list[Window]:
        day = (EPOCH + timedelta(microseconds=at)).astimezone(ZoneInfo(zone)).date()
        return [(midnight(day, zone), midnight(day + timedelta(days=1), zone))]

    return of


def midnight(day: date, zone: str) -> int:
    """The first instant of a local day, found by going through all of them rather than by arithmetic."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=16)
    while at.astimezone(ZoneInfo(zone)).date() < day:
        at += timedelta(minutes=15)
    return micros(at)


KINDS: dict[str, tuple[Transform, Callable[[int], list[Window]]]] = {
    "tumbling": (tumbling("t", "10 seconds"), fixed(10 * SECOND, 10 * SECOND)),
    "overlapping": (hopping("t", "30 seconds", "10 seconds"), fixed(30 * SECOND, 10 * SECOND)),
    "with gaps": (hopping("t", "7 seconds", "15 seconds"), fixed(7 * SECOND, 15 * SECOND)),
    "local days": (tumbling("t", "1 day", tz="Europe/Berlin"), local_days("Europe/Berlin")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_hold_their_events_and_close_at_their_end(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    transform, windows_of = KINDS[kind]
    spread = timedelta(days=1) if kind == "local days" else timedelta(seconds=40)
    events = random_events(len(kind), start=BERLIN_SPRING, spread=spread)
    frame = streams.stream(spark, tmp_path / "topic", events).transform(transform)
    summed = frame.groupBy("window", "k").agg(F.sum("v").alias("sum"), F.count("*").alias("n"))
    found = {
        (bounds(row), row["k"]): (epoch, row["sum"], row["n"])
        for epoch, row in streams.run(summed, tmp_path / "checkpoint")
    }
    sums: dict[Any, list[int]] = defaultdict(list)
    for row in events.on_time():
        for window in windows_of(row["t"]):
            sums[window, row["k"]].append(row["v"])
    expected = {
        (window, key): (epoch, sum(values), len(values))
        for (window, key), values in sums.items()
        if (epoch := closes_in(events.watermarks, window[1])) is not None
    }
    assert len(expected) > 50
    assert found == expected


def test_sessions_hold_events_that_are_close_and_end_a_gap_after_the_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = random_events(5, start=BERLIN_SPRING, spread=timedelta(minutes=10), keys=30)
    frame = streams.stream(spark, tmp_path / "topic", events).transform(session("t", "40 seconds"))
    summed = frame.groupBy("window", "k").agg(F.sum("v").alias("sum"))
    found = {
        (bounds(row), row["k"]): (epoch, row["sum"])
        for epoch, row in streams.run(summed, tmp_path / "checkpoint")
    }
    expected = {
        (window, key): (epoch, total)
        for window, key, total in _sessions(events, 40 * SECOND)
        if (epoch := closes_in(events.watermarks, window[1])) is not None
    }
    assert len(expected) > 100
    assert any(end - start > 60 * SECOND for (start, end), _ in expected)
    assert found == expected


def _sessions(events: Events, gap: int) -> Iterable[tuple[Window, str, int]]:
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in events.on_time():
        by_key[row["k"]].append((row["t"], row["v"]))
    for key, rows in by_key.items():
        runs: list[list[tuple[int, int]]] = []
        for at, value in sorted(rows):
            if not runs or at > runs[-1][-1][0] + gap:
                runs.append([])
            runs[-1].append((at, value))
        for run in runs:
            yield (run[0][0], run[-1][0] + gap), key, sum(value for _, value in run)


ZONES = ["Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]
SIZES = ["3 days", "1 week", "2 weeks", "1 month", "1 quarter", "1 year", "1 hour", "6 hours"]


def test_calendars_follow_every_clock_change(spark: SparkSession) -> None:
    rng = random.Random(7)
    spans = [(datetime(2018, 10, 20), 40), (datetime(2026, 3, 1), 60), (datetime(2026, 10, 20), 20)]
    instants = [
        first.replace(tzinfo=UTC) + timedelta(microseconds=rng.randrange(days * 86_400 * SECOND))
        for first, days in spans
        for _ in range(120)
    ]
    frame = spark.createDataFrame([(micros(at),) for at in instants], "at long").withColumn(
        "t", F.timestamp_micros("at")
    )
    cases = [(zone, "1 day") for zone in ZONES] + [("Europe/Berlin", size) for size in SIZES]
    cases += [("Asia/Kolkata", "1 hour"), ("America/Havana", "6 hours"), ("America/Sao_Paulo", "1 month")]
    for number, (zone, size) in enumerate(cases):
        windows = frame.transform(tumbling("t", size, tz=zone))
        bounds = F.array(F.unix_micros("window.start"), F.unix_micros("window.end"))
        frame = windows.withColumn(f"w{number}", bounds).drop("window")
    for row in frame.drop("t").toArrow().to_pylist():
        for number, (zone, size) in enumerate(cases):
            assert tuple(row[f"w{number}"]) == _calendar_window(row["at"], size, zone), (
                row["at"],
                zone,
                size,
            )


def _calendar_window(at: int, size: str, zone: str) -> Window:
    count, unit = size.removesuffix("s").split()
    day = (EPOCH + timedelta(microseconds=at)).astimezone(ZoneInfo(zone)).date()
    if unit == "hour":
        begin, end = midnight(day, zone), midnight(day + timedelta(days=1), zone)
        length = int(count) * 3600 * SECOND
        start = begin + (at - begin) // length * length
        return start, min(start + length, end)
    if unit in ("day", "week"):
        days = int(count) * (7 if unit == "week" else 1)
        origin = date(1969, 12, 29) if unit == "week" else date(1970, 1, 1)
        first = day - timedelta(days=(day - origin).days % days)
        return midnight(first, zone), midnight(first + timedelta(days=days), zone)
    months = int(count) * {"month": 1, "quarter": 3, "year": 12}[unit]
    month = (day.year * 12 + day.month - 1) // months * months
    bounds = [date(each // 12, each % 12 + 1, 1) for each in (month, month + months)]
    return midnight(bounds[0], zone), midnight(bounds[1], zone)


def test_days_are_as_long_as_the_zone_makes_them(spark: SparkSession) -> None:
    times = [("2026-03-29 12:00:00",), ("2026-10-25 12:00:00",), ("2026-06-01 12:00:00",)]
    frame = spark.createDataFrame(times, "t string").select(F.to_timestamp("t").alias("t"))
    hours = (F.unix_seconds("window.end") - F.unix_seconds("window.start")) / 3600
    days = frame.transform(tumbling("t", "1 day", tz="Europe/Berlin")).select(
        hours.cast("int").alias("hours")
    )
    assert [row.hours for row in days.collect()] == [23, 25, 24]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: tumbling("t", "0 seconds"), "size='0 seconds' is no time at all"),
        (lambda: tumbling("t", "1 day", tz="Mars/Base"), "tz='Mars/Base' is no time zone"),
        (lambda: hopping("t", "1 minute", "soon"), "'soon' is not a duration"),
        (lambda: tumbling("t", "30 hours", tz="UTC"), "longer than a day"),
    ],
)
def test_windows_that_cannot_be_are_refused(make: Callable[[], Transform], problem: str) -> None:
    with pytest.raises(HeadwaterError, match=problem):
        make()


def test_a_column_that_is_not_there_is_named(spark: SparkSession) -> None:
    with pytest.raises(HeadwaterError, match="there is no column 'at' to window by; the columns are id"):
        spark.range(1).transform(tumbling("at", "1 minute"))


def bounds(row: dict[str, Any]) -> Window:
    return micros(row["window"]["start"]), micros(row["window"]["end"])
