"""Reading a partition by hand: as much as one request brings, and the committed records in it."""

from __future__ import annotations

from headwater.client.cluster import Cluster, check
from headwater.client.fetch import Fetched, begin_fetch, end_fetch
from headwater.record.batch import CorruptBatch, batches
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch

__all__ = ["committed_records", "following", "read_from"]


def read_from(
    cluster: Cluster, topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int
) -> Fetched:
    """Return what a partition holds from an offset on; a `BrokerError` where it does not hold that."""
    node = cluster.leader(topic, partition)
    connection = cluster.connection(node)
    try:
        begin_fetch(connection, {(topic, partition): offset}, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        fetched = end_fetch(connection)[topic, partition]
    except BaseException:
        cluster.drop(node)
        raise
    check(fetched.error_code, f"{topic}-{partition}")
    return fetched


def following(fetched: Fetched, position: int) -> int:
    """Return the offset behind all that was read, or `position` where that is nothing."""
    return max((header.last_offset + 1 for _, header in batches(fetched.records)), default=position)


def committed_records(fetched: Fetched, position: int) -> list[tuple[Record, bool]]:
    """Return the committed records from an offset on, each with whether it belongs to a transaction."""
    found: list[tuple[Record, bool]] = []
    for at, header in committed_batches(fetched.records, fetched.aborted):
        try:
            opened = list(decode_batch(fetched.records, at))
        except CorruptBatch:
            # A producer can send what no reader can open. It counts as one record without anything in it.
            opened = [Record(header.last_offset, header.max_timestamp, None, None)]
        found += [(record, header.is_transactional) for record in opened if record.offset >= position]
    return found
