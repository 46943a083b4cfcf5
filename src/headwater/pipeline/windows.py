"""Windows over event time: functions for `DataFrame.transform` that add a column `window`.

    orders.transform(tumbling("placed_at", "1 minute")).groupBy("window", "country").agg(...)

`window` is a struct of `start` and `end`; an event belongs to it where start <= time < end, and it closes as
soon as `end` <= watermark. Windows of a fixed length count from 1970-01-01 UTC, as Spark's `window` does; those
of a calendar run from one local midnight to another, so a day has 23 hours when the clocks go forward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.app.durations import milliseconds, text
from headwater.core.errors import SettingError
from headwater.pipeline.watermark import TimeError, metadata_of

Transform = Callable[[DataFrame], DataFrame]

_DAY_US: Final = 86_400_000_000
_CALENDAR: Final = re.compile(r"\s*(\d+)\s*(day|week|month|quarter|year)s?\s*", re.IGNORECASE)
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_DESCRIBED: Final = "headwater.window"
"""Metadata of a window: how it was made, in words, for `checkpoint` to compare."""
_MONDAY: Final = 3
"""1970-01-01 was a Thursday: the Monday of that week lies three days before."""


def tumbling(time: str, size: str, *, tz: str | None = None) -> Transform:
    """Put each event into the one window of length `size` that holds its `time`.

    With `tz`, or where `size` is in weeks, months, quarters or years, windows follow the calendar of that zone
    (UTC if none is given): "1 day" is from midnight to midnight, "1 week" from Monday to Monday. Sizes under a
    day are counted from midnight, and the last one ends at the next.
    """
    if tz is not None:
        _refuse_unknown_zone(tz)
    calendar = _CALENDAR.fullmatch(size)
    if calendar and int(calendar[1]) > 0 and (tz is not None or calendar[2].lower() != "day"):
        count, unit = int(calendar[1]), calendar[2].lower()
        zone = tz or "UTC"
        made = f"windows of {count} {unit}{'' if count == 1 else 's'} in {zone}"
        return lambda df: _with_window(df, time, *_calendar_bounds(F.col(time), count, unit, zone), made)
    length = _length(size, "size")
    if tz is not None:
        if length * 1000 > _DAY_US:
            raise TimeError(
                f"size={size!r} with tz= is longer than a day; give whole days, weeks, months or years"
            )
        made = f"windows of {text(length)} in {tz}"
        return lambda df: _with_window(df, time, *_bounds_in_day(F.col(time), length, tz), made)
    made = f"windows of {text(length)}"
    return lambda df: _with_spark_window(df, time, F.window(time, f"{length} milliseconds"), made)


def hopping(time: str, size: str, every: str) -> Transform:
    """Put each event into all windows of length `size` that hold its `time`, one of which starts `every` so often.

    Where `every` is longer than `size` there are gaps: an event in a gap belongs to no window and is left out.
    """
    length, hop = _length(size, "size"), _length(every, "every")
    made = f"windows of {text(length)} every {text(hop)}"
    if hop <= length:
        return lambda df: _with_spark_window(
            df, time, F.window(time, f"{length} milliseconds", f"{hop} milliseconds"), made
        )

    def with_gaps(df: DataFrame) -> DataFrame:
        micros = F.unix_micros(F.col(time).cast("timestamp"))
        start = micros - F.pmod(micros, F.lit(hop * 1000))
        inside = df.where(micros - start < length * 1000)
        return _with_window(
            inside, time, F.timestamp_micros(start), F.timestamp_micros(start + length * 1000), made
        )

    return with_gaps


def session(time: str, gap: str) -> Transform:
    """Put events of the same key that are no more than `gap` apart into one window, which ends `gap` after the last.

    The key is what else the result is grouped by: `.transform(session("at", "5 minutes")).groupBy("window", "user")`.
    """
    length = _length(gap, "gap")
    made = f"sessions with gaps of {text(length)}"
    return lambda df: _with_spark_window(df, time, F.session_window(time, f"{length} milliseconds"), made)


def described(metadata: Mapping[str, Any]) -> list[str]:
    """Return how a window with this metadata was made, if it was made here."""
    return [metadata[_DESCRIBED]] if _DESCRIBED in metadata else []


def _with_spark_window(df: DataFrame, time: str, window: Column, made: str) -> DataFrame:
    metadata_of(df, time)
    windowed = df.withColumn("window", window)
    return windowed.withMetadata("window", {**windowed.schema["window"].metadata, _DESCRIBED: made})


def _with_window(df: DataFrame, time: str, start: Column, end: Column, made: str) -> DataFrame:
    """Add a window of our own making, which Spark takes for one of its own."""
    metadata = {**metadata_of(df, time), "spark.timeWindow": True, _DESCRIBED: made}
    window = F.struct(start.alias("start"), end.alias("end")).alias("window", metadata=metadata)
    others = [name for name in df.columns if name != "window"]
    return df.where(F.col(time).isNotNull()).select(*others, window)


def _calendar_bounds(time: Column, count: int, unit: str, tz: str) -> tuple[Column, Column]:
    day = _local_day(time, tz)
    if unit in _MONTHS:
        months = count * _MONTHS[unit]
        date = F.date_from_unix_date(day)
        month = F.year(date) * 12 + F.month(date) - 1
        first = F.make_date(
            F.floor((month - month % months) / 12).cast("int"), (month - month % months) % 12 + 1, F.lit(1)
        )
        return _midnight(F.unix_date(first), tz), _midnight(F.unix_date(F.add_months(first, months)), tz)
    days, before = (count * 7, _MONDAY) if unit == "week" else (count, 0)
    first = day - F.pmod(day + before, F.lit(days))
    return _midnight(first, tz), _midnight(first + days, tz)


def _bounds_in_day(time: Column, length_ms: int, tz: str) -> tuple[Column, Column]:
    day = _local_day(time, tz)
    begin, end = F.unix_micros(_midnight(day, tz)), F.unix_micros(_midnight(day + 1, tz))
    since = F.unix_micros(time.cast("timestamp")) - begin
    start = begin + since - F.pmod(since, F.lit(length_ms * 1000))
    return F.timestamp_micros(start), F.timestamp_micros(F.least(start + length_ms * 1000, end))


def _local_day(time: Column, tz: str) -> Column:
    """Return the local date as days since 1970-01-01; other than casts to dates, whatever the session's zone is."""
    wall = F.unix_micros(F.from_utc_timestamp(time.cast("timestamp"), tz))
    return F.floor((wall - F.pmod(wall, F.lit(_DAY_US))) / _DAY_US).cast("int")


def _midnight(day: Column, tz: str) -> Column:
    """Return when a local day begins; where the clocks skip midnight, the instant at which they do."""
    return F.to_utc_timestamp(F.timestamp_micros(day.cast("long") * _DAY_US), tz)


def _length(text: str, what: str) -> int:
    length = milliseconds(text)
    if length == 0:
        raise SettingError(f"{what}={text!r} is no time at all; give a duration such as '1 minute'")
    return length


def _refuse_unknown_zone(tz: str) -> None:
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise TimeError(f"tz={tz!r} is no time zone; use a name as in 'Europe/Berlin'") from None
