"""A DataFrame through a logic with keyed state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, IntegerType

from headwater.pipeline.keyed.columns import collected, collected_type, plain, plain_type, restored
from headwater.pipeline.keyed.logic import Logic, PagedLogic
from headwater.pipeline.keyed.processor import BucketProcessor
from headwater.pipeline.packing import BUCKET, ROWS, Kept, packed, schema_of, unpacked
from headwater.pipeline.watermark import EVENT_TIME, quoted

__all__ = ["BUCKETS", "Output", "arrival", "keyed", "named"]

BUCKETS: Final = 32
"""Part of the state's layout: another number cannot go on from a checkpoint."""
CACHE: Final = "spark.headwater.state.cache"
"""The setting that says where workers keep their copies of state."""
_NOTHING_MORE: Final = Kept()


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
    logic: Logic | PagedLogic,
    outputs: Sequence[Output],
    *,
    bucket: Column | None = None,
    kept: Kept = _NOTHING_MORE,
) -> DataFrame:
    """Return what a logic makes of the rows of each key.

    The logic gets the columns `rows` as plain values, keyed by `by`, which are plain already; `time` is the event time
    by which the watermark passes rows, where there is one. `bucket` says where a key lies, if not its hash is to.
    `kept` is what a checkpoint depends on beside the types of the rows.
    """
    keys = [key.alias(f"k{number}") for number, key in enumerate(by)]
    values = [plain(column, kind).alias(f"c{number}") for number, (column, kind) in enumerate(rows)]
    # Spark takes an event at the watermark as late, which the source still lets in.
    latest = None if time is None else time.cast("timestamp") + F.expr("INTERVAL '0.000001' SECOND")
    place = F.pmod(F.hash(*by), F.lit(BUCKETS)) if bucket is None else bucket
    names = [f"o{number}" for number in range(len(outputs))]
    fields = ", ".join(f"{name} {each.plain_type}" for name, each in zip(names, outputs, strict=True))
    made = (
        packed(df, place, [*keys, *values], latest, kept=kept)
        .groupBy(BUCKET)
        .transformWithStateInPandas(
            BucketProcessor(logic, len(keys), schema_of(fields), df.sparkSession.conf.get(CACHE, None)),
            f"{ROWS} binary",
            "Append",
            "None" if time is None else "EventTime",
        )
    )
    return unpacked(made, fields).select(
        *[each.restored(name) for name, each in zip(names, outputs, strict=True)]
    )


def arrival(df: DataFrame) -> list[tuple[Column, DataType]]:
    """Return what tells events of the same time apart, where the stream has it: partition and offset."""
    return [
        named(df, name) if name in df.columns else (F.lit(0), IntegerType())
        for name in ("_partition", "_offset")
    ]


def named(df: DataFrame, name: str) -> tuple[Column, DataType]:
    """Return a column of a DataFrame with its type."""
    return F.col(quoted(name)), df.schema[name].dataType
