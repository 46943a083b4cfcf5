"""A DataFrame through a logic with keyed state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from headwater.pipeline.keyed.columns import collected, collected_type, plain, plain_type, restored
from headwater.pipeline.keyed.logic import Logic
from headwater.pipeline.keyed.processor import BucketProcessor
from headwater.pipeline.watermark import EVENT_TIME, marked_after, quoted

__all__ = ["BUCKETS", "Output", "keyed"]

BUCKETS: Final = 32
"""Part of the state's layout: another number cannot go on from a checkpoint."""
CACHE: Final = "spark.headwater.state.cache"
"""The setting that says where workers keep their copies of state."""
_EVICT_BY: Final = "evict_by"


@dataclass(frozen=True)
class Output:
    """One column of the results."""

    name: str
    type: DataType
    event_time: bool = False
    made: bool = False
    """Whether the logic has made it, and does not hand on what it was given: a list is one of plain values then."""

    @property
    def plain_type(self) -> str:
        """The type that it has when it comes back."""
        if self.made and isinstance(self.type, ArrayType):
            return collected_type(self.type)
        return plain_type(self.type)

    def restored(self, name: str) -> Column:
        """Return it as it is to be, from the column that it came back in."""
        column = F.col(name)
        if self.made and isinstance(self.type, ArrayType):
            column = collected(column, self.type)
        else:
            column = restored(column, self.type)
        return column.alias(self.name, metadata=EVENT_TIME) if self.event_time else column.alias(self.name)


def keyed(
    df: DataFrame,
    by: Sequence[Column],
    rows: Sequence[tuple[Column, DataType]],
    time: Column | None,
    logic: Logic,
    outputs: Sequence[Output],
) -> DataFrame:
    """Return what a logic makes of the rows of each key.

    The logic gets the columns `rows` as plain values, keyed by `by`, which are plain already; `time` is the event time
    by which the watermark passes rows, where there is one.
    """
    keys = [key.alias(f"k{number}") for number, key in enumerate(by)]
    values = [plain(column, kind).alias(f"c{number}") for number, (column, kind) in enumerate(rows)]
    timed = [] if time is None else [marked_after(time.cast("timestamp"), _EVICT_BY)]
    bucketed = df.select(F.pmod(F.hash(*by), F.lit(BUCKETS)).alias("bucket"), *keys, *values, *timed)
    names = [f"o{number}" for number in range(len(outputs))]
    cache = df.sparkSession.conf.get(CACHE, None)
    columns = ["bucket", *(f"k{n}" for n in range(len(keys))), *(f"c{n}" for n in range(len(values)))]
    made = bucketed.groupBy("bucket").transformWithStateInPandas(
        BucketProcessor(logic, len(keys), tuple(names), cache, tuple(columns)),
        ", ".join(f"{name} {each.plain_type}" for name, each in zip(names, outputs, strict=True)),
        "Append",
        "EventTime" if time is not None else "None",
    )
    return made.select(*[each.restored(name) for name, each in zip(names, outputs, strict=True)])


def named(df: DataFrame, name: str) -> tuple[Column, DataType]:
    """Return a column of a DataFrame with its type."""
    return F.col(quoted(name)), df.schema[name].dataType
