"""Event time in a Spark query: how the watermark that a source decided becomes Spark's own.

Spark's watermark is the maximum event time that any task saw, so a partition that is read late loses its
events. Ours is decided by the source (the minimum over partitions) and comes with its rows:

- `_wm` holds the watermark as of the end of the batch, the same in every row;
- `_marker` is true in a row that holds nothing but `_wm`, there to move time where no record came.

`stamped` hands that to Spark in three steps, each of which leans on a rule of Spark's:

1. `withWatermark("_wm", "0 seconds")`: the maximum of a column that is constant is what we decided. Among
   the sources of a query Spark takes the minimum, never goes back, and writes it to the checkpoint. It does
   not write what each source said: after a restart time stands until every source of a query has sent a row
   or a marker again.
2. The markers are filtered away above that node by a predicate that is not deterministic. A deterministic
   one (also one that Spark infers, as `isnotnull(key)` of a join) is pushed below the watermark unless it
   mentions `_wm`, and a batch of which no row passes would then not move time. No predicate, ours or the
   user's, is pushed through a filter that is not deterministic.
3. The event-time column is named anew with the metadata by which Spark's stateful operators find the
   column that the watermark speaks of. `_wm` itself is dropped: they accept one such column only.

A window closes once its end <= watermark. Where Spark compares a plain time column (joins, duplicates,
timers) it takes an event *at* the watermark as late, while the source still lets it in; `marked_after` gives
operators of ours a column one microsecond on, which makes it exactly "before the watermark".
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.core.errors import HeadwaterError

WATERMARK = "_wm"
MARKER = "_marker"
EVENT_TIME = {"spark.watermarkDelayMs": 0}
"""Metadata of a column whose values, or whose `end` if it is a window, the watermark speaks of."""


class TimeError(HeadwaterError):
    """An operator over time was given something that it cannot work with."""


def stamped(df: DataFrame, event_time: str) -> DataFrame:
    """Turn a source's rows with `_wm` and `_marker` into rows in event time, without both."""
    rows = df.withWatermark(WATERMARK, "0 seconds").where(~F.col(MARKER) | (F.spark_partition_id() < 0))
    return rows.select(
        *[
            F.col(quoted(name)).alias(name, metadata=EVENT_TIME)
            if name == event_time
            else F.col(quoted(name))
            for name in rows.columns
            if name not in (WATERMARK, MARKER)
        ]
    )


def event_time_of(df: DataFrame, what: str) -> str:
    """Return the name of the event-time column of `df`, which `what` names in the refusal."""
    names = [field.name for field in df.schema if EVENT_TIME.keys() <= field.metadata.keys()]
    if len(names) == 1:
        return names[0]
    if names:
        raise TimeError(f"{what} has several event-time columns ({', '.join(names)}); select one of them")
    raise TimeError(
        f"{what} has no event time; declare event_time= on its topic, and keep that column as it is in select()"
    )


def metadata_of(df: DataFrame, time: str) -> dict[str, object]:
    """Return the metadata that a window over the column `time` takes from it."""
    if time not in df.columns:
        raise TimeError(f"there is no column {time!r} to window by; the columns are {', '.join(df.columns)}")
    return dict(EVENT_TIME) if EVENT_TIME.keys() <= df.schema[time].metadata.keys() else {}


def marked_after(time: Column, name: str) -> Column:
    """Return the instant after `time`, named `name`, as the event time of a stateful operator."""
    return (time + F.expr("INTERVAL '0.000001' SECOND")).alias(name, metadata=EVENT_TIME)


def quoted(name: str) -> str:
    """Return a column's name so that a dot in it does not mean a field of a struct."""
    return "`" + name.replace("`", "``") + "`"
