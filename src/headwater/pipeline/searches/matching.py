"""Stored searches on a stream: each event against thousands of standing queries.

Events are spread over shards and every change of a query goes to all of them, since changes are few and events are
many. What a shard keeps, and when its index is made, is in `searches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    TimestampType,
)

from headwater.core.errors import HeadwaterError
from headwater.pipeline.keyed.columns import plain
from headwater.pipeline.keyed.operator import Output, keyed
from headwater.pipeline.searches.fields import Kind
from headwater.pipeline.searches.searches import EVENT, QUERY, Searches, refusal
from headwater.pipeline.tables import DELETED, VERSION, Table
from headwater.pipeline.watermark import EVENT_TIME, quoted

__all__ = ["SearchError", "matching", "unreadable_searches"]

SHARDS: Final = 16
"""Part of the state's layout: another number cannot go on from a checkpoint."""
SEARCH: Final = "search"
JSON: Final = "search_json"
_REASON: Final = "reason"
_KINDS: Final[tuple[tuple[type[DataType], Kind], ...]] = (
    (IntegralType, "number"),
    (FloatType, "number"),
    (DoubleType, "number"),
    (DecimalType, "decimal"),
    (StringType, "text"),
    (BooleanType, "boolean"),
    (TimestampType, "time"),
    (DateType, "date"),
)


class SearchError(HeadwaterError):
    """Stored searches, or a stream for them, that cannot be worked with."""


def matching(events: DataFrame, searches: Table | DataFrame) -> DataFrame:
    """Match each event against all stored searches.

        matching(flats, searches)

    For each search that an event matches there is a row: `search`, its name, `search_json`, its JSON, and the event's
    columns. `searches` is a table with the name as its key and one more column, the JSON, or a topic of
    `format="raw"` with the columns `key`, `value` and `_offset`. The language is described in docs/searches.md.
    """
    taken = [name for name in (SEARCH, JSON) if name in events.columns]
    if taken:
        raise SearchError(f"matching adds a column {taken[0]}, and the events have one; rename it")
    fields = events.schema.fields
    rows = [
        ("tag", IntegerType()),
        ("first", LongType()),
        ("second", LongType()),
        ("name", StringType()),
        ("text", StringType()),
        *[(f"e{number}", _shipped(field)) for number, field in enumerate(fields)],
    ]
    names = tuple(field.name for field in fields)
    found = keyed(
        _events(events).unionByName(_changes(searches, fields)),
        [F.col("shard")],
        [(F.col(name), kind) for name, kind in rows],
        None,
        Searches(names, _kinds(events)),
        [
            Output(SEARCH, StringType()),
            Output(JSON, StringType()),
            *[Output(f"e{number}", _shipped(field)) for number, field in enumerate(fields)],
            Output(_REASON, StringType()),
        ],
        bucket=F.col("shard"),
    )
    # How many searches could not be read is told in the query's progress, and is no match.
    refused = F.sum(F.col(_REASON).isNotNull().cast("bigint")).alias("refused")
    counted = found.observe(f"headwater_searches.{uuid4().hex}", refused)
    return counted.where(F.col(_REASON).isNull()).select(
        SEARCH, JSON, *[_restored(number, field) for number, field in enumerate(fields)]
    )


def unreadable_searches(searches: Table | DataFrame, events: DataFrame) -> DataFrame:
    """Say what is wrong with searches that cannot be read, as changes: a row leaves once its search can be.

    Rows have the columns `search`, `search_json`, `reason` and `_deleted`, for `@app.view(key="search",
    mode="changes")`.
    """
    kinds = _kinds(events)

    def why(name: str | None, text: str | None) -> str | None:
        if name is None:
            return "the search has no name: its record has no key"
        return None if text is None else refusal(text, kinds)

    given = _given(searches)
    reasons = F.udf(why, StringType(), useArrow=False)(F.col("name"), F.col("text"))
    return given.select(
        F.coalesce(F.col("name"), F.lit("")).alias(SEARCH),
        F.col("text").alias(JSON),
        reasons.alias(_REASON),
    ).withColumn(DELETED, F.col(_REASON).isNull())


