"""The bridge between queues and topics: exchanges that append to a topic, queues that are fed from one.

An exchange of type `x-headwater-topic` appends what it gets to the topic in its argument `topic`, in one batch a
turn and partition, by the partitioner of Kafka's clients; a confirm waits for the topic's log. A queue with the
argument `x-headwater-topic` holds what is in that topic, from a place on that `x-headwater-offset` says.
`record/amqp/conversion.py` says what becomes of keys, headers and properties.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headwater.broker.queues.arguments import OFFSET, TOPIC
from headwater.broker.queues.definitions import QueueDefinition
from headwater.broker.queues.queue import Queue
from headwater.broker.topics import NewTopic, Topic
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.core.errors import ApiError
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.net.amqp.positions import Place
from headwater.net.amqp.topic_lane import Expiry, TopicFeed, TopicLane
from headwater.record.amqp.conversion import record_of
from headwater.record.amqp.message import Message
from headwater.record.amqp.tables import Table
from headwater.record.batch import HEADER_SIZE, read_header
from headwater.record.partitioner import murmur2
from headwater.record.records import Record, encode_batch

if TYPE_CHECKING:
    from headwater.net.amqp.service import QueueService
    from headwater.net.node import Node

__all__ = ["Bridge"]

logger = logging.getLogger(__name__)

_BATCH = 1024 * 1024
_KEY_SIZE = 36
"""A queue's id, its topic's id, and a partition."""
_RECORD_OVERHEAD = 40
_HEADER_OVERHEAD = 10
_hash = lru_cache(maxsize=4096)(murmur2)


class Bridge:
    """What a node's queues and topics have to do with each other."""

    def __init__(self, service: QueueService) -> None:
        self._service = service
        self._node = service.node
        self._writers: dict[str, _TopicWriter] = {}
        self._lanes: dict[TopicLane, QueueDefinition] = {}

    # -- topics ----------------------------------------------------------------------------------

    def check(self, arguments: Table | None) -> None:
        """Make the topic that a queue's arguments name, or refuse one that is not there."""
        if arguments and isinstance(topic := arguments.get(TOPIC), str):
            self._topic(topic)

    def _topic(self, name: str) -> Topic:
        node = self._node
        if name in node.internal:
            raise AmqpError(ReplyCode.ACCESS_REFUSED, f"topic '{name}' is the broker's own")
        found = node.topics.by_name.get(name)
        if found is not None:
            return found
        if not node.settings["auto.create.topics.enable"]:
            raise AmqpError(ReplyCode.NOT_FOUND, f"no topic '{name}'")
        try:
            topic, records = node.topics.create(NewTopic(name))
            node.append_topics(records)
        except ApiError as error:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"topic '{name}': {error}") from error
        return topic

    def topics_changed(self, name: str) -> None:
        """Know that a topic came, went, or has more partitions."""
        self._writers.pop(name, None)
        for lane, definition in self._lanes.items():
            if definition.settings.topic == name:
                self._follow(lane, definition, fresh=False)

    # -- from exchanges to topics ----------------------------------------------------------------

    def append(self, topic: str, message: Message) -> bool:
        """Append a message to a topic with the turn's end; false while the disk is too full for that.

        Raises `AmqpError` where it cannot be.
        """
        writer = self._writers.get(topic)
        if writer is None:
            found = self._topic(topic)
            logs = self._node.logs.of_topic(topic, found.partitions)
            writer = self._writers[topic] = _TopicWriter(self._service, logs)
        if self._node.disk.refusal is not None:
            return False
        writer.append(record_of(message, self._service.now_ms()))
        return True

    # -- from topics to queues -------------------------------------------------------------------

    def new_lane(
        self, definition: QueueDefinition, queue: Callable[[], Queue], expiry: Expiry, *, fresh: bool
    ) -> TopicLane:
        """Return the lane of a queue that is fed from a topic; `fresh` for one that was declared just now."""
        lane = TopicLane(self._service.budget, queue, self._service.touch, expiry)
        self._lanes[lane] = definition
        self._follow(lane, definition, fresh=fresh)
        return lane

    def _follow(self, lane: TopicLane, definition: QueueDefinition, *, fresh: bool) -> None:
        """Follow all partitions that there are, and no other."""
        topic = self._node.topics.by_name.get(definition.settings.topic or "")
        wanted: dict[bytes, PartitionLog] = {}
        if topic is not None:
            for log in self._node.logs.of_topic(topic.name, topic.partitions):
                key = definition.id + topic.id.bytes + log.partition.to_bytes(4, "big")
                wanted[key] = log
        for feed in list(lane.feeds):
            if wanted.pop(feed.key, None) is None:
                lane.remove(feed)
                self._forget([feed.key])
        for key, log in wanted.items():
            lane.add(self._new_feed(lane, definition, key, log, fresh=fresh))

    def _new_feed(
        self, lane: TopicLane, definition: QueueDefinition, key: bytes, log: PartitionLog, *, fresh: bool
    ) -> TopicFeed:
        # All of a partition that is younger than the queue is for the queue, wherever it was to begin.
        start = _start(log, definition.arguments.get(OFFSET, "next")) if fresh else 0
        if not definition.durable:
            place = Place()
            place.settled.add_range(0, start)
            return TopicFeed(lane, log, key, place, None)
        positions = self._service.storage.positions
        known = key in positions.places
        place = positions.place(key)
        if known:
            self._service.storage.clip(key, place, log.end_offset)
        else:
            self._begin_at(start, key, place)
        return TopicFeed(lane, log, key, place, positions)

    def _begin_at(self, start: int, key: bytes, place: Place) -> None:
        positions = self._service.storage.positions
        positions.settle_range(key, place, 0, start)
        try:
            positions.delivered(key, place, start)
        except PartitionError as error:
            logger.error("where a queue begins in its topic may not be known after a restart: %s", error)
        self._node.commit.add(positions.log)

    def drop(self, lane: TopicLane) -> None:
        """Forget the lane of a queue that is gone; where it was in the topic, once its deletion is on disk."""
        if self._lanes.pop(lane, None) is not None:
            keys = [feed.key for feed in lane.feeds]
            self._node.commit.wait(lambda: self._forget(keys))

    def _forget(self, keys: list[bytes]) -> None:
        try:
            self._service.storage.positions.forget(keys)
        except PartitionError as error:
            logger.error("a place in a topic that nobody needs is not forgotten yet: %s", error)

    def settle(self) -> None:
        """After opening: forget places in topics that no queue has, or that are gone."""
        positions = self._service.storage.positions
        used = {feed.key for lane in self._lanes for feed in lane.feeds}
        self._forget([key for key in positions.places if len(key) == _KEY_SIZE and key not in used])

    def close(self) -> None:
        """Remember exactly how far queues were delivered."""
        for lane in self._lanes:
            for feed in lane.feeds:
                feed.place.delivered = feed.sent


