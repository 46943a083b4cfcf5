"""What a reader of committed records sees of a topic."""

from __future__ import annotations

from headwater.client.cluster import EARLIEST, LATEST, Cluster
from headwater.client.fetch import begin_fetch, end_fetch
from headwater.core.urls import KafkaUrl
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch


def cluster_at(bootstrap: str) -> Cluster:
    return Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"), "test")


def committed(cluster: Cluster, topic: str) -> dict[int, list[Record]]:
    """Return every committed record, by partition."""
    partitions = cluster.partitions(topic)
    ends = cluster.offsets(topic, dict.fromkeys(partitions, LATEST))
    at = cluster.offsets(topic, dict.fromkeys(partitions, EARLIEST))
    found: dict[int, list[Record]] = {partition: [] for partition in partitions}
    for partition in partitions:
        while at[partition] < ends[partition]:
            connection = cluster.connection(cluster.leader(topic, partition))
            begin_fetch(connection, {(topic, partition): at[partition]}, max_bytes=8 * 1024 * 1024)
            [fetched] = end_fetch(connection).values()
            assert fetched.error_code == 0
            for position, _ in committed_batches(fetched.records, fetched.aborted):
                found[partition] += decode_batch(fetched.records, position)
            at[partition] = _end(fetched.records)
    return found


def _end(records: memoryview) -> int:
    from headwater.record.batch import batches

    return max(header.last_offset for _, header in batches(records)) + 1
