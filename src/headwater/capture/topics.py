"""Which topic a table goes to, and how the topics of a capture are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headwater.capture.change import TableSchema
from headwater.capture.schemas import SCHEMAS_TOPIC
from headwater.capture.source import CaptureError
from headwater.client import Cluster
from headwater.client.topic_settings import TABLE

__all__ = ["POSITIONS_TOPIC", "Naming", "make_own_topics", "make_table_topics"]

POSITIONS_TOPIC = "headwater.capture"
"""Holds, by the name of a capture, where its database is to be followed from."""

_SMALL = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 249


class Naming:
    """Names topics: as somebody said for a table, or PREFIX.SCHEMA.TABLE."""

    def __init__(
        self,
        prefix: str,
        given: Mapping[str, str] | None = None,
        *,
        partitions: int | None = None,
        partitions_of: Mapping[str, int | None] | None = None,
    ) -> None:
        self.prefix = prefix
        self._given = dict(given or {})
        self._partitions = partitions
        self._partitions_of = dict(partitions_of or {})

    def partitions_of(self, topic: str) -> int | None:
        """Return how many partitions a topic is to have; None where the broker decides."""
        return self._partitions_of.get(topic) or self._partitions

    def topic_of(self, table: TableSchema) -> str:
        """Return the topic of a table; letters that no topic's name has become underscores."""
        given = self._given.get(str(table)) or self._given.get(table.name)
        return given or _FORBIDDEN.sub("_", f"{self.prefix}.{table}")[:_LONGEST]

    def topics_of(self, tables: Iterable[TableSchema]) -> dict[str, str]:
        """Return the topic of each of some tables, and refuse that two share one."""
        found: dict[str, str] = {}
        for table in tables:
            topic = self.topic_of(table)
            if topic in found.values():
                raise CaptureError(
                    f"{table} and another table would share the topic {topic}: rename one of them"
                )
            found[str(table)] = topic
        return found


def make_own_topics(cluster: Cluster) -> None:
    """Make the topics of positions and schemas where they are missing."""
    cluster.ensure_topic(POSITIONS_TOPIC, 1, _SMALL)
    cluster.ensure_topic(SCHEMAS_TOPIC, 1, _SMALL)


def make_table_topics(cluster: Cluster, topics: Iterable[str], naming: Naming) -> None:
    """Make the compacted topics of tables where they are missing."""
    for topic in topics:
        cluster.ensure_topic(topic, naming.partitions_of(topic), TABLE)
