"""`versus_previous` on a stream: an interval beside the last one, the same hour yesterday, last week."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    NumericType,
    StructType,
    TimestampType,
)

from headwater.app.durations import milliseconds
from headwater.pipeline.keyed.columns import plain
from headwater.pipeline.keyed.operator import Output, keyed
from headwater.pipeline.packing import Kept
from headwater.pipeline.periods import VersusPrevious
from headwater.pipeline.watermark import EVENT_TIME, TimeError, event_time_of, quoted

__all__ = ["versus_previous"]

_WINDOW: Final = "window"
_START: Final = "start"
_END: Final = "end"


def versus_previous(
    df: DataFrame,
    statistic: str,
    periods: Sequence[str],
    *,
    by: str | Sequence[str] = (),
    interval: str | None = None,
    tz: str | None = None,
) -> DataFrame:
    """Compare a statistic of each interval with that of earlier ones.

        counts = requests.transform(tumbling("at", "1 hour")).groupBy("window", "path").agg(F.count("*").alias("n"))
        versus_previous(counts, "n", ["1 hour", "1 day", "1 week"], by="path")

    Intervals are windows, or, without a column `window`, begin at the stream's event time and are `interval` long.
    Beside the interval, `by` and the statistic the result has for each period, as in "1 day": `previous_1_day`,
    `change_1_day`, `ratio_1_day`, and `missing_1_day`, which is true where there is no such interval. With `tz` a day
    is one of the calendar there.
    """
    groups = [by] if isinstance(by, str) else list(by)
    names = [periods] if isinstance(periods, str) else list(periods)
    if tz is not None:
        _refuse_unknown_zone(tz)
    windowed = _WINDOW in df.columns and isinstance(df.schema[_WINDOW].dataType, StructType)
    time = _WINDOW if windowed else event_time_of(df, "the stream of versus_previous")
    _refuse_columns(df, time, statistic, groups)
    if not windowed and interval is None:
        raise TimeError(
            f'versus_previous by {time} has to know how long an interval is; give it, as in interval="1 hour"'
        )
    logic = VersusPrevious.of(names, interval, tz)
    value = LongType() if isinstance(df.schema[statistic].dataType, IntegralType) else DoubleType()
    start, end = _bounds(F.col(quoted(time)), interval, windowed=windowed)
    kinds = [df.schema[name].dataType for name in groups]
    compared = keyed(
        df.where(F.col(quoted(time)).isNotNull()),
        [plain(F.col(quoted(name)), kind) for name, kind in zip(groups, kinds, strict=True)] or [F.lit(0)],
        [(start, TimestampType()), (end, TimestampType()), (F.col(quoted(statistic)).cast(value), value)],
        end if windowed else start,
        logic,
        [
            *[Output(f"k{number}", kind) for number, kind in enumerate(kinds or [IntegerType()])],
            Output(_START, TimestampType()),
            Output(_END, TimestampType()),
            Output(statistic, value),
            *[column for name in names for column in _comparison(name, value)],
        ],
        kept=Kept(text=f"{statistic} by {', '.join(groups) or 'nothing'}"),
    )
    return compared.select(
        _interval(time, windowed=windowed),
        *[F.col(f"k{number}").alias(name) for number, name in enumerate(groups)],
        *[quoted(name) for name in compared.columns[len(kinds or [0]) + 2 :]],
    )


def _bounds(time: Column, interval: str | None, *, windowed: bool) -> tuple[Column, Column]:
    if windowed:
        return time[_START], time[_END]
    length = milliseconds(interval or "0 seconds") * 1000
    return time, F.timestamp_micros(F.unix_micros(time) + length)


def _interval(time: str, *, windowed: bool) -> Column:
    """Return the interval as it came, in event time: a window that Spark takes for one of its own, or its start."""
    if not windowed:
        return F.col(_START).alias(time, metadata=EVENT_TIME)
    return F.struct(_START, _END).alias(time, metadata={**EVENT_TIME, "spark.timeWindow": True})


def _comparison(period: str, value: DataType) -> list[Output]:
    name = re.sub(r"\W+", "_", period.strip().lower())
    kinds = {"previous": value, "change": value, "ratio": DoubleType(), "missing": BooleanType()}
    return [Output(f"{what}_{name}", kind) for what, kind in kinds.items()]


def _refuse_columns(df: DataFrame, time: str, statistic: str, groups: list[str]) -> None:
    there = f"the columns are {', '.join(df.columns)}"
    for name in [statistic, *groups]:
        if name not in df.columns:
            raise TimeError(f"versus_previous of {name}, and there is no such column; {there}")
    if not isinstance(df.schema[statistic].dataType, NumericType):
        kind = df.schema[statistic].dataType.simpleString()
        raise TimeError(f"versus_previous compares numbers, and {statistic} is a {kind}")
    others = [name for name in df.columns if name not in (time, statistic, *groups)]
    if others:
        raise TimeError(
            f"versus_previous does not know what {', '.join(others)} is to it: name it in by=, if it makes groups, "
            "or leave it out with .drop()"
        )


def _refuse_unknown_zone(tz: str) -> None:
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise TimeError(f"tz={tz!r} is no time zone; use a name as in 'Europe/Berlin'") from None
