"""`lookup` on Spark: events and changes are one stream of rows, keyed by the table's key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, TimestampType

from headwater.app.durations import milliseconds
from headwater.pipeline.keyed.columns import plain
from headwater.pipeline.keyed.operator import Output, arrival, keyed, named
from headwater.pipeline.lookups.keys import On, TableError, key_pairs, refuse_clashes
from headwater.pipeline.lookups.lookup import CHANGE, EVENT, Lookup
from headwater.pipeline.packing import Kept
from headwater.pipeline.tables import CHANGED_AT, DELETED, VERSION, Table
from headwater.pipeline.watermark import EVENT_TIME, event_time_of, quoted

__all__ = ["lookup"]

How = Literal["left", "inner"]
Typed = list[tuple[Column, DataType]]

_HEAD: Final = {"tag": IntegerType(), "at": TimestampType(), "first": LongType(), "second": LongType()}
_NEVER_LATE: Final = "9999-01-01 00:00:00"


def lookup(
    stream: DataFrame,
    table: Table,
    on: On,
    how: How = "left",
    as_of: str | None = None,
    wait: str | None = None,
) -> DataFrame:
    """Join each event of a stream with the row of a table that has its key.

        lookup(orders, users, on="user_id")
        lookup(orders, users, on={"buyer": "user_id"}, as_of="placed_at", wait="5 minutes")

    An event meets the newest version of the row that is known; with `as_of`, the stream's event time, the version that
    was valid then, and it waits until no other can come, for no longer than `wait`. The result has the stream's
    columns, then those of the table without its key: null where there is no row, unless `how` is "inner".
    """
    _refuse_arguments(table, how, as_of, wait)
    pairs = key_pairs(on, stream.columns, table.name, table.key, table.columns)
    values = [name for name in table.columns if name not in table.key]
    refuse_clashes(stream.columns, values, f"lookup in {table.name}", table.name)
    _refuse_types(stream, table, pairs)
    changes = table.changes
    if as_of is not None:
        _refuse_time(stream, as_of)
        changes = _in_time(table, wait)
    ours = [named(stream, name) for name in stream.columns]
    theirs = [named(changes, name) for name in values]
    rows = _events(stream, [name for name, _ in pairs], as_of, [*ours, *_nulls(theirs)]).unionByName(
        _changes(changes, table.key, [*_nulls(ours), *theirs])
    )
    # Spark takes away what is before the watermark: a change, which is never late, has a time after all of that.
    passed = F.when(F.col("tag") == EVENT, F.col("at"))
    never = F.lit(_NEVER_LATE).cast("timestamp")
    outputs = [
        Output(field.name, field.dataType, event_time=EVENT_TIME.keys() <= field.metadata.keys())
        for field in stream.schema.fields
    ]
    return keyed(
        rows,
        [F.col(f"k{place}") for place in range(len(pairs))],
        [
            *[(F.col(name), kind) for name, kind in _HEAD.items()],
            *[(F.col(f"c{place}"), kind) for place, (_, kind) in enumerate([*ours, *theirs])],
        ],
        None if as_of is None else F.least(passed, never),
        Lookup(tuple(stream.columns), tuple(values), how, as_of=as_of is not None),
        [*outputs, *[Output(name, kind) for name, (_, kind) in zip(values, theirs, strict=True)]],
        kept=Kept(
            "the newest version of a row" if as_of is None else "versions of a row, and events that wait",
            f"lookup in {table.name} by {', '.join(name for name, _ in pairs)}",
            (tuple(stream.columns), tuple(values)),
        ),
    )


def _events(stream: DataFrame, key: Sequence[str], as_of: str | None, columns: Typed) -> DataFrame:
    at = F.lit(None) if as_of is None else F.col(quoted(as_of))
    head = [F.lit(EVENT), at, *[column for column, _ in arrival(stream)]]
    return _rows(stream, key, head, columns)


def _changes(changes: DataFrame, key: Sequence[str], columns: Typed) -> DataFrame:
    for name in key:  # a null in a table's key is no row
        changes = changes.where(F.col(quoted(name)).isNotNull())
    deleted = F.coalesce(F.col(DELETED), F.lit(False))
    return _rows(changes, key, [F.lit(CHANGE), F.col(CHANGED_AT), F.col(VERSION), deleted], columns)


def _rows(df: DataFrame, key: Sequence[str], head: Iterable[Column], columns: Typed) -> DataFrame:
    """Return the rows of one side in the form that both have."""
    return df.select(
        *[plain(*named(df, name)).alias(f"k{place}") for place, name in enumerate(key)],
        *[column.cast(kind).alias(name) for column, (name, kind) in zip(head, _HEAD.items(), strict=True)],
        *[column.alias(f"c{place}", metadata={}) for place, (column, _) in enumerate(columns)],
    )


def _nulls(columns: Typed) -> Typed:
    return [(F.lit(None).cast(kind), kind) for _, kind in columns]


def _in_time(table: Table, wait: str | None) -> DataFrame:
    if table.in_time is None:
        raise TableError(f"the changes of {table.name} have no time to wait for; leave out as_of=")
    return table.in_time(None if wait is None else milliseconds(wait))


def _refuse_arguments(table: object, how: str, as_of: str | None, wait: str | None) -> None:
    if not isinstance(table, Table):
        what = "a DataFrame" if isinstance(table, DataFrame) else f"a {type(table).__name__}"
        raise TableError(
            f"lookup is in {what}, and has to be in a table; declare it with app.table(…), "
            "or join streams with join_within"
        )
    if how not in ("left", "inner"):
        raise TableError(f'how={how!r} is no lookup; use "left" or "inner"')
    if wait is not None and as_of is None:
        raise TableError(
            f"wait={wait!r} without as_of=: without a time nothing waits; name the stream's event time, or leave it out"
        )


def _refuse_types(stream: DataFrame, table: Table, pairs: Iterable[tuple[str, str]]) -> None:
    """Refuse keys of different types: 1 and "1" would never meet."""
    for mine, theirs in pairs:
        one = stream.schema[mine].dataType.simpleString()
        other = table.changes.schema[theirs].dataType.simpleString()
        if one != other:
            raise TableError(
                f"{mine} of the stream is {one} and {theirs} of {table.name} is {other}; "
                f'declare them with one type, or convert it: withColumn("{mine}", F.col("{mine}").cast("{other}"))'
            )


def _refuse_time(stream: DataFrame, as_of: str) -> None:
    time = event_time_of(stream, "the stream of lookup")
    if as_of != time:
        raise TableError(
            f"as_of={as_of!r} is not the event time of the stream, which is {time}; write as_of={time!r}"
        )
