"""The parts of a warehouse: Parquet files of rows by the hash of their keys, each merged with its changes alone.

No part needs another, so that one process may merge them in turn and the tasks of a Spark job side by side. There are
always 2ⁿ buckets: twice as many split each in two, half as many join two.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.app.types import Array, DataType, Decimal, Field, Map, Scalar, Struct

__all__ = [
    "BUCKET_ROWS",
    "KEY",
    "arrow_schema",
    "bucket_of",
    "buckets_for",
    "merge",
    "part_name",
    "read_bucket",
    "sources",
    "write_part",
]

KEY = "_key"
"""The column that rows are merged by: the text of the key."""

BUCKET_ROWS = 250_000
"""What a bucket holds at most, more or less."""

_SPARSE = 8
"""Buckets are joined where they hold less than this part of what they may."""


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket of a key."""
    return zlib.crc32(key.encode()) % buckets


def part_name(bucket: int) -> str:
    """Return the name of a bucket's file."""
    return f"part-{bucket:04}.parquet"


def buckets_for(rows: int, had: int, bucket_rows: int = BUCKET_ROWS) -> int:
    """Return how many buckets rows are to be in, given how many there are.

    >>> buckets_for(1000, 1, 250), buckets_for(1000, 64, 250), buckets_for(900, 8, 250)
    (4, 32, 8)
    """
    buckets = had
    while rows > buckets * bucket_rows:
        buckets *= 2
    while buckets > 1 and rows * _SPARSE < buckets * bucket_rows:
        buckets //= 2
    return buckets


def sources(bucket: int, buckets: int, had: int) -> list[int]:
    """Return the old buckets that hold the rows of a new one.

    >>> sources(5, 8, 4), sources(1, 2, 8)
    ([1], [1, 3, 5, 7])
    """
    fewer = min(buckets, had)
    return list(range(bucket % fewer, had, fewer))


def read_bucket(directory: Path | None, bucket: int, buckets: int, had: int, schema: Any) -> Any:
    """Return the rows that are in a bucket, of a version that may have had another number of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if directory is None:
        return schema.empty_table()
    tables = [
        pq.read_table(directory / part_name(each), schema=schema) for each in sources(bucket, buckets, had)
    ]
    table = pa.concat_tables(tables)
    if buckets <= had:
        return table
    keys = table.column(KEY).to_pylist()
    return table.filter(pa.array([bucket_of(key, buckets) == bucket for key in keys], pa.bool_()))


def merge(table: Any, changed: Any, gone: Any) -> Any:
    """Return the rows of a bucket with those that changed, and without those whose keys are gone, by key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    touched = pa.chunked_array([*changed.column(KEY).chunks, *pa.chunked_array([gone], pa.string()).chunks])
    kept = table
    if table.num_rows and len(touched):
        kept = table.filter(pc.invert(pc.is_in(table.column(KEY), value_set=touched.combine_chunks())))
    return pa.concat_tables([kept, changed]).sort_by(KEY)


def write_part(table: Any, path: Path) -> None:
    """Write a part to stable storage; whoever sees the file sees all of it."""
    import pyarrow.parquet as pq

    # A task that Spark starts twice writes it twice, each under a name of its own.
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    with temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def arrow_schema(columns: Sequence[Field]) -> Any:
    """Return the columns of the files, the key first."""
    import pyarrow as pa

    fields = [pa.field(KEY, pa.string(), nullable=False)]
    return pa.schema([*fields, *(pa.field(column.name, _arrow(column.type)) for column in columns)])


def _arrow(kind: DataType) -> Any:
    import pyarrow as pa

    match kind:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(_arrow(element))
        case Map(key, element):
            return pa.map_(_arrow(key), _arrow(element))
        case Struct(fields):
            return pa.struct([pa.field(field.name, _arrow(field.type)) for field in fields])
        case Scalar(name):
            return {
                "boolean": pa.bool_(),
                "tinyint": pa.int8(),
                "smallint": pa.int16(),
                "int": pa.int32(),
                "bigint": pa.int64(),
                "float": pa.float32(),
                "double": pa.float64(),
                "string": pa.string(),
                "binary": pa.binary(),
                "date": pa.date32(),
                "timestamp": pa.timestamp("us", tz="UTC"),
                "timestamp_ntz": pa.timestamp("us"),
            }[name]
    raise TypeError(f"{kind} is no type of a column")