def _events(events: DataFrame) -> DataFrame:
    columns = {field.name: F.col(quoted(field.name)) for field in events.schema.fields}
    first, second = (columns.get(name, F.lit(0)).cast("bigint") for name in ("_partition", "_offset"))
    if {"_partition", "_offset"} <= columns.keys():
        spread: Sequence[Column] = [first, second]
    else:
        spread = [plain(columns[field.name], field.dataType) for field in events.schema.fields]
    return events.select(
        # Not at random: a task that is done again has to put an event where it was.
        F.pmod(F.xxhash64(*spread), F.lit(SHARDS)).cast("int").alias("shard"),
        F.lit(EVENT).alias("tag"),
        first.alias("first"),
        second.alias("second"),
        F.lit(None).cast("string").alias("name"),
        F.lit(None).cast("string").alias("text"),
        *[
            columns[field.name].cast(_shipped(field)).alias(f"e{number}")
            for number, field in enumerate(events.schema.fields)
        ],
    )


def _changes(searches: Table | DataFrame, fields: Sequence[StructField]) -> DataFrame:
    return (
        _given(searches)
        .where(F.col("name").isNotNull())
        .select(
            F.explode(F.sequence(F.lit(0), F.lit(SHARDS - 1))).alias("shard"),
            F.lit(QUERY).alias("tag"),
            F.col("version").alias("first"),
            F.lit(None).cast("bigint").alias("second"),
            "name",
            "text",
            *[F.lit(None).cast(_shipped(field)).alias(f"e{number}") for number, field in enumerate(fields)],
        )
    )


def _given(searches: Table | DataFrame) -> DataFrame:
    """Return the changes of searches as `name`, `text`, null where it was removed, and `version`."""
    if isinstance(searches, Table):
        others = [name for name in searches.columns if name not in searches.key]
        if len(searches.key) != 1 or len(others) != 1:
            raise SearchError(
                f"the table {searches.name} has the columns {', '.join(searches.columns)}; stored searches have "
                'a name as key and a text with their JSON, as in "name string, search string"'
            )
        text = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), F.col(quoted(others[0])))
        name, version, df = F.col(quoted(searches.key[0])), F.col(VERSION), searches.changes
        kind = df.schema[others[0]].dataType
    else:
        df = searches
        if not {"key", "value", "_offset"} <= set(df.columns):
            raise SearchError(
                f"a topic of searches has the columns key, value and _offset, and this has {', '.join(df.columns)}; "
                'declare it as "key string, value string" with format="raw" and metadata=["_offset"]'
            )
        name, text, version = F.col("key"), F.col("value"), F.col("_offset")
        kind = df.schema["value"].dataType
    if not isinstance(kind, StringType):
        raise SearchError(f"the JSON of stored searches is a text, and is declared {kind.simpleString()}")
    return df.select(
        name.cast("string").alias("name"), text.alias("text"), version.cast("bigint").alias("version")
    )


def _kinds(events: DataFrame) -> tuple[tuple[str, Kind], ...]:
    """Return the columns that searches may ask about."""
    found = [
        (field.name, kind)
        for field in events.schema.fields
        if not field.name.startswith("_")
        for type_, kind in _KINDS
        if isinstance(field.dataType, type_)
    ]
    if not found:
        raise SearchError(f"none of the events' columns can be searched: {', '.join(events.columns)}")
    return tuple(found)


def _shipped(field: StructField) -> DataType:
    """Return the type as which a column goes to the searches: decimals as their digits."""
    return StringType() if isinstance(field.dataType, DecimalType) else field.dataType


def _restored(number: int, field: StructField) -> Column:
    column = F.col(f"e{number}").cast(field.dataType)
    metadata: dict[str, Any] = EVENT_TIME if EVENT_TIME.keys() <= field.metadata.keys() else {}
    return column.alias(field.name, metadata=metadata) if metadata else column.alias(field.name)
