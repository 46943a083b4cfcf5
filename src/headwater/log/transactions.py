"""Transactions as one partition sees them: markers, what is still open, and what was aborted.

A transaction's records lie in the log among all others; a marker, a control batch with one record, says
how it ended. Readers of committed records are kept before the first open transaction (the last stable
offset) and are told which transactions in what they read were aborted.

A marker counts once it is durable: until the high watermark has passed it, the transaction it ends holds
the last stable offset back as if it were open.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from headwater.record.batch import CONTROL, TRANSACTIONAL, Buffer, CorruptBatch
from headwater.record.records import Record, decode_batch, encode_batch

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """How a transaction ended, and in which life of its coordinator."""

    commit: bool
    coordinator_epoch: int


class Aborted(NamedTuple):
    """A transaction that was aborted: its first record's offset and its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytearray:
    """Return the control batch that ends a producer's transaction."""
    key = _KEY.pack(0, _COMMIT if marker.commit else _ABORT)
    record = Record(0, now_ms, key, _VALUE.pack(0, marker.coordinator_epoch))
    return encode_batch(
        [record], attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=producer_epoch
    )


def decode_marker(batch: Buffer) -> Marker | None:
    """Return the marker in a control batch, or None where it is a control record of another kind."""
    try:
        record = next(decode_batch(batch))
        kind = _KEY.unpack_from(record.key or b"")[1]
        epoch = _VALUE.unpack_from(record.value or b"")[1]
    except (StopIteration, struct.error):
        raise CorruptBatch("a control batch holds no marker") from None
    return Marker(kind == _COMMIT, epoch) if kind in (_ABORT, _COMMIT) else None


class Transactions:
    """The ended transactions of one partition that readers of committed records still need to know."""

    __slots__ = ("_unsettled", "aborted")

    def __init__(self) -> None:
        self.aborted: list[Aborted] = []
        """In the order of their markers."""
        self._unsettled: list[tuple[int, int]] = []  # (marker's offset, first offset)

    def end(self, producer_id: int, first_offset: int, marker_offset: int, *, commit: bool) -> None:
        """Take note of a marker that ended a transaction which had records here."""
        self._unsettled.append((marker_offset, first_offset))
        if not commit:
            self.aborted.append(Aborted(producer_id, first_offset, marker_offset))

    def settle(self, high_watermark: int) -> None:
        """Forget, as holding anything back, the transactions whose markers are durable."""
        if self._unsettled and self._unsettled[0][0] < high_watermark:
            self._unsettled = [ended for ended in self._unsettled if ended[0] >= high_watermark]

    def first_unsettled(self) -> int | None:
        """Return the first offset of the transactions whose markers are not durable yet."""
        return min((first for _, first in self._unsettled), default=None)

    def within(self, start: int, stop: int) -> list[Aborted]:
        """Return the aborted transactions that touch offsets from `start` up to, not including, `stop`."""
        i = bisect_left(self.aborted, start, key=lambda ended: ended.last_offset)
        return [ended for ended in self.aborted[i:] if ended.first_offset < stop]

    def forget(self, start_offset: int) -> None:
        """Drop what lies before the start of the log."""
        i = bisect_left(self.aborted, start_offset, key=lambda ended: ended.last_offset)
        del self.aborted[:i]
