"""A result at every event, over the events of the same key in the time before it.

Spark has no such window on streams. Events wait in state until the watermark has passed them, so that results
come out in event time and an event that is out of order is part of every window that it belongs to; then they stay,
without the columns that no aggregate needs, for as long as later windows reach back.

State is held per bucket of keys, as one Arrow table: Spark's state API for Python costs about a millisecond for
each key and batch (decision 6 of the design), and a bucket's table is worked on by numpy as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import IntegralType

from headwater.app.durations import milliseconds, text
from headwater.core.errors import SettingError
from headwater.pipeline.aggregates import Call
from headwater.pipeline.keyed.columns import EXACT_TIMES
from headwater.pipeline.packing import BUCKET, Kept
from headwater.pipeline.watermark import TimeError, marked_after, metadata_of, quoted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

__all__ = ["sliding"]

BUCKETS: Final = 32
"""Part of the state's layout: another number cannot go on from a checkpoint."""


@dataclass(frozen=True)
class Aggregate:
    """One column of the result: a function of the values of a column, or of the rows where there is none."""

    name: str
    function: str
    column: str | None
    type: str

    @property
    def result(self) -> str:
        """The type of the result."""
        return {"count": "bigint", "mean": "double"}.get(self.function, self.type)


def sliding(
    df: DataFrame, time: str, last: str, by: str | Sequence[str], aggregate: Mapping[str, str]
) -> DataFrame:
    """Add to every event aggregates over the events of the same key in the time `last` up to and with it.

    `aggregate` maps the name of each new column to `count(*)`, `count(column)`, or `sum`, `mean`, `min` or `max` of
    a numeric column; nulls do not count, as in SQL. Numbers other than integers are worked with as doubles.

        sliding(orders, "placed_at", "10 minutes", by="card", aggregate={"orders": "count(*)", "spent": "sum(amount)"})

    A window holds the events with time - last < their time <= time. A result comes out when the watermark has passed
    its event, results of one key in the order of their times.
    """
    keys = [by] if isinstance(by, str) else list(by)
    _refuse(df, time, keys, aggregate)
    last_us = milliseconds(last) * 1000
    if last_us == 0:
        raise SettingError(f"last={last!r} is no time at all; give a duration such as '10 minutes'")
    wanted = [_parse(df, name, call) for name, call in aggregate.items()]
    columns = list(dict.fromkeys(each.column for each in wanted if each.column is not None))
    types = {column: _type(df, column) for column in columns}
    kept = Kept(
        f"events with values ({', '.join(types.values())})",
        f"sliding by {', '.join(keys)} over {', '.join(columns)} of the last {text(last_us // 1000)}",
    )
    key = [F.col(quoted(name)) for name in keys]
    events = df.where(F.col(quoted(time)).isNotNull()).select(
        kept.marked(F.pmod(F.hash(*key), F.lit(BUCKETS)), BUCKET),
        F.to_json(F.struct(*key), EXACT_TIMES).alias("key"),
        F.unix_micros(F.col(quoted(time)).cast("timestamp")).alias("at"),
        F.to_json(
            F.struct(*[F.col(quoted(name)).alias(name, metadata={}) for name in df.columns]), EXACT_TIMES
        ).alias("event"),
        *[part for number, column in enumerate(columns) for part in _value(df, column, number)],
        marked_after(F.col(quoted(time)).cast("timestamp"), "evict_by"),
    )
    slide = _Slide(last_us, tuple(wanted), tuple(types.items()))
    results = events.groupBy(BUCKET).applyInPandasWithState(
        slide.function(),
        "event string, " + ", ".join(f"r{number} {each.result}" for number, each in enumerate(wanted)),
        "events binary",
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )
    return results.withColumn("event", F.from_json("event", df.schema, EXACT_TIMES)).select(
        *[F.col("event").getField(name).alias(name) for name in df.columns],
        *[F.col(f"r{number}").alias(each.name) for number, each in enumerate(wanted)],
    )


@dataclass(frozen=True)
class _Slide:
    last_us: int
    wanted: tuple[Aggregate, ...]
    types: tuple[tuple[str, str], ...]

    def function(self) -> Callable[[Any, Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
        """Return what Spark calls for each bucket, in a worker."""

        def work(_bucket: Any, events: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
            from headwater.pipeline.sliding_state import Bucket

            bucket = Bucket.load(state.get[0] if state.exists else None, self.types)
            for frame in events:
                bucket.add(frame)
            watermark_us = state.getCurrentWatermarkMs() * 1000
            yield bucket.results(self.wanted, watermark_us, self.last_us)
            waits_for = bucket.expire(watermark_us, self.last_us)
            if waits_for is None:
                state.remove()
            else:
                state.update((bucket.dump(),))
                state.setTimeoutTimestamp(max(waits_for // 1000, state.getCurrentWatermarkMs()))

        return work


def _refuse(df: DataFrame, time: str, keys: list[str], aggregate: Mapping[str, str]) -> None:
    if not metadata_of(df, time):
        raise TimeError(
            f"sliding needs an event time, and {time} is none; declare event_time={time!r} on its topic"
        )
    missing = [key for key in keys if key not in df.columns]
    if missing or not keys:
        raise TimeError(
            f"sliding by {', '.join(missing) or 'nothing'}; the columns are {', '.join(df.columns)}"
        )
    taken = [name for name in aggregate if name in df.columns]
    if taken or not aggregate:
        raise TimeError(
            f'aggregate= names {", ".join(taken) or "nothing"}; give new columns, as in {{"n": "count(*)"}}'
        )


def _parse(df: DataFrame, name: str, text: str) -> Aggregate:
    function, column = Call.read(df, name, text)
    return Aggregate(name, function, column, "bigint" if column is None else _type(df, column))


def _type(df: DataFrame, column: str) -> str:
    return "bigint" if isinstance(df.schema[column].dataType, IntegralType) else "double"


def _value(df: DataFrame, column: str, number: int) -> list[Column]:
    """Return a column as a value and whether it is there: pandas would turn integers with nulls into floats."""
    value = F.col(quoted(column))
    return [
        F.coalesce(value.cast(_type(df, column)), F.lit(0)).cast(_type(df, column)).alias(f"v{number}"),
        value.isNotNull().alias(f"p{number}"),
    ]
