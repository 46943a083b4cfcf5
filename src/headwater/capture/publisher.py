"""Changes into topics, exactly once: the records and the position behind them in one Kafka transaction.

A capture has a transactional id. Whoever opens it shuts out a process that had it before, and ends what that left
open; only then is the position read. So the position that is found is behind every record that can be seen, whatever
was killed when, and following from it repeats nothing and leaves nothing out.

    transaction = records of tables, versions of their schemas, the position behind them

After an error that is the broker's, nobody knows what became of a transaction. A new publisher finds out by opening.

A truncated table has to become empty for those who read its topic by key. The keys of its rows are in the topic, so the
topic is read back, and each row that is left in it deleted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException

from headwater.capture.change import Batch, Change, Position, TableSchema
from headwater.capture.envelope import Encoder, json_bytes
from headwater.capture.reading import await_decided, last_by_key, records_of
from headwater.capture.schemas import SCHEMAS_TOPIC, History, Version
from headwater.capture.topics import POSITIONS_TOPIC, Naming, make_own_topics, make_table_topics
from headwater.capture.transactions import OPEN_SECONDS, Transactions
from headwater.client import Cluster
from headwater.core.boundaries import boundary
from headwater.core.urls import KafkaUrl

__all__ = ["Published", "Publisher"]


@dataclass
class Published:
    """What has been published, for progress and metrics."""

    rows: int = 0
    records: int = 0
    transactions: int = 0
    last_change_us: int = 0
    """When the database committed the last change that was published."""
    warnings: list[str] = field(default_factory=list)
    """Sentences about changed tables that nobody has seen yet."""


class Publisher:
    """The broker's side of one capture; one thread uses it, within `with`."""

    def __init__(
        self,
        url: KafkaUrl,
        capture: str,
        encoder: Encoder,
        naming: Naming,
        *,
        about: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self.capture = capture
        self.published = Published()
        self.pending_bytes = 0
        """What has been added since the last commit, at least: zero where there is nothing to commit."""
        self._url = url
        self._encoder = encoder
        self._naming = naming
        self._said = dict(about or {})
        self._about = b""
        self._properties = dict(properties or {})
        self._topics: dict[str, str] = {}
        self._known: dict[int, tuple[TableSchema, str]] = {}
        self._cluster: Cluster | None = None
        self._transactions: Transactions | None = None
        self._history = History(capture)
        self._position: Position | None = None
        self._committed: Position | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, tables: Iterable[TableSchema] = ()) -> Position | None:
        """Take over the capture, make the topics, and return where to follow its database from."""
        self._cluster = cluster = Cluster(self._url, "headwater-capture", deadline_seconds=OPEN_SECONDS)
        make_own_topics(cluster)
        self._topics = self._naming.topics_of(tables)
        make_table_topics(cluster, self._topics.values(), self._naming)
        self._about = json_bytes({**self._said, "prefix": self._naming.prefix, "topics": self._topics})[:-1]
        self._transactions = Transactions(self._url, self.capture, self._properties)
        self._history = History.read(cluster, self.capture)
        record = last_by_key(cluster, POSITIONS_TOPIC, self.capture.encode())
        self._committed = (
            None if record is None or record.value is None else json.loads(record.value)["position"]
        )
        return self._committed

    def add(self, batch: Batch) -> None:
        """Publish a batch with the open transaction, or with a new one."""
        if batch.changes:
            if any(change.op == "t" for change in batch.changes):
                self._add_truncating(batch.changes)
            else:
                self._opened.begin()
                self._produce(batch.changes)
            boundary("capture.after_produce")
        self._position = batch.position

    @property
    def _opened(self) -> Transactions:
        assert self._transactions is not None, "it is open before it is used"
        return self._transactions

    @property
    def moved(self) -> bool:
        """Whether there is a position that is not written down yet."""
        return self._position is not None and self._position != self._committed

    def commit(self) -> Position | None:
        """Write the position down and end the transaction; return the position, which may be acknowledged."""
        if self._position is None:
            return None
        self._opened.begin()
        value = self._about + b',"at_ms":%d,"rows":%d,"position":%b}' % (
            time.time_ns() // 1_000_000,
            self.published.rows,
            json_bytes(self._position),
        )
        self._opened.send(POSITIONS_TOPIC, self.capture.encode(), value)
        boundary("capture.before_commit")
        self._opened.commit()
        boundary("capture.after_commit")
        self.pending_bytes = 0
        self.published.transactions += 1
        self._committed = self._position
        return self._committed

    def start_over(self, tables: Iterable[TableSchema]) -> None:
        """Delete all rows from the tables' topics and forget the position: what follows is a new snapshot."""
        now_ms = time.time_ns() // 1_000_000
        live = [(table, self._live(self._naming.topic_of(table))) for table in tables]
        self._opened.begin()
        for table, keys in live:
            change = Change("t", table, None, None, now_ms * 1000, None, {})
            for key in keys:
                self._send_all(table, self._encoder.deleted(change, key, now_ms), now_ms)
        for key in self._history.keys:
            self._opened.send(SCHEMAS_TOPIC, key, None)
        self._opened.send(POSITIONS_TOPIC, self.capture.encode(), None)
        self._opened.commit()
        self._position = self._committed = None

    def close(self) -> None:
        """Let go of the broker; a transaction that is open is aborted."""
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _produce(self, changes: list[Change]) -> None:
        """Hand changes of rows to the producer, which sends them while we go on."""
        now_ms = time.time_ns() // 1_000_000
        records_of_change, produce, known = self._encoder.records, self._opened.produce, self._known
        size = records = 0
        table: TableSchema | None = None
        topic = ""
        for change in changes:
            if change.table is not table:
                table = change.table
                found = known.get(id(table))
                topic = found[1] if found is not None else self._meet(table, change.time_us)
            stamp = change.time_us // 1000
            if stamp > now_ms:  # a database whose clock is ahead: brokers refuse times that are far from now
                stamp = now_ms
            for key, value in records_of_change(change, now_ms):
                try:
                    produce(topic, value, key, timestamp=stamp)
                except (BufferError, KafkaException):
                    self._opened.send(topic, key, value, stamp)
                records += 1
                size += len(key) + (len(value) if value is not None else 0)
        self._count(changes, records, size)

    def _add_truncating(self, changes: list[Change]) -> None:
        """Publish changes that empty tables: rows that are left in their topics are deleted one by one."""
        if self._opened.is_open:
            self.commit()
        now_ms = time.time_ns() // 1_000_000
        truncated = {str(change.table) for change in changes if change.op == "t"}
        live = {name: self._live(self._topic_named(name, changes)) for name in truncated}
        self._opened.begin()
        records = size = 0
        for change in changes:
            keys = live.get(str(change.table))
            if change.op == "t":
                assert keys is not None
                pairs = [pair for key in keys for pair in self._encoder.deleted(change, key, now_ms)]
                keys.clear()
            else:
                pairs = self._encoder.records(change, now_ms)
                for key, value in pairs if keys is not None else ():
                    _keep(keys, key, value)  # type: ignore[arg-type]
            self._send_all(change.table, pairs, min(change.time_us // 1000, now_ms))
            records += len(pairs)
            size += sum(len(key) + len(value or b"") for key, value in pairs)
        self._count(changes, records, size)

    def _topic_named(self, name: str, changes: list[Change]) -> str:
        [table, *_] = [change.table for change in changes if str(change.table) == name]
        return self._topic_of(table)

    def _live(self, topic: str) -> dict[bytes, None]:
        """Return the keys of the rows that a topic holds, in their order."""
        assert self._cluster is not None
        await_decided(self._cluster, topic)
        keys: dict[bytes, None] = {}
        for partition in self._cluster.partitions(topic):
            for record in records_of(self._cluster, topic, partition):
                if record.key is not None:
                    _keep(keys, record.key, record.value)
        return keys

    def _send_all(self, table: TableSchema, pairs: Iterable[tuple[bytes, bytes | None]], stamp: int) -> None:
        topic = self._topic_of(table)
        for key, value in pairs:
            self._opened.send(topic, key, value, stamp)

    def _count(self, changes: list[Change], records: int, size: int) -> None:
        self.pending_bytes += max(size, 1)
        self.published.rows += len(changes)
        self.published.records += records
        self.published.last_change_us = changes[-1].time_us

    def _topic_of(self, table: TableSchema) -> str:
        found = self._known.get(id(table))
        return found[1] if found is not None else self._meet(table, time.time_ns() // 1000)

    def _meet(self, table: TableSchema, at_us: int) -> str:
        """Return the topic of a table that is seen for the first time, or not as it was; note how it looks."""
        assert self._cluster is not None
        if str(table) not in self._topics:
            topic = self._naming.topic_of(table)
            make_table_topics(self._cluster, [topic], self._naming)
            self._topics[str(table)] = topic
        version = self._history.see(table, at_us)
        if version is not None:
            self._note(version)
        if len(self._known) > 1000:  # tables as they were long ago
            self._known.clear()
        self._known[id(table)] = (table, self._topics[str(table)])
        return self._topics[str(table)]

    def _note(self, version: Version) -> None:
        self._opened.begin()
        self._opened.send(SCHEMAS_TOPIC, version.key, version.encode())
        self.published.warnings += [*version.changes, *version.unmapped]


def _keep(keys: dict[bytes, None], key: bytes, value: bytes | None) -> None:
    """Note what a record did to the rows that there are; a delete's envelope is followed by its tombstone."""
    if value is None:
        keys.pop(key, None)
    else:
        keys[key] = None
