"""Records set aside: malformed ones as dead letters, late ones as they came with their origin in headers."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.client import Cluster
from headwater.client.dead_letters import letter, send_letters
from headwater.client.produce import produce
from headwater.pipeline.source import kernel
from headwater.pipeline.source.opened import Records, headers_of
from headwater.record.records import Record

__all__ = ["send_dead_letters", "send_late"]


def send_dead_letters(
    cluster: Cluster, to: str, records: Records, dead: Iterable[tuple[int, str]], topic: str, partition: int
) -> None:
    """Write a letter for each malformed record, given its row and the reason."""
    send_letters(cluster, to, [_letter(records, row, reason, topic, partition) for row, reason in dead])


def _letter(records: Records, row: int, reason: str, topic: str, partition: int) -> Record:
    return letter(
        reason,
        topic,
        partition,
        int(records.table[row, kernel.OFFSET]),
        int(records.table[row, kernel.TIME]),
        records.key(row),
        records.value(row),
        headers_of(records, row),
    )


def send_late(
    cluster: Cluster, to: str, records: Records, rows: Iterable[int], topic: str, partition: int
) -> None:
    """Write late records, with key, value and headers, to a topic of their own."""
    late = []
    for row in rows:
        origin = {"topic": topic, "partition": partition, "offset": int(records.table[row, kernel.OFFSET])}
        headers = [*headers_of(records, row)]
        headers += [(f"headwater.{name}", str(value).encode()) for name, value in origin.items()]
        timestamp = max(int(records.table[row, kernel.TIME]), 0)
        late.append(Record(0, timestamp, records.key(row), records.value(row), tuple(headers)))
    if late:
        cluster.ensure_topic(to, len(cluster.partitions(topic)))
        produce(cluster, to, late)
