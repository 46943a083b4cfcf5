"""Where topics end, for the lag of the queries that read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from headwater.client import LATEST, ClientError, Cluster
from headwater.core.urls import KafkaUrl

__all__ = ["TopicEnds"]

REFRESH_SECONDS = 2.0


class TopicEnds:
    """The ends of topics, asked for now and then; those last known while the broker does not answer."""

    def __init__(self, broker: str, topics: Iterable[str]) -> None:
        # A broker that is away is told of by the queries; this only must not hold up whoever asks.
        self._cluster = Cluster(KafkaUrl.parse(broker), "headwater-lag", deadline_seconds=1.0)
        self._topics = tuple(dict.fromkeys(topics))
        self._ends: dict[str, dict[int, int]] = {}
        self._due = 0.0

    def read(self) -> Mapping[str, Mapping[int, int]]:
        """Return the end of each partition of each topic, a few seconds old at most."""
        if time.monotonic() < self._due:
            return self._ends
        for topic in self._topics:
            try:
                partitions = self._cluster.partitions(topic)
                self._ends[topic] = self._cluster.offsets(topic, dict.fromkeys(partitions, LATEST))
            except ClientError:
                break
        self._due = time.monotonic() + REFRESH_SECONDS
        return self._ends

    def close(self) -> None:
        """Hang up."""
        self._cluster.close()
