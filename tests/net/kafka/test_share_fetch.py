"""Which batches a ShareFetch sends, and what it holds back of aborted transactions."""

from __future__ import annotations

from headwater.broker.share.partition import SharePartition
from headwater.broker.share.records import Snapshot
from headwater.broker.share.settings import ShareConfig
from headwater.broker.share.taker import Acquired, Wish
from headwater.net.kafka.share_fetch import between, without_aborted
from headwater.record.batch import CONTROL, TRANSACTIONAL, batches, place
from headwater.record.records import Record, encode_batch

CONFIG = ShareConfig(lock_ms=1000, delivery_limit=5, max_locks=100)
ABORT_MARKER = b"\0\0\0\0"


def batch(base: int, count: int, attributes: int = 0, producer: int = -1, key: bytes = b"k") -> bytes:
    rows = [Record(i, 0, key, b"v") for i in range(count)]
    made = bytearray(
        encode_batch(rows, attributes=attributes, producer_id=producer, producer_epoch=0, base_sequence=0)
    )
    place(made, 0, base, 0)
    return bytes(made)


def bases(data: bytes | memoryview) -> list[int]:
    return [header.base_offset for _, header in batches(data)]


def test_batches_before_and_after_what_was_acquired_are_not_sent() -> None:
    data = b"".join(batch(base, 5) for base in (0, 5, 10, 15))
    assert bases(between(data, [Acquired(7, 8, 1), Acquired(12, 12, 2)])) == [5, 10]
    assert bases(between(data, [Acquired(0, 19, 1)])) == [0, 5, 10, 15]
    assert between(data, []) == b""


def test_what_an_aborted_transaction_wrote_is_archived_and_not_told() -> None:
    data = b"".join(
        (
            batch(0, 5),
            batch(5, 5, TRANSACTIONAL, producer=7),
            batch(10, 5, TRANSACTIONAL, producer=8),
            batch(15, 1, TRANSACTIONAL | CONTROL, producer=7, key=ABORT_MARKER),
            batch(16, 4, TRANSACTIONAL, producer=7),
        )
    )
    partition = SharePartition(Snapshot(0, 0, 0, 0, 0))
    found = [(header.base_offset, header.last_offset) for _, header in batches(data)]
    acquired = partition.acquire(Wish("a", 100, 100), CONFIG, 0, 0, found)
    assert acquired == [Acquired(0, 19, 1)]
    # A marker is the member's to pass over: it acknowledges it as a gap.
    kept = without_aborted(partition, data, [(7, 5)], acquired)
    assert kept == [Acquired(0, 4, 1), Acquired(10, 19, 1)]
    assert partition.complete == 5
