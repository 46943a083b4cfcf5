"""Joins of two streams whose events lie close to each other in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.app.durations import milliseconds
from headwater.pipeline.watermark import EVENT_TIME, TimeError, event_time_of, marked_after, quoted

How = Literal["inner", "left", "right", "full"]

# In front of every column's name while the two are joined; the times that Spark evicts by have names without.
_LEFT, _RIGHT = "_left_", "_right_"
_LEFT_TIME, _RIGHT_TIME = "_time_left", "_time_right"
_SPARK = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def join_within(
    left: DataFrame, right: DataFrame, on: str | Sequence[str], within: str, how: How = "inner"
) -> DataFrame:
    """Join events with equal `on` whose event times are at most `within` apart, either of them first.

    The result has the columns of `on` once, then the other columns of the left, then of the right. With `how`
    "left", "right" or "full" an event that found no partner comes out as soon as the watermark shows that none
    can come any more; until then, and no longer, both sides are held in state. A null key or time meets nothing.
    """
    keys = [on] if isinstance(on, str) else list(on)
    if how not in _SPARK:
        raise TimeError(f'how={how!r} is no join; use "inner", "left", "right" or "full"')
    left_time = event_time_of(left, "the left side of join_within")
    right_time = event_time_of(right, "the right side of join_within")
    _refuse_columns(left, right, keys)
    span = F.expr(f"INTERVAL '{milliseconds(within) / 1000:.3f}' SECOND")
    one, other = F.col(_LEFT_TIME), F.col(_RIGHT_TIME)
    condition = (one >= other - span) & (one <= other + span)
    for key in keys:
        condition = condition & (F.col(quoted(_LEFT + key)) == F.col(quoted(_RIGHT + key)))
    # Spark's outer joins of streams take null keys for equal, and keep a row without a time for ever; one that cannot
    # meet this has no partner, and comes out at once.
    for name in [_LEFT_TIME, _RIGHT_TIME, *[side + key for side in (_LEFT, _RIGHT) for key in keys]]:
        condition = condition & F.col(quoted(name)).isNotNull()
    joined = _side(left, _LEFT, left_time, _LEFT_TIME).join(
        _side(right, _RIGHT, right_time, _RIGHT_TIME), condition, _SPARK[how]
    )
    return joined.select(
        *[_key(key, how) for key in keys],
        *_columns(left, _LEFT, keys, left_time if how in ("inner", "left") else None),
        *_columns(right, _RIGHT, keys, right_time if how == "right" else None),
    )


def _side(df: DataFrame, prefix: str, time: str, evicted_by: str) -> DataFrame:
    """Name a side's columns apart from the other's, and give it the time that Spark evicts by."""
    columns = [F.col(quoted(name)).alias(prefix + name, metadata={}) for name in df.columns]
    return df.select(*columns, marked_after(F.col(quoted(time)), evicted_by))


def _columns(df: DataFrame, prefix: str, keys: list[str], time: str | None) -> list[Column]:
    return [
        F.col(quoted(prefix + name)).alias(name, metadata=EVENT_TIME if name == time else {})
        for name in df.columns
        if name not in keys
    ]


def _key(key: str, how: How) -> Column:
    one, other = F.col(quoted(_LEFT + key)), F.col(quoted(_RIGHT + key))
    return {"inner": one, "left": one, "right": other, "full": F.coalesce(one, other)}[how].alias(key)


def _refuse_columns(left: DataFrame, right: DataFrame, keys: list[str]) -> None:
    for side, df in (("left", left), ("right", right)):
        missing = [key for key in keys if key not in df.columns]
        if missing:
            raise TimeError(
                f"the {side} side of join_within has no column {', '.join(missing)}; it has {', '.join(df.columns)}"
            )
    clashing = [name for name in left.columns if name in right.columns and name not in keys]
    if clashing:
        raise TimeError(
            f"both sides of join_within have {', '.join(clashing)}; rename them on one side, "
            f"as in withColumnRenamed({clashing[0]!r}, …), or join on them too"
        )
