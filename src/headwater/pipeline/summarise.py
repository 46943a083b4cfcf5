"""`summarise`: windows with many groups, in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegralType,
    LongType,
    MapType,
    NumericType,
    StructType,
    VariantType,
)

from headwater.pipeline.aggregates import Call, Kind
from headwater.pipeline.packing import BUCKET, ROWS, Kept, packed, unpacked
from headwater.pipeline.summaries import Measure, Summary
from headwater.pipeline.summary_processor import SummaryProcessor
from headwater.pipeline.watermark import EVENT_TIME, TimeError, quoted
from headwater.pipeline.windows import described

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["summarise"]

BUCKETS: Final = 8
"""Part of the state's layout: another number cannot go on from a checkpoint."""
_WINDOW: Final = "window"
_MANY: Final = (ArrayType, MapType, StructType, VariantType)
_MORE_DIGITS: Final = 10
_MOST_DIGITS: Final = 38


def summarise(df: DataFrame, by: str | Sequence[str], aggregate: Mapping[str, str]) -> DataFrame:
    """Sum up each group of the windows that `tumbling` or `hopping` has added, once, as soon as they close.

    `aggregate` maps the name of each column of the result to `count(*)`, or count, sum, mean, min or max of a column:

        windows = orders.transform(tumbling("placed_at", "10 seconds"))
        summarise(windows, by="user_id", aggregate={"orders": "count(*)", "spent": "sum(amount)"})

    It gives what `groupBy("window", …).agg(…)` gives, faster where there are many groups; that one has all of Spark's
    functions, and can show a window before it closes.
    """
    names = [by] if isinstance(by, str) else list(by)
    _check(df, names, aggregate)
    wanted = [_Wanted.read(df, name, text) for name, text in aggregate.items()]
    window, keys = F.col(_WINDOW), [F.col(quoted(name)) for name in names]
    columns = [
        window["start"].alias("start"),
        window["end"].alias("end"),
        *[key.alias(f"k{number}") for number, key in enumerate(keys)],
        *[each.value.alias(f"v{number}") for number, each in enumerate(wanted) if each.measure.folds],
        *[each.present.alias(f"n{number}") for number, each in enumerate(wanted) if each.measure.counts],
    ]
    bucket = F.pmod(F.hash(*keys), F.lit(BUCKETS)) if keys else F.lit(0)
    summary = Summary(len(names), tuple(each.measure for each in wanted))
    kept = Kept(
        ", ".join([*[each.measure.kind for each in wanted], *described(df.schema[_WINDOW].metadata)]),
        f"summarise by {', '.join(names)}: {', '.join(aggregate.values())}",
    )
    shown = df.where(window.isNotNull())
    rows = packed(shown, bucket, columns, window["end"], partial(_fold, summary), kept=kept)
    types = ["timestamp", "timestamp", *[df.schema[name].dataType.simpleString() for name in names]]
    fields = [*zip(summary.group, types, strict=True)]
    fields += [(f"r{number}", each.type.simpleString()) for number, each in enumerate(wanted)]
    made = rows.groupBy(BUCKET).transformWithStateInPandas(
        SummaryProcessor(summary), f"{ROWS} binary", "Append", "EventTime"
    )
    found = unpacked(made, ", ".join(f"{name} {kind}" for name, kind in fields))
    return found.select(
        F.struct("start", "end").alias(_WINDOW, metadata={**EVENT_TIME, "spark.timeWindow": True}),
        *[F.col(f"k{number}").alias(name) for number, name in enumerate(names)],
        *[F.col(f"r{number}").alias(name) for number, name in enumerate(aggregate)],
    )


def _fold(summary: Summary, rows: pa.Table) -> pa.Table:
    """Sum up the rows of a task before they are shuffled; what decides their place stays with them."""
    beside = [name for name in rows.column_names if name not in summary.columns]
    return summary.folded([rows], beside)


def _check(df: DataFrame, by: list[str], aggregate: Mapping[str, str]) -> None:
    first = "put tumbling() or hopping() before it"
    if _WINDOW not in df.columns:
        raise TimeError(f"summarise finds no column window; {first}")
    kind, metadata = df.schema[_WINDOW].dataType, df.schema[_WINDOW].metadata
    if not isinstance(kind, StructType) or kind.fieldNames() != ["start", "end"]:
        raise TimeError(f"summarise finds a column window that is none; {first}")
    if metadata.get("spark.sessionWindow"):
        raise TimeError("summarise does not take session windows; use groupBy().agg()")
    if not EVENT_TIME.keys() <= metadata.keys():
        raise TimeError(
            "summarise waits until a window closes, and this one has no event time; declare event_time= on the topic"
        )
    missing = [name for name in by if name not in df.columns or name == _WINDOW]
    if missing:
        others = ", ".join(name for name in df.columns if name != _WINDOW)
        raise TimeError(f"summarise by {', '.join(missing)}; there are {others}, beside the window")
    nested = [name for name in by if isinstance(df.schema[name].dataType, _MANY)]
    if nested:
        raise TimeError(f"summarise by {', '.join(nested)}, which holds several values; select one of them")
    if not aggregate:
        raise TimeError('aggregate= names nothing; give columns, as in {"n": "count(*)"}')


@dataclass(frozen=True)
class _Wanted:
    """A result that is asked for, and how it comes about."""

    measure: Measure
    value: Column
    present: Column
    type: DataType

    @staticmethod
    def read(df: DataFrame, name: str, text: str) -> _Wanted:
        """Read what the user wrote."""
        function, of = Call.read(df, name, text)
        if of is None:
            one = F.lit(1).cast("bigint")
            return _Wanted(Measure(function), one, one, LongType())
        column, kind = F.col(quoted(of)), df.schema[of].dataType
        folded = _folded_type(function, kind)
        if folded is None:
            raise TimeError(
                f"{name}={text!r}: {of} is {kind.simpleString()}, of which there is no {function}"
            )
        found = LongType() if function == "count" else folded
        return _Wanted(Measure(function), column.cast(folded), column.isNotNull().cast("bigint"), found)


def _folded_type(how: Kind, kind: DataType) -> DataType | None:
    """Return the type that values are folded in, which is the result's, or None where there is no such result."""
    if how == "count":
        return kind
    if how in ("min", "max"):
        return None if isinstance(kind, _MANY) else kind
    if isinstance(kind, DecimalType) and how == "sum":
        return DecimalType(min(_MOST_DIGITS, kind.precision + _MORE_DIGITS), kind.scale)
    if isinstance(kind, IntegralType) and how == "sum":
        return LongType()
    return DoubleType() if isinstance(kind, NumericType) else None
