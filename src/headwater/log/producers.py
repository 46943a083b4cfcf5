"""What a partition remembers of idempotent producers, so that a retried batch is stored once.

For each producer id: its epoch and its last five batches, as Kafka keeps, because a client may have five
requests under way. A batch seen before is answered with the offset it already has; a gap in the sequence
is refused; an older epoch is fenced. The memory is rebuilt from batch headers after a crash and saved
with the partition's checkpoint, so it outlives restarts.

Of a transactional producer it also knows where its open transaction began in this partition: the first of
those offsets bounds what readers of committed records may see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from headwater.core.errors import ApiError, ErrorCode
from headwater.record.batch import NO_PRODUCER, TRANSACTIONAL, Header

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

    __slots__ = ("batches", "coordinator_epoch", "epoch", "seen_ms", "transaction_start")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Appended] = deque(maxlen=_KEPT_BATCHES)
        self.seen_ms = 0
        self.transaction_start: int | None = None
        self.coordinator_epoch = -1


class Producers:
    """The producers of one partition, by id."""

    __slots__ = ("_by_id", "open_transactions")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self.open_transactions: dict[int, int] = {}
        """The first offset of each open transaction, by producer id."""

    def __len__(self) -> int:
        return len(self._by_id)

    def items(self) -> Iterable[tuple[int, Producer]]:
        """Return every producer with its id."""
        return self._by_id.items()

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
        # Without batches a marker has begun this epoch, and sequences begin with it.
        expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES if producer.batches else 0
        if first != expected:
            raise _out_of_order(header, expected)
        return None

    def check_first(self, header: Header) -> None:
        """Refuse a producer of which nothing is known, unless its sequence begins with this batch.

        Transactions of protocol v2 each begin with 0 (KIP-890): another number is of a batch that came before its
        first one, which was refused, and will be sent again.
        """
        if header.base_sequence != 0 and header.producer_id not in self._by_id:
            raise _out_of_order(header, 0)

    def update(self, header: Header, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Remember a batch that was appended at `base_offset`."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        last = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
        producer.batches.append(Appended(header.base_sequence, last, base_offset, timestamp))
        producer.seen_ms = now_ms
        if header.attributes & TRANSACTIONAL and producer.transaction_start is None:
            producer.transaction_start = self.open_transactions[header.producer_id] = base_offset

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """Refuse the marker of an epoch that has been fenced."""
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise ApiError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} has epoch {producer.epoch} by now, not {epoch}",
            )

    def end(self, producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int) -> int | None:
        """Take note of a marker: return where the transaction that it ends began, if one was open here."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._by_id[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.seen_ms = now_ms
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = None
        return self.open_transactions.pop(producer_id, None)

    def replay(self, header: Header, now_ms: int) -> None:
        """Learn from a batch of records found on disk."""
        if header.producer_id != NO_PRODUCER:
            self.update(header, header.base_offset, header.max_timestamp, now_ms)

    def expire(self, before_ms: int) -> None:
        """Forget the producers that were last seen before a time."""
        for producer_id in [
            i for i, p in self._by_id.items() if p.seen_ms < before_ms and p.transaction_start is None
        ]:
            del self._by_id[producer_id]

    def to_json(self, before: int | None = None) -> list[Any]:
        """Return the state as plain values; all of it, or what batches before an offset have told."""
        rows = []
        for producer_id, producer in self._by_id.items():
            batches = [list(b) for b in producer.batches if before is None or b.base_offset < before]
            if batches or before is None:
                begun = producer.transaction_start
                if begun is not None and before is not None and begun >= before:
                    begun = None
                rows.append(
                    [
                        producer_id,
                        producer.epoch,
                        producer.seen_ms,
                        batches,
                        begun,
                        producer.coordinator_epoch,
                    ]
                )
        return rows

    @classmethod
    def from_json(cls, rows: list[Any]) -> Producers:
        """Return the state that `to_json` gave; the first version knew of no transactions."""
        producers = cls()
        for producer_id, epoch, seen_ms, batches, *transaction in rows:
            producer = producers._by_id[producer_id] = Producer(epoch)
            producer.seen_ms = seen_ms
            producer.batches.extend(Appended(*batch) for batch in batches)
            if transaction:
                producer.transaction_start, producer.coordinator_epoch = transaction
                if producer.transaction_start is not None:
                    producers.open_transactions[producer_id] = producer.transaction_start
        return producers


def _out_of_order(header: Header, expected: int) -> ApiError:
    return ApiError(
        ErrorCode.out_of_order_sequence_number,
        f"producer {header.producer_id} sent sequence {header.base_sequence} where {expected} was next",
    )
