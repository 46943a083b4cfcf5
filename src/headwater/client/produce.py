"""Records sent outside of a transaction: acknowledged by all, sent again when that is not certain.

So a record may arrive twice; those who read what is sent here tell it by its key.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.client.cluster import Cluster, check
from headwater.record.partitioner import partition_of
from headwater.record.records import Record, encode_batch
from headwater.wire.kafka.versions import Api

__all__ = ["produce"]

_VERSION = 8
_TIMEOUT_MS = 30_000
_BATCH_BYTES = 512 * 1024  # with room under the broker's limit of 1 MB


def produce(cluster: Cluster, topic: str, records: Iterable[Record]) -> None:
    """Send records to the partitions of their keys, each in its order, and wait for them to be kept."""
    count = len(cluster.partitions(topic))
    by_partition: dict[int, list[Record]] = {}
    for record in records:
        partition = partition_of(record.key, count) if record.key is not None else 0
        by_partition.setdefault(partition, []).append(record)
    for partition, rows in by_partition.items():
        for batch in _batches(rows):
            _send(cluster, topic, partition, batch)


def _batches(rows: list[Record]) -> Iterable[bytearray]:
    pending: list[Record] = []
    size = 0
    for row in rows:
        own = len(row.key or b"") + len(row.value or b"")
        if pending and size + own > _BATCH_BYTES:
            yield encode_batch(pending)
            pending, size = [], 0
        pending.append(row._replace(offset=len(pending)))
        size += own
    if pending:
        yield encode_batch(pending)


def _send(cluster: Cluster, topic: str, partition: int, batch: bytearray) -> None:
    data = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
    body = {"transactional_id": None, "acks": -1, "timeout": _TIMEOUT_MS, "topic_data": [data]}

    def attempt() -> None:
        answer = cluster.request(
            Api.PRODUCE, _VERSION, body, node=cluster.leader(topic, partition), resend=False
        )
        for named in answer.responses:
            for result in named.partition_responses:
                check(result.error_code, f"{topic}-{partition}", result.error_message)

    cluster.retrying(attempt)
