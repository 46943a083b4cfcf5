"""Which batches a reader of committed records may see."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from headwater.record.batch import Buffer, CorruptBatch, Header, batches
from headwater.record.records import decode_batch

__all__ = ["committed_batches", "is_abort"]

_MARKER_KEY = struct.Struct(">hh")


def committed_batches(records: Buffer, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Header]]:
    """Yield (position, header) of each whole batch that holds committed records.

    An aborted transaction's batches go from its first offset to its abort marker, which lies in the log
    where the transaction ended; control batches are never a reader's.
    """
    begun = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for position, header in batches(records):
        while begun and begun[-1][1] <= header.last_offset:
            aborting.add(begun.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and is_abort(records, position):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield position, header


def is_abort(records: Buffer, position: int) -> bool:
    """Tell whether the control batch at `position` is an abort marker."""
    for record in decode_batch(records, position):
        if record.key is None or len(record.key) < _MARKER_KEY.size:
            raise CorruptBatch("a control record has no type")
        _, kind = _MARKER_KEY.unpack_from(record.key)
        return bool(kind == 0)
    return False
