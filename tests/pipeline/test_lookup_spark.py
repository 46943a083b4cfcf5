"""`lookup` in Spark against the whole log at once: out of order, in different batches, with every type of column."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.lookups import TableError
from headwater.pipeline.lookups.operator import lookup
from headwater.pipeline.source import TopicSource
from headwater.pipeline.tables import Table
from headwater.pipeline.watermark import TimeError
from headwater.testing.rows_source import ScriptedTopic

from . import streams

pytestmark = pytest.mark.real

Row = dict[str, Any]
BROKER = "kafka://rows:9092"
START = datetime(2026, 3, 28, 12, tzinfo=UTC)
LATENESS = timedelta(seconds=30)
LATENESS_MS = 30_000
EVENTS = "event_id int, user_id bigint, placed_at timestamp, tags array<string>"
USERS = (
    "id bigint, country string, credit decimal(10,2), born date, seen timestamp, home struct<city: string>"
)
KEYS = 6


def seconds(count: float) -> datetime:
    return START + timedelta(seconds=count)


@dataclass(frozen=True)
class Logs:
    """A stream and a table in the order of their arrival, no more than the lateness out of order."""

    events: list[Row]
    changes: list[Row]


def random_logs(seed: int) -> Logs:
    rng = random.Random(seed)

    def moment(number: int) -> datetime:
        return seconds(number * 4 + rng.uniform(0, 29)).replace(microsecond=rng.randrange(10**6))

    events = [
        {
            "event_id": number,
            "user_id": rng.choice([None, *range(KEYS + 1)]),
            "placed_at": moment(number) if rng.random() < 0.95 else None,
            "tags": rng.choice([None, [], ["a", None]]),
        }
        for number in range(150)
    ]
    changes: list[Row] = []
    for number in range(120):
        change: Row = {"id": rng.randrange(KEYS), "_changed_at": moment(number + 10) if number > 9 else None}
        if rng.random() < 0.25:
            change |= {"_deleted": True}
        else:
            change |= {
                "country": f"version {number}",
                "credit": Decimal(number) / 100,
                "born": date(1990, 1, 1 + number % 28) if number % 3 else None,
                "seen": seconds(number / 7),
                "home": {"city": f"city {number}"},
            }
        changes.append(change)
    changes.insert(40, {"id": None, "country": "nobody", "_changed_at": seconds(1)})
    return Logs(events, changes)


def valid_at(changes: list[Row], key: int | None, at: datetime | None) -> Row | None:
    """Return the row that was valid at a time, by the rule: the greatest (time, version) up to it."""
    if key is None or at is None:
        return None
    latest = datetime.min.replace(tzinfo=UTC)
    known = []
    for version, change in enumerate(changes):
        if change["id"] == key:
            time = change["_changed_at"] or latest
            latest = max(latest, time)
            known.append((time, version, change))
    met = [each for each in known if each[0] <= at]
    found = max(met, key=lambda each: each[:2])[2] if met else None
    return None if found is None or found.get("_deleted") else found


def joined(event: Row, row: Row | None) -> Row:
    return event | {name: row and row.get(name) for name in ("country", "credit", "born", "seen", "home")}


def cut(rows: list[Row], batches: int, rng: random.Random) -> Iterator[list[Row]]:
    places = sorted(rng.randrange(len(rows) + 1) for _ in range(batches - 1))
    for begin, end in zip([0, *places], [*places, len(rows)], strict=True):
        yield rows[begin:end]


class Scripted:
    """Both logs in batches, side by side, and then time that goes on."""

    def __init__(self, spark: SparkSession, directory: Path, logs: Logs, batches: int) -> None:
        rng = random.Random(batches)
        timed: Row = {"lateness_ms": LATENESS_MS}
        events = ScriptedTopic(
            directory / "events", TopicSource(BROKER, "events", EVENTS, event_time="placed_at", **timed)
        )
        users = ScriptedTopic(
            directory / "users", TopicSource(BROKER, "users", USERS, envelope="flat", key=("id",), **timed)
        )
        self.batches = list(zip(cut(logs.events, batches, rng), cut(logs.changes, batches, rng), strict=True))
        for some, changed in self.batches:
            events.write(some)
            users.write(changed)
        for each in (events, users):
            each.advance_to(int(seconds(10_000).timestamp() * 1000))
        self.events = events.read(spark)
        self.users = Table(
            "users", ("id",), users.read(spark, in_time=False), lambda wait_ms: users.read(spark)
        )


def by_id(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["event_id"]))


@pytest.mark.parametrize("batches", [1, 6])
def test_as_of_gives_the_same_in_any_batches(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    logs = random_logs(11)
    scripted = Scripted(spark, tmp_path, logs, batches)
    result = lookup(scripted.events, scripted.users, on={"user_id": "id"}, as_of="placed_at")
    assert result.columns == [*scripted.events.columns, "country", "credit", "born", "seen", "home"]
    assert [field.dataType for field in result.schema] == [
        *[field.dataType for field in scripted.events.schema],
        *[scripted.users.changes.schema[name].dataType for name in scripted.users.columns[1:]],
    ]
    found = streams.run(result, tmp_path / "checkpoint")
    expected = [
        joined(event, valid_at(logs.changes, event["user_id"], event["placed_at"])) for event in logs.events
    ]
    assert len([row for row in expected if row["country"] is not None]) > 50
    assert by_id(row for _, row in found) == expected


def test_the_newest_that_has_come_is_met_at_once(spark: SparkSession, tmp_path: Path) -> None:
    logs = random_logs(12)
    scripted = Scripted(spark, tmp_path, logs, 5)
    result = lookup(scripted.events, scripted.users, on={"user_id": "id"}, how="inner")
    assert result.schema["placed_at"].metadata == scripted.events.schema["placed_at"].metadata
    found = streams.run(result, tmp_path / "checkpoint")
    known: dict[int, Row] = {}
    for number, (some, changed) in enumerate(scripted.batches):
        for change in changed:
            known[change["id"]] = change
        expected = [
            joined(event, row)
            for event in some
            if (row := known.get(event["user_id"]))
            and not row.get("_deleted")
            and event["user_id"] is not None
        ]
        assert by_id(row for epoch, row in found if epoch == number) == expected
    assert len(found) > 50


def test_what_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scripted = Scripted(spark, tmp_path, Logs([], []), 1)
    events, users = scripted.events, scripted.users
    on = {"user_id": "id"}
    with pytest.raises(TableError, match="lookup in users is by its key, id, and on= gives country"):
        lookup(events.withColumn("country", F.lit("x")), users, on="country")
    with pytest.raises(
        TableError, match=r'both sides of lookup in users have seen; .*users\.renamed\(\{"seen"'
    ):
        lookup(events.withColumn("seen", F.lit(1)), users, on=on)
    with pytest.raises(
        TableError, match="user_id of the stream is string and id of users is bigint; declare"
    ):
        lookup(events.withColumn("user_id", F.col("user_id").cast("string")), users, on=on)
    with pytest.raises(
        TableError, match="as_of='seen_at' is not the event time of the stream, which is placed_at"
    ):
        lookup(events, users, on=on, as_of="seen_at")
    with pytest.raises(TimeError, match="the stream of lookup has no event time; declare event_time="):
        lookup(
            events.select("user_id", F.col("placed_at") + F.expr("INTERVAL 1 DAY")),
            users,
            on=on,
            as_of="placed_at",
        )
    with pytest.raises(TableError, match="wait='1 minute' without as_of="):
        lookup(events, users, on=on, wait="1 minute")
    with pytest.raises(TableError, match="how='full' is no lookup"):
        lookup(events, users, on=on, how="full")  # type: ignore[arg-type]
    with pytest.raises(TableError, match="lookup is in a DataFrame, and has to be in a table"):
        lookup(events, users.changes, on=on)  # type: ignore[arg-type]
    with pytest.raises(TableError, match="the changes of users have no time to wait for"):
        lookup(events, Table("users", ("id",), users.changes), on=on, as_of="placed_at")
