from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.sinks.columns import ABSENT, SinkError, json_row, key_text, refuse_null
from headwater.pipeline.sinks.output_mode import upserting_mode
from headwater.views.keys import encode, key_of

pytestmark = pytest.mark.real

AT = datetime(2026, 3, 29, 1, 30, 0, 123000, tzinfo=UTC)
WINDOW = "named_struct('start', timestamp'2026-03-29 01:30:00Z', 'end', timestamp'2026-03-29 01:31:00Z')"
ROW = "SELECT 'a,b%' s, 17L n, true b, date'2026-03-29' d, timestamp'2026-03-29 01:30:00.123Z' t, 12.50BD c"
EXACT = "timestamp'2026-03-29 01:30:00.123456Z' u"


@pytest.fixture(scope="module")
def row(spark: SparkSession) -> DataFrame:
    return spark.sql(
        f"{ROW}, {EXACT}, {WINDOW} window, CAST(NULL AS string) missing, array(1, 2) l, X'00FF' x"
    )


def text(frame: DataFrame, *key: str) -> str:
    [found] = frame.select(key_text(frame, key).alias("key")).collect()
    return str(found.key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s", "a,b%"),
        ("n", 17),
        ("b", True),
        ("d", date(2026, 3, 29)),
        ("t", AT),
        ("u", AT.replace(microsecond=123456)),
        ("window", {"start": AT.replace(microsecond=0)}),
        ("l", [1, 2]),
    ],
)
def test_a_key_reads_the_same_from_spark_and_from_python(row: DataFrame, key: str, value: Any) -> None:
    assert text(row, key) == encode([value])
    assert text(row, key, "s") == encode([value, "a,b%"])
    assert text(row, "missing", key) == encode([None, value])


def test_a_key_of_a_row_that_is_read_back_is_the_key_that_it_has(row: DataFrame) -> None:
    [found] = row.select(json_row(row, nulls=True).alias("row")).collect()
    for key in (["window", "s"], ["t"], ["u", "t"], ["n", "b"], ["missing", "d"]):
        assert key_of(json.loads(found.row), key) == text(row, *key)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_times_are_in_utc_whatever_the_zone_of_the_session(
    spark: SparkSession, row: DataFrame, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert text(row, "t", "window") == "2026-03-29T01:30:00.123Z,2026-03-29T01:30:00.000Z"
        [found] = row.select(json_row(row, nulls=True).alias("row")).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert json.loads(found.row, parse_float=Decimal) == {
        "s": "a,b%",
        "n": 17,
        "b": True,
        "d": "2026-03-29",
        "t": "2026-03-29T01:30:00.123Z",
        "c": Decimal("12.50"),
        "u": "2026-03-29T01:30:00.123456Z",
        "window": {"start": "2026-03-29T01:30:00.000Z", "end": "2026-03-29T01:31:00.000Z"},
        "missing": None,
        "l": [1, 2],
        "x": "AP8=",
    }


def test_a_decimal_keeps_its_digits(row: DataFrame) -> None:
    assert text(row, "c") == "12.50"


def test_a_column_with_a_dot_in_its_name_is_a_column(spark: SparkSession) -> None:
    frame = spark.createDataFrame([Row(**{"a.b": "x"})])
    assert text(frame, "a.b") == "x"


def test_a_key_that_is_no_column_is_refused_with_those_there_are(row: DataFrame) -> None:
    with pytest.raises(SinkError, match="no key column 'nothing': the rows have s, n"):
        key_text(row, ["nothing"])


def test_a_null_key_fails_with_query_and_column(row: DataFrame) -> None:
    checked = refuse_null(row, "missing", query="shop.revenue", text=key_text(row, ["missing", "s"]))
    with pytest.raises(Exception, match=r"shop\.revenue: a row has no key, because missing is null"):
        row.select(checked.alias("key")).collect()


def test_a_column_of_a_side_that_may_be_missing_is_null_only_beside_others(row: DataFrame) -> None:
    absent = row.withColumn("missing", F.col("missing").alias("missing", metadata={ABSENT: True}))
    several = refuse_null(absent, "missing", query="shop.revenue", text=key_text(absent, ["missing", "s"]))
    ((key,),) = absent.select(several.alias("key")).collect()
    assert key.startswith("%0,")
    alone = refuse_null(absent, "missing", query="shop.revenue", text=key_text(absent, ["missing"]))
    with pytest.raises(Exception, match=r"shop\.revenue: a row has no key, because missing is null"):
        absent.select(alone.alias("key")).collect()


def test_results_that_change_are_updated_and_others_appended(spark: SparkSession) -> None:
    numbers = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    tens = (F.col("value") % 10).alias("ten")
    counted = numbers.groupBy(tens).count()
    assert upserting_mode(numbers) == "append"
    assert upserting_mode(counted) == "update"
    assert upserting_mode(counted.select("ten").where("ten > 3")) == "update"
    assert upserting_mode(numbers.dropDuplicates(["value"])) == "append"
    sessions = numbers.groupBy(F.session_window("timestamp", "1 minute"), tens).count()
    assert upserting_mode(sessions) == "append"
    other = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    both = F.expr("l.value = r.value AND r.timestamp BETWEEN l.timestamp AND l.timestamp + INTERVAL 1 minute")
    joined = numbers.alias("l").join(other.alias("r"), both, "left")
    assert upserting_mode(joined) == "append"
    assert upserting_mode(joined.groupBy(F.window("l.timestamp", "1 minute")).count()) == "append"
