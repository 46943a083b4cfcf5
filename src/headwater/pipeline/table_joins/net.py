"""The third stage: one change for each key of the result and batch.

A row of the left that goes from one department to another is deleted by the join key that it left and
upserted by the one that it came to, in the same batch and in no order. A key of the result lives in one join key at a
time, so there is at most one upsert, and it says all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["netted"]


def netted(batches: Iterable[pa.RecordBatch], key: Sequence[str], deleted: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `TableJoin`, in which all of a key are together, without deletes of what comes back.

    Upserts go through as they come; deletes wait for the end.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    deletes: list[pa.RecordBatch] = []
    keys: list[pa.RecordBatch] = []
    for batch in batches:
        is_delete = batch.column(deleted)
        upserts = batch.filter(pc.invert(is_delete))
        if upserts.num_rows < batch.num_rows:
            deletes.append(batch.filter(is_delete))
        if upserts.num_rows:
            keys.append(upserts.select(key))
            yield upserts
    back = set(_rows(keys)) if deletes else set()
    for batch in deletes:
        gone = [row not in back for row in _rows([batch.select(key)])]
        yield batch.filter(pa.array(gone, pa.bool_()))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
