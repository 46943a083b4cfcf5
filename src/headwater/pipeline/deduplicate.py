"""Deduplication by key within a time, on a stream."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.app.durations import milliseconds, text
from headwater.pipeline.duplicates import Deduplicate
from headwater.pipeline.keyed.columns import plain
from headwater.pipeline.keyed.operator import Output, arrival, keyed, named
from headwater.pipeline.packing import Kept
from headwater.pipeline.watermark import TimeError, event_time_of, quoted

__all__ = ["deduplicate"]


def deduplicate(df: DataFrame, by: str | Sequence[str], within: str, *, ordered: bool = False) -> DataFrame:
    """Keep the first of the events with equal `by` that lie less than `within` apart in event time.

    An event is let through as it comes; with `ordered` events wait until the watermark has passed them, and the
    oldest is the first, whatever the order they came in. Events with a null in `by` are never duplicates.
    """
    time = event_time_of(df, "the stream of deduplicate")
    keys = [by] if isinstance(by, str) else list(by)
    missing = [key for key in keys if key not in df.columns]
    if missing or not keys:
        raise TimeError(
            f"deduplicate by {', '.join(missing) or 'nothing'}; the columns are {', '.join(df.columns)}"
        )
    return keyed(
        df.where(F.col(quoted(time)).isNotNull()),
        [plain(F.col(quoted(name)), df.schema[name].dataType) for name in keys],
        [
            named(df, time),
            *arrival(df),
            *[named(df, name) for name in df.columns],
        ],
        F.col(quoted(time)),
        Deduplicate(milliseconds(within) * 1000, ordered=ordered),
        [Output(each.name, each.dataType, event_time=each.name == time) for each in df.schema.fields],
        kept=Kept(
            "events that wait for their turn" if ordered else "no events that wait",
            f"deduplicate by {', '.join(keys)} within {text(milliseconds(within))}",
        ),
    )
