"""Rows on their way to keyed state and back, many in one.

Spark's Python state hands rows over one by one, as tuples, some 5 µs each. So rows are packed into tables of
Arrow's before they are shuffled, one for each bucket of keys, and their results are unpacked behind it: what Spark
moves, sorts and takes apart is tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.pipeline.watermark import EVENT_TIME

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BUCKET",
    "LATEST",
    "ROWS",
    "Fold",
    "Kept",
    "frame",
    "pack",
    "packed",
    "tables",
    "unpack",
    "unpacked",
]

BUCKET: Final = "bucket"
ROWS: Final = "rows"
LATEST: Final = "latest"
_PACKED: Final = f"{BUCKET} int, {ROWS} binary, {LATEST} bigint"
_FAR: Final = 8_000_000_000_000_000
"""Two and a half centuries, in µs: pandas counts nanoseconds from 1970, and not much further."""
_TOGETHER: Final = 128 * 1024
"""How many rows of a task are folded, and packed, together."""

Fold = Callable[[pa.Table], pa.Table]
"""Makes fewer rows, of the same columns, of those that a task has."""


@dataclass(frozen=True)
class Kept:
    """What the state of an operator depends on beside the types of its rows: `checkpoint` compares it."""

    layout: str = ""
    """How it is laid out: a query with another one cannot go on with it."""
    text: str = ""
    """What was asked for: a query that asks for something else goes on with it, and says so."""
    parts: tuple[tuple[str, ...], ...] = ()
    """The names of the last columns of its rows, where it goes on with more of them at the end of each part."""

    def marked(self, bucket: Column, name: str) -> Column:
        """Return the column that an operator is grouped by, with this in its metadata."""
        parts = json.dumps(self.parts)
        metadata = {"headwater.layout": self.layout, "headwater.text": self.text, "headwater.parts": parts}
        return bucket.cast("int").alias(name, metadata=metadata)


def packed(
    df: DataFrame,
    bucket: Column,
    columns: Sequence[Column],
    latest: Column | None,
    fold: Fold | None = None,
    *,
    kept: Kept,
) -> DataFrame:
    """Return rows of the columns, packed by bucket.

    `latest` is the event time by which Spark takes rows as late: packed ones have that of the last of them.
    """
    timed = [] if latest is None else [F.unix_micros(latest).alias(LATEST)]
    rows = df.select(kept.marked(bucket, BUCKET), *columns, *timed)
    found = rows.mapInArrow(_Packer(fold), _PACKED)
    if latest is None:
        return found.select(BUCKET, ROWS)
    time = F.timestamp_micros(F.greatest(F.lit(-_FAR), F.least(F.lit(_FAR), F.col(LATEST))))
    time = time.alias(LATEST, metadata=EVENT_TIME)
    return found.select(BUCKET, ROWS, time)


def unpacked(df: DataFrame, schema: str) -> DataFrame:
    """Return the rows, of a schema as DDL has it, that `frame` has packed."""
    return df.mapInArrow(_unpack, schema)


def tables(frames: Iterator[pd.DataFrame]) -> Iterator[pa.Table]:
    """Yield the tables that a bucket is given."""
    for each in frames:
        for data in each[ROWS]:
            yield unpack(data)


def frame(table: pa.Table) -> pd.DataFrame:
    """Return results as Spark takes them."""
    import pandas as pd

    return pd.DataFrame({ROWS: [pack(table)] if table.num_rows else []}, dtype=object)


def schema_of(ddl: str) -> pa.Schema:
    """Return a schema as Arrow has it."""
    fields = StructType.fromDDL(ddl)
    assert isinstance(fields, StructType)
    return to_arrow_schema(fields)


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as Python's values, None for null, and for what is no number."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    found: list[Any] = column.to_pylist()
    return found


def pack(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.Table:
    """Return the table that `pack` was given."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


class _Packer:
    """Takes the rows of a task."""

    def __init__(self, fold: Fold | None) -> None:
        self._fold = fold

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            some.append(batch)
            count += batch.num_rows
            if count >= _TOGETHER:
                yield self._packed(pa.Table.from_batches(some))
                some, count = [], 0
        if count:
            yield self._packed(pa.Table.from_batches(some))

    def _packed(self, rows: pa.Table) -> pa.RecordBatch:
        if self._fold is not None:
            rows = self._fold(rows)
        # In the order in which they came, within each bucket.
        rows = rows.take(pc.sort_indices(rows[BUCKET])).combine_chunks()
        numbers = rows[BUCKET].to_numpy()
        starts = [0, *(numbers[1:] != numbers[:-1]).nonzero()[0] + 1]
        ends = [*starts[1:], rows.num_rows]
        names = [name for name in rows.column_names if name not in (BUCKET, LATEST)]
        values = rows.select(names)
        timed = LATEST in rows.column_names
        latest = [
            pc.max(rows[LATEST].slice(start, end - start)) if timed else None
            for start, end in zip(starts, ends, strict=True)
        ]
        return pa.record_batch(
            {
                BUCKET: pa.array([int(numbers[start]) for start in starts], pa.int32()),
                ROWS: pa.array(
                    [pack(values.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)],
                    pa.binary(),
                ),
                LATEST: pa.array(latest, pa.int64()),
            }
        )


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for data in batch.column(0):
            yield from unpack(data.as_py()).to_batches()
