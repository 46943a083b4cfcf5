"""What was written to a topic, read back: positions, schemas, and the keys of a table's rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from headwater.client import EARLIEST, LATEST, Cluster, Unreachable
from headwater.client.cluster import check
from headwater.client.fetch import begin_fetch, end_fetch
from headwater.record.batch import batches
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch

__all__ = ["await_decided", "last_by_key", "records_of"]

_FETCH_BYTES = 4 * 1024 * 1024
_FIRST_WINDOW = 256


def records_of(
    cluster: Cluster, topic: str, partition: int, *, start: int | None = None, end: int | None = None
) -> Iterator[Record]:
    """Yield the committed records of a partition, up to what is committed by now."""
    position = cluster.offsets(topic, {partition: EARLIEST})[partition] if start is None else start
    last = cluster.offsets(topic, {partition: LATEST})[partition] if end is None else end
    given_up = time.monotonic() + cluster.deadline_seconds
    while position < last:
        found, after = _fetch(cluster, topic, partition, position)
        if after > position:
            given_up = time.monotonic() + cluster.deadline_seconds
        elif time.monotonic() > given_up:
            raise Unreachable(
                f"{topic}-{partition} gives nothing from offset {position} on, and its end is {last}"
            )
        position = after
        yield from (record for record in found if record.offset < last)


def await_decided(cluster: Cluster, topic: str) -> None:
    """Return once no transaction is open in a topic: Kafka shows a committed one a moment later."""
    partitions = cluster.partitions(topic)
    given_up = time.monotonic() + cluster.deadline_seconds
    while True:
        ends = dict.fromkeys(partitions, LATEST)
        decided = cluster.offsets(topic, ends)
        if decided == cluster.offsets(topic, ends, read_committed=False):
            return
        if time.monotonic() > given_up:
            raise Unreachable(f"{topic} has transactions that do not end: {decided} is decided")
        time.sleep(0.01)


def last_by_key(cluster: Cluster, topic: str, key: bytes) -> Record | None:
    """Return the last committed record of a key in a topic's first partition.

    It is looked for from the end on, in steps that grow: the topic may hold many that compaction has not seen.
    """
    start = cluster.offsets(topic, {0: EARLIEST})[0]
    upper = cluster.offsets(topic, {0: LATEST})[0]
    window = _FIRST_WINDOW
    while upper > start:
        lower = max(start, upper - window)
        found: Record | None = None
        for record in records_of(cluster, topic, 0, start=lower, end=upper):
            if record.key == key:
                found = record
        if found is not None:
            return found
        upper, window = lower, window * 4
    return None


def _fetch(cluster: Cluster, topic: str, partition: int, position: int) -> tuple[list[Record], int]:
    """Return the records of one fetch, and where to go on."""

    def attempt() -> tuple[list[Record], int]:
        node = cluster.leader(topic, partition)
        connection = cluster.connection(node)
        try:
            begin_fetch(connection, {(topic, partition): position}, max_bytes=_FETCH_BYTES)
            fetched = end_fetch(connection)[topic, partition]
        except Exception:
            cluster.drop(node)
            raise
        check(fetched.error_code, f"{topic}-{partition}")
        found: list[Record] = []
        for at, _ in committed_batches(fetched.records, fetched.aborted):
            found += [record for record in decode_batch(fetched.records, at) if record.offset >= position]
        ends = [header.last_offset + 1 for _, header in batches(fetched.records)]
        return found, max(ends, default=position)

    return cluster.retrying(attempt)
