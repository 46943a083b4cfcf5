"""Queues without a disk or a client: a log in memory, a channel that remembers, messages that are numbers."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.broker.queues.consumers import Consumer
from headwater.broker.queues.lane import Budget, Lane
from headwater.broker.queues.queue import Queue
from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.broker.queues.settled import Settled
from headwater.record.amqp.message import Message, encode_address, pack_message
from headwater.record.amqp.properties import Properties
from headwater.record.amqp.tables import Table

ROOM = 1 << 40
NOW = 1_000_000


def message(
    number: int,
    *,
    persistent: bool = True,
    priority: int | None = None,
    ttl: int | None = None,
    size: int = 0,
) -> Message:
    """Return a message that can be told from all others by its body's first bytes."""
    properties = Properties(
        delivery_mode=2 if persistent else 1,
        priority=priority,
        expiration=None if ttl is None else str(ttl),
    )
    return pack_message(encode_address("", "q"), properties, str(number).encode().ljust(size))


def number_of(found: Message) -> int:
    return int(found.body())


class MemoryStore:
    """A log in memory, which shows what was synced and no more."""

    def __init__(self, *, batch: int = 3) -> None:
        self.messages: list[Message] = []
        self.settled = Settled()
        self.shown = 0
        self.marked = 0
        self.attempts: dict[int, int] = {}
        self._batch = batch

    @property
    def end(self) -> int:
        return len(self.messages)

    def append(self, message: Message) -> int:
        self.messages.append(message.copy())
        self.messages[-1].expires_ms = message.expires_ms
        return len(self.messages) - 1

    def sync(self) -> None:
        self.shown = len(self.messages)

    def read(self, offset: int, size: int) -> tuple[list[Message], int]:
        offset = max(offset, self.settled.head)
        stop = min(offset + self._batch, self.shown)
        found = []
        for place in range(offset, stop):
            if place not in self.settled:
                read = self.messages[place].copy()
                read.offset, read.expires_ms = place, self.messages[place].expires_ms
                found.append(read)
        return found, max(offset, stop)

    def settle(self, offset: int) -> None:
        assert offset not in self.settled, "a message is settled once"
        self.settled.add(offset)

    def settle_range(self, start: int, stop: int) -> None:
        self.settled.add_range(start, stop)

    def waiting(self, offset: int) -> int:
        return self.settled.unsettled(offset, self.end)

    def delivered(self, offset: int) -> None:
        self.marked = max(self.marked, offset + 1)

    def tried(self, offset: int, count: int) -> None:
        assert offset < self.marked, "it went out before"
        self.attempts[offset] = count

    def restarted(self) -> MemoryStore:
        """Return the log as another process finds it: what was not to survive is gone."""
        after = MemoryStore(batch=self._batch)
        after.messages, after.settled = self.messages, self.settled
        for place, each in enumerate(self.messages):
            if not each.facts.persistent and place not in after.settled:
                after.settled.add(place)
        after.sync()
        return after


class ShownStore(MemoryStore):
    """A log that shows everything at once."""

    def append(self, message: Message) -> int:
        offset = super().append(message)
        self.sync()
        return offset


class Channel:
    """A channel that remembers what was delivered to whom."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self.choked = False
        self.unacked: list[Message] = []
        self.deliveries: list[tuple[str, int]] = []

    def deliver(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        for each in messages:
            self.deliveries.append((consumer.tag, number_of(each)))
            each.consumer = consumer
            if not consumer.no_ack:
                self.unacked.append(each)

    def release(self, found: Message) -> None:
        """Count a message out, as a channel does that has settled it."""
        self.unacked.remove(found)
        found.consumer.unacked -= 1
        self.room += 1

    def took(self) -> list[int]:
        """Return what was delivered since the last time."""
        deliveries, self.deliveries = self.deliveries, []
        return [number for _, number in deliveries]


def new_queue(
    arguments: Table | None = None, *, durable: bool = True, limit: int = ROOM, auto_delete: bool = False
) -> Queue:
    """Return a queue with logs in memory that are synced at once."""
    definition = QueueDefinition("/", "q", bytes(16), durable, False, auto_delete, arguments or {})
    budget = Budget(limit)
    return Queue(definition, lambda priority: Lane(budget, ShownStore, durable=durable))
