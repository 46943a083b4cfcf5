"""The committed records of a topic, all partitions, from offsets on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headwater.client import EARLIEST, LATEST, Cluster
from headwater.client.cluster import check
from headwater.client.fetch import Fetched, begin_fetch, end_fetch
from headwater.core.errors import ErrorCode
from headwater.derived.change import Position
from headwater.derived.errors import DerivedError
from headwater.record.batch import CorruptBatch, batches
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch

__all__ = ["TopicReader", "Unopened"]

_FETCH_BYTES = 2 * 1024 * 1024


class Unopened(NamedTuple):
    """A batch that no reader can open, though it came as it was sent."""

    first_offset: int
    last_offset: int
    reason: str


class TopicReader:
    """Reads a topic on from a position; `offsets` is behind the last record that was given out."""

    def __init__(self, cluster: Cluster, topic: str, position: Position | None, *, store: str) -> None:
        info = cluster.topic(topic, fresh=True)
        self.topic_id = str(info.topic_id or "")
        self._cluster, self._topic, self._store = cluster, topic, store
        if position is not None and position.topic_id != self.topic_id:
            raise self._lost("the topic was deleted and made again")
        self.offsets: dict[int, int] = dict(position.offsets) if position is not None else {}
        self.committed: dict[int, int] = {}
        """By partition, where what is committed ended when it was looked at last."""
        self._begin(info.leaders)

    def ends(self) -> dict[int, int]:
        """Return where what is committed ends by now; partitions that were added are taken in."""
        self._begin(self._cluster.topic(self._topic, fresh=True).leaders)
        self.committed = self._cluster.offsets(self._topic, dict.fromkeys(self.offsets, LATEST))
        return dict(self.committed)

    def fetch(self, wait_ms: int) -> Iterator[tuple[int, Record | Unopened]]:
        """Yield the next records with their partitions.

        Batches are opened one by one: compressed, a fetch may hold many times its size.
        """
        by_node: dict[int, list[int]] = {}
        for partition in self.offsets:
            by_node.setdefault(self._cluster.leader(self._topic, partition), []).append(partition)
        for node, partitions in by_node.items():
            for (_, partition), fetched in self._fetch(node, partitions, wait_ms).items():
                if fetched.error_code == ErrorCode.offset_out_of_range:
                    raise self._lost(
                        f"offset {self.offsets[partition]} of {self._topic}-{partition} is gone from the broker"
                    )
                check(fetched.error_code, f"{self._topic}-{partition}")
                self.committed[partition] = fetched.last_stable_offset
                yield from self._records(partition, fetched)

    def _begin(self, partitions: Mapping[int, int]) -> None:
        new = [partition for partition in partitions if partition not in self.offsets]
        if new:
            self.offsets |= self._cluster.offsets(self._topic, dict.fromkeys(new, EARLIEST))

    def _fetch(self, node: int, partitions: list[int], wait_ms: int) -> dict[tuple[str, int], Fetched]:
        connection = self._cluster.connection(node)
        places = {(self._topic, partition): self.offsets[partition] for partition in partitions}
        try:
            begin_fetch(connection, places, max_bytes=_FETCH_BYTES, max_wait_ms=wait_ms)
            return end_fetch(connection)
        except BaseException:
            self._cluster.drop(node)
            raise

    def _records(self, partition: int, fetched: Fetched) -> Iterator[tuple[int, Record | Unopened]]:
        position = self.offsets[partition]
        for at, header in committed_batches(fetched.records, fetched.aborted):
            try:
                opened = list(decode_batch(fetched.records, at))
            except CorruptBatch as error:
                self.offsets[partition] = header.last_offset + 1
                yield partition, Unopened(header.base_offset, header.last_offset, str(error))
                continue
            for record in opened:
                if record.offset >= position:
                    self.offsets[partition] = record.offset + 1
                    yield partition, record
        ends = [header.last_offset + 1 for _, header in batches(fetched.records)]
        self.offsets[partition] = max(ends, default=position)

    def _lost(self, why: str) -> DerivedError:
        return DerivedError(
            f"{self._store} cannot go on where it was: {why}; build it anew with `headwater derived rebuild APP"
            f" {self._store}`"
        )
