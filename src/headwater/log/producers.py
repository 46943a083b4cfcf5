"""What a partition remembers of idempotent producers, so that a retried batch is stored once.

For each producer id: its epoch and its last five batches, as Kafka keeps, because a client may have five
requests under way. A batch seen before is answered with the offset it already has; a gap in the sequence
is refused; an older epoch is fenced. The memory is rebuilt from batch headers after a crash and saved
with the partition's checkpoint, so it outlives restarts.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from headwater.core.errors import ApiError, ErrorCode
from headwater.record.batch import NO_PRODUCER, Header

_KEPT_BATCHES = 5
_SEQUENCES = 2**31


class Appended(NamedTuple):
    """A batch that a producer has appended."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class Producer:
    """One producer's recent past in one partition."""

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Appended] = deque(maxlen=_KEPT_BATCHES)
        self.seen_ms = 0


class Producers:
    """The producers of one partition, by id."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def check(self, header: Header) -> Appended | None:
        """Return the earlier append that `header` repeats, or None when it is new and in sequence."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            # Nothing is known of it, perhaps because retention took its batches: any sequence may begin.
            return None
        if header.producer_epoch < producer.epoch:
            raise ApiError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} has epoch {producer.epoch} by now, not {header.producer_epoch}",
            )
        first = header.base_sequence
        if header.producer_epoch > producer.epoch:
            if first != 0:
                raise _out_of_order(header, 0)
            return None
        last = (first + header.last_offset_delta) % _SEQUENCES
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        if producer.batches:
            expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES
            if first != expected:
                raise _out_of_order(header, expected)
        return None

    def update(self, header: Header, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Remember a batch that was appended at `base_offset`."""
        producer = self._by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._by_id[header.producer_id] = Producer(header.producer_epoch)
        if not header.is_control:
            last = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
            producer.batches.append(Appended(header.base_sequence, last, base_offset, timestamp))
        producer.seen_ms = now_ms

    def replay(self, header: Header, now_ms: int) -> None:
        """Learn from a batch found on disk."""
        if header.producer_id != NO_PRODUCER:
            self.update(header, header.base_offset, header.max_timestamp, now_ms)

    def expire(self, before_ms: int) -> None:
        """Forget the producers that were last seen before a time."""
        for producer_id in [i for i, p in self._by_id.items() if p.seen_ms < before_ms]:
            del self._by_id[producer_id]

    def to_json(self) -> list[Any]:
        """Return the state as plain values."""
        return [[i, p.epoch, p.seen_ms, [list(b) for b in p.batches]] for i, p in self._by_id.items()]

    @classmethod
    def from_json(cls, rows: list[Any]) -> Producers:
        """Return the state that `to_json` gave."""
        producers = cls()
        for producer_id, epoch, seen_ms, batches in rows:
            producer = producers._by_id[producer_id] = Producer(epoch)
            producer.seen_ms = seen_ms
            producer.batches.extend(Appended(*batch) for batch in batches)
        return producers


def _out_of_order(header: Header, expected: int) -> ApiError:
    return ApiError(
        ErrorCode.out_of_order_sequence_number,
        f"producer {header.producer_id} sent sequence {header.base_sequence} where {expected} was next",
    )