def _start(log: PartitionLog, wanted: Any) -> int:
    """Return where a new queue begins in a partition."""
    first, end = log.start_offset, log.end_offset
    if isinstance(wanted, datetime):
        found = log.offset_for_time(int(wanted.timestamp() * 1000))
        return end if found is None else found[0]
    if isinstance(wanted, int):
        return min(max(wanted, first), end)
    return {"first": first, "last": max(first, end - 1)}.get(wanted, end)


class _TopicWriter:
    """What exchanges append to a topic."""

    def __init__(self, service: QueueService, logs: list[PartitionLog]) -> None:
        self._partitions = [_PartitionWriter(service, log) for log in logs]
        self._sticky = 0

    def append(self, record: Record) -> None:
        partitions = self._partitions
        if record.key is not None:
            partitions[(_hash(record.key) & 0x7FFFFFFF) % len(partitions)].append(record)
            return
        # Records without a key go to one partition a turn, and the next turn's to the next one.
        if not partitions[self._sticky].pending:
            self._sticky = (self._sticky + 1) % len(partitions)
        partitions[self._sticky].append(record)


class _PartitionWriter:
    """What is appended to a partition in this turn."""

    def __init__(self, service: QueueService, log: PartitionLog) -> None:
        self.log = log
        self.pending: list[tuple[Record, int]] = []
        self._storage = service.storage
        self._node: Node = service.node

    def append(self, record: Record) -> None:
        config = self.log.config
        size = _size(record)
        if HEADER_SIZE + size > config.max_message_bytes:
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED,
                f"message size {len(record.value or b'')} is too large for topic '{self.log.topic}'"
                f" (max.message.bytes={config.max_message_bytes})",
            )
        if config.compacted and record.key is None:
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED,
                f"topic '{self.log.topic}' is compacted: a message for it needs a routing key",
            )
        if not self.pending:
            self._storage.touched.append(self)
        self.pending.append((record, size))

    def flush(self, now_ms: int) -> None:
        """Write what was appended; raises `PartitionError` or `ApiError` where the disk takes nothing."""
        pending, self.pending = self.pending, []
        most = min(_BATCH, self.log.config.max_message_bytes) - HEADER_SIZE
        records: list[Record] = []
        total = 0
        for record, size in pending:
            if records and total + size > most:
                self._write(records, now_ms)
                records, total = [], 0
            records.append(record._replace(offset=len(records), timestamp=now_ms))
            total += size
        self._write(records, now_ms)

    def _write(self, records: list[Record], now_ms: int) -> None:
        batch = encode_batch(records)
        self.log.append(memoryview(batch), read_header(batch), now_ms)
        if self.log.wants_sync:
            self._node.commit.add(self.log)
        self._node.counters.records_in += len(records)
        self._node.counters.record_bytes_in += len(batch)


def _size(record: Record) -> int:
    """Return how many bytes a record takes in a batch, at most."""
    headers = sum(_HEADER_OVERHEAD + 4 * len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers
