"""A row's key and value as text, made by Spark before the row leaves the JVM.

Keys are the text that `views.keys` makes: one column as it reads, several with commas between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.core.errors import HeadwaterError
from headwater.pipeline.keyed.columns import EXACT_TIMES
from headwater.views.keys import NULL

__all__ = ["ABSENT", "DELETED", "SinkError", "json_row", "key_text", "no_key", "refuse_null"]

DELETED = "_deleted"
"""The column that marks a delete, in what has `mode="changes"`."""

ABSENT = "headwater.absent"
"""In the metadata of a column: as part of a key of several it may be null, where one side of a join is missing."""

_FORMAT = "timestampFormat"
_IN_UTC = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS",
}
_EXACTLY = {**_IN_UTC, **EXACT_TIMES}


class SinkError(HeadwaterError):
    """Rows, or a DataFrame, that a sink cannot take."""


def key_text(frame: DataFrame, key: Sequence[str]) -> Column:
    """Return the key of a row as text; null where its only column is.

    A window stands for its start, and a timestamp is in UTC with milliseconds, or microseconds where it has some.
    """
    texts = [_text(frame, name) for name in key]
    if len(texts) == 1:
        return texts[0]
    escaped = [F.coalesce(_escaped(text), F.lit(NULL)) for text in texts]
    return F.concat_ws(",", *escaped)


def refuse_null(frame: DataFrame, name: str, *, query: str, text: Column) -> Column:
    """Return `text`, or fail the query where the column of that name is null and may not be."""
    problem = no_key(query, name)
    column = _text(frame, name)
    if frame.schema[name].metadata.get(ABSENT):
        column = text  # which is null where it is all of the key
    return F.when(column.isNull(), F.raise_error(problem).cast("string")).otherwise(text)


def no_key(query: str, name: str) -> str:
    """Return what is wrong with a row in which a column of the key is null, and what to do."""
    return (
        f"{query}: a row has no key, because {name} is null; leave such rows out with "
        f'.where("{name} IS NOT NULL"), or give them a value with coalesce'
    )


def json_row(frame: DataFrame, *, without: Sequence[str] = (), nulls: bool) -> Column:
    """Return the whole row as a JSON object; times are in UTC, ISO 8601, with as many digits as they have."""
    names = [name for name in frame.columns if name not in without]
    utc = _in_utc(frame)
    kinds = {name: frame.schema[name].dataType for name in names}
    row = F.struct(*[_readable(_named(name), kind, utc=utc).alias(name) for name, kind in kinds.items()])
    return F.to_json(row, {**_EXACTLY, "ignoreNullFields": str(not nulls).lower()})


def _named(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")  # a dot in the name is no path


def _type_of(frame: DataFrame, name: str) -> DataType:
    try:
        return frame.schema[name].dataType
    except KeyError:
        raise SinkError(
            f"there is no key column {name!r}: the rows have {', '.join(frame.columns)}"
        ) from None


def _text(frame: DataFrame, name: str) -> Column:
    return _plain(_named(name), _type_of(frame, name), utc=_in_utc(frame))


def _plain(column: Column, kind: DataType, *, utc: bool) -> Column:
    match kind:
        case StringType():
            return column
        case StructType() if "start" in kind.names:
            return _plain(column["start"], kind["start"].dataType, utc=utc)
        case TimestampType():
            return _time_text(column, utc=utc)
        case TimestampNTZType():
            return _time_text(column, utc=False)
        case BinaryType():
            return F.base64(column)
        case _ if kind.typeName() in ("array", "map", "struct", "variant"):
            return F.to_json(_readable(column, kind, utc=utc), _EXACTLY)
        case _:
            return column.cast("string")


def _readable(column: Column, kind: DataType, *, utc: bool) -> Column:
    """Return a value whose times are text; those in lists and maps are not, and JSON has them with all digits."""
    match kind:
        case TimestampType() | TimestampNTZType():
            return _plain(column, kind, utc=utc)
        case StructType() if _has_times(kind):
            fields = [
                _readable(column.getField(each.name), each.dataType, utc=utc).alias(each.name)
                for each in kind.fields
            ]
            return F.when(column.isNotNull(), F.struct(*fields))
        case _:
            return column


def _has_times(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_times(each.dataType) for each in kind.fields)
    return isinstance(kind, TimestampType | TimestampNTZType)


def _time_text(column: Column, *, utc: bool) -> Column:
    """Return a time with milliseconds, as is usual, or with microseconds where it has some."""
    if utc:
        short, exact = (F.date_format(column, _IN_UTC[_FORMAT]), F.date_format(column, _EXACTLY[_FORMAT]))
    else:  # CSV is the one format that takes a time zone of its own and adds no quotes
        short, exact = (F.to_csv(F.struct(column), options) for options in (_IN_UTC, _EXACTLY))
    whole = F.date_trunc("millisecond", column) == column
    return F.when(column.isNotNull(), F.when(whole, short).otherwise(exact))


def _in_utc(frame: DataFrame) -> bool:
    return frame.sparkSession.conf.get("spark.sql.session.timeZone") in ("UTC", "Etc/UTC", "Z")


def _escaped(text: Column) -> Column:
    percent = F.replace(text, F.lit("%"), F.lit("%25"))
    return F.replace(percent, F.lit(","), F.lit("%2C"))
