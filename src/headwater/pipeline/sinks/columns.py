"""A row's key and value as text, made by Spark before the row leaves the JVM.

Keys are the text that `views.keys` makes: one column as it reads, several with commas between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructType, TimestampNTZType, TimestampType

from headwater.core.errors import HeadwaterError
from headwater.views.keys import NULL

__all__ = ["DELETED", "SinkError", "json_row", "key_text", "refuse_null"]

DELETED = "_deleted"
"""The column that marks a delete, in what has `mode="changes"`."""

_IN_UTC = {"timeZone": "UTC"}
_PLAIN_TEXT = {**_IN_UTC, "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}


class SinkError(HeadwaterError):
    """Rows, or a DataFrame, that a sink cannot take."""


def key_text(frame: DataFrame, key: Sequence[str]) -> Column:
    """Return the key of a row as text; null where its only column is.

    A window stands for its start, and a timestamp is in UTC with milliseconds.
    """
    texts = [_text(_named(name), _type_of(frame, name)) for name in key]
    if len(texts) == 1:
        return texts[0]
    escaped = [F.coalesce(_escaped(text), F.lit(NULL)) for text in texts]
    return F.concat_ws(",", *escaped)


def refuse_null(frame: DataFrame, name: str, *, query: str, text: Column) -> Column:
    """Return `text`, or fail the query where the column of that name is null."""
    problem = (
        f"{query}: a row has no key, because {name} is null; leave such rows out with "
        f'.where("{name} IS NOT NULL"), or give them a value with coalesce'
    )
    column = _text(_named(name), _type_of(frame, name))
    return F.when(column.isNull(), F.raise_error(problem).cast("string")).otherwise(text)


def json_row(frame: DataFrame, *, without: Sequence[str] = (), nulls: bool) -> Column:
    """Return the whole row as a JSON object; times are in UTC, ISO 8601."""
    names = [name for name in frame.columns if name not in without]
    options = {**_IN_UTC, "ignoreNullFields": str(not nulls).lower()}
    return F.to_json(F.struct(*(_named(name) for name in names)), options)


def _named(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")  # a dot in the name is no path


def _type_of(frame: DataFrame, name: str) -> DataType:
    try:
        return frame.schema[name].dataType
    except KeyError:
        raise SinkError(
            f"there is no key column {name!r}: the rows have {', '.join(frame.columns)}"
        ) from None


def _text(column: Column, kind: DataType) -> Column:
    match kind:
        case StringType():
            return column
        case StructType() if "start" in kind.names:
            return _text(column["start"], kind["start"].dataType)
        case TimestampType() | TimestampNTZType():
            # CSV is the one format that takes a time zone of its own and adds no quotes.
            return F.when(column.isNotNull(), F.to_csv(F.struct(column), _PLAIN_TEXT))
        case BinaryType():
            return F.base64(column)
        case _ if kind.typeName() in ("array", "map", "struct", "variant"):
            return F.to_json(column, _IN_UTC)
        case _:
            return column.cast("string")


def _escaped(text: Column) -> Column:
    percent = F.replace(text, F.lit("%"), F.lit("%25"))
    return F.replace(percent, F.lit(","), F.lit("%2C"))
