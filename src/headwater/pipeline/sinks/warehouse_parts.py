"""What a task does for a warehouse: the changes of its buckets, each merged with the part that is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater.app.types import Field
from headwater.derived.parts import KEY, arrow_schema, merge, part_name, read_bucket, write_part
from headwater.pipeline.boundaries import boundary
from headwater.pipeline.source.key_check import text_converter

__all__ = ["BUCKET", "DELETED", "OFFSET", "PARTITION", "RESULT", "TIME", "PartMerger", "last_changes"]

BUCKET = "_bucket"
DELETED, OFFSET, PARTITION, TIME = "_deleted", "_version", "_partition", "_timestamp"
RESULT = "bucket int, rows bigint"
"""The columns of a task's result, one row for each part that it has written."""

_RESULT = pa.schema([("bucket", pa.int32()), ("rows", pa.int64())])
_GATHER_ROWS = 500_000
"""After so many changes of one bucket those that were overtaken are dropped, in case of few keys that change often."""


@dataclass(frozen=True)
class PartMerger:
    """Merges buckets; Spark sends it to the workers, with changes that are sorted by bucket."""

    before: str
    had: int
    made: str
    buckets: int
    columns: tuple[Field, ...]
    texts: tuple[str, ...]
    """The columns that were read as the text that their JSON has."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a part for each bucket, and tell how many rows it has."""
        for bucket, changes in _by_bucket(batches):
            yield self._merge(bucket, changes)
            boundary("warehouse.in_task")

    def _merge(self, bucket: int, changes: pa.Table) -> pa.RecordBatch:
        schema = arrow_schema(self.columns)
        latest = last_changes(changes.filter(pc.is_valid(changes.column(KEY))))
        gone = latest.filter(latest.column(DELETED)).column(KEY).combine_chunks()
        changed = (
            self._typed(latest.filter(pc.invert(latest.column(DELETED)))).select(schema.names).cast(schema)
        )
        table = read_bucket(Path(self.before), bucket, self.buckets, self.had, schema)
        merged = merge(table, changed, gone)
        write_part(merged, Path(self.made, part_name(bucket)))
        return pa.record_batch([pa.array([bucket], pa.int32()), pa.array([merged.num_rows])], schema=_RESULT)

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Return rows whose columns that were read as text have their types."""
        for column in self.columns:
            if column.name not in self.texts:
                continue
            convert = text_converter(column)
            values = [convert(text) for text in rows.column(column.name).to_pylist()]
            place = rows.column_names.index(column.name)
            kind = arrow_schema([column]).field(1).type
            rows = rows.set_column(place, column.name, pa.array(values, kind))
        return rows


def last_changes(changes: pa.Table) -> pa.Table:
    """Return the last change of each key.

    In a partition that is the one of the highest offset. Where a key is in several, as after partitions were added, it
    is the one that was written last.
    """
    latest = _last_of_partition(changes)
    keys = _codes(latest)
    times = latest.column(TIME).cast(pa.int64()).to_numpy()
    order = np.lexsort((latest.column(PARTITION).to_numpy(), times, keys))
    return latest.take(pa.array(order[_ends(keys[order])]))


def _last_of_partition(changes: pa.Table) -> pa.Table:
    keys, partitions = _codes(changes), changes.column(PARTITION).to_numpy()
    order = np.lexsort((changes.column(OFFSET).to_numpy(), partitions, keys))
    return changes.take(pa.array(order[_ends(keys[order], partitions[order])]))


def _codes(changes: pa.Table) -> NDArray[np.int32]:
    encoded = changes.column(KEY).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes: NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
    return codes


def _ends(*columns: NDArray[Any]) -> NDArray[np.intp]:
    """Return the last place of each run of equal values."""
    if not len(columns[0]):
        return np.zeros(0, np.intp)
    differs = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return np.flatnonzero(np.append(differs, True))


def _by_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield buckets with all their changes."""
    current: int | None = None
    gathered: list[pa.Table] = []
    count = 0
    for batch in batches:
        buckets = batch.column(batch.schema.get_field_index(BUCKET)).to_numpy()
        start = 0
        for end in (_ends(buckets) + 1).tolist():
            bucket = int(buckets[start])
            if bucket != current:
                if current is not None:
                    yield current, pa.concat_tables(gathered)
                current, gathered, count = bucket, [], 0
            gathered.append(pa.Table.from_batches([batch.slice(start, end - start)]))
            count += end - start
            start = end
            if count > _GATHER_ROWS:
                gathered, count = _condensed(gathered)
    if current is not None:
        yield current, pa.concat_tables(gathered)


def _condensed(gathered: Sequence[pa.Table]) -> tuple[list[pa.Table], int]:
    changes = pa.concat_tables(gathered)
    # Where all keys differ there is nothing to gain: look again after as many more.
    return [_last_of_partition(changes.filter(pc.is_valid(changes.column(KEY))))], 0
