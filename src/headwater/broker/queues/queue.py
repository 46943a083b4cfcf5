"""A queue: messages that wait, consumers that take turns, and what becomes of messages nobody wants.

Nothing here waits, reads a clock or writes to a disk: the shell gives messages, consumers and the time, calls
`dispatch` when something has changed, and takes care of what is in `dead`. What few queues use (expiry,
limits, priorities) is looked at only in those that declare it.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import NamedTuple

from headwater.broker.queues.consumers import Consumer, Consumers
from headwater.broker.queues.definitions import QueueDefinition
from headwater.broker.queues.lane import Lane
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.message import Message

__all__ = ["Dead", "Queue", "Reason"]

_BATCH = 256
"""How many messages one consumer gets before the others have their turn, where it has that much room."""


class Reason:
    """Why a message was taken out of a queue without being consumed; dead letters carry it."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_LENGTH = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


class Dead(NamedTuple):
    """A message that was taken out of a queue, and why."""

    message: Message
    reason: str


class Queue:
    """The state of one queue."""

    __slots__ = (
        "consumers",
        "counts",
        "dead",
        "definition",
        "deleted",
        "expires",
        "failed",
        "had_consumers",
        "lane",
        "lanes",
        "plain",
        "settings",
        "unacked",
        "used_ms",
    )

    def __init__(self, definition: QueueDefinition, new_lane: Callable[[int], Lane]) -> None:
        self.definition = definition
        self.settings = definition.settings
        priorities = (self.settings.max_priority or 0) + 1
        self.lanes = [new_lane(priority) for priority in reversed(range(priorities))]
        """Those of higher priority first."""
        self.lane = self.lanes[-1]
        self.consumers = Consumers(single=self.settings.single_active_consumer)
        self.unacked = 0
        self.dead: list[Dead] = []
        """What was taken out and not consumed, to be dead-lettered or settled by the shell."""
        self.used_ms = 0
        """When the queue was last declared, asked or consumed from, for its expiry."""
        self.deleted = False
        self.failed: str | None = None
        """Why the queue takes and gives nothing, or None; see `fail`."""
        settings = self.settings
        self.plain = len(self.lanes) == 1 and not (
            settings.message_ttl_ms is not None
            or settings.max_length is not None
            or settings.max_length_bytes is not None
        )
        """Whether what is published just goes to the end of the one lane, unless it expires."""
        self.counts = settings.queue_type == "quorum" or settings.delivery_limit is not None
        """Whether deliveries say how often they failed before."""
        self.expires = settings.message_ttl_ms is not None
        """Whether any message here may expire; one with an expiration of its own makes it so."""

    def __repr__(self) -> str:
        return f"<Queue {self.definition.name} {len(self)} ready, {self.unacked} unacknowledged>"

    def __len__(self) -> int:
        if len(self.lanes) == 1:
            return len(self.lane)
        return sum(map(len, self.lanes))

    @property
    def bytes(self) -> int:
        """The bytes of all that waits, about."""
        return sum(lane.bytes for lane in self.lanes)

    @property
    def memory(self) -> int:
        """The bytes that the messages take in memory, about."""
        return sum(lane.memory for lane in self.lanes)

    # -- publishing ------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take what the logs hold for waiting."""
        for lane in self.lanes:
            if lane.store is not None:
                # It is little that has to be read for this: no more than the limit.
                lane.recover(count_bytes=self.settings.max_length_bytes is not None)

    def fail(self, reason: str) -> None:
        """Refuse messages and consumers from now on: what the queue holds cannot be got at."""
        self.failed = reason
        self.plain = False

    def check(self) -> None:
        """Raise `AmqpError` where the queue cannot be served."""
        if self.failed is not None:
            raise AmqpError(ReplyCode.NOT_FOUND, f"{self.definition} cannot be served: {self.failed}")

    def publish(self, message: Message, now_ms: int) -> bool:
        """Take a message in; false when the queue refuses it, since it is full or cannot be served."""
        if self.plain and message.facts.expiration_ms is None:
            self.lane.push(message)
            return True
        return self._publish(message, now_ms)

    def _publish(self, message: Message, now_ms: int) -> bool:
        if self.failed is not None:
            return False
        settings = self.settings
        message.expires_ms = self.expiry(message, now_ms)
        if settings.overflow != "drop-head" and self._is_full(message):
            # What a consumer has room for is on its way out, and takes no room from this one.
            self.dispatch(now_ms)
            if self._is_full(message):
                if settings.overflow == "reject-publish-dlx":
                    self.dead.append(Dead(message, Reason.MAX_LENGTH))
                return False
        self._lane_of(message).push(message)
        if message.expires_ms == now_ms:
            self.dispatch(now_ms)  # for whoever has room now, and for nobody else
            self.expire(now_ms + 1)
        if self._is_over():
            self.dispatch(now_ms)  # what goes out takes no room
            self._trim()
        return True

    def _trim(self) -> None:
        """Take out what is too much, from the head as a consumer would get it."""
        while self.settings.overflow == "drop-head" and self._is_over():
            dropped = next((taken for lane in self.lanes if (taken := lane.pop()) is not None), None)
            if dropped is None:
                break
            self.dead.append(Dead(dropped, Reason.MAX_LENGTH))

    def expiry(self, message: Message, published_ms: int) -> int | None:
        """Return after when a message that was published at a time is no more; so the queue learns of it, too."""
        ttl, own = self.settings.message_ttl_ms, message.facts.expiration_ms
        if own is not None:
            self.expires = True
            ttl = own if ttl is None else min(ttl, own)
        return None if ttl is None else published_ms + ttl

    def _lane_of(self, message: Message) -> Lane:
        if len(self.lanes) == 1:
            return self.lane
        return self.lanes[max(len(self.lanes) - 1 - message.facts.priority, 0)]

    def _is_full(self, message: Message) -> bool:
        settings = self.settings
        count, most = len(self), settings.max_length
        if most is not None and count + 1 > most:
            return True
        size = settings.max_length_bytes
        return size is not None and self.bytes + message.size > size

    def _is_over(self) -> bool:
        settings = self.settings
        if settings.max_length is not None and len(self) > settings.max_length:
            return True
        return settings.max_length_bytes is not None and self.bytes > settings.max_length_bytes

    # -- delivering ------------------------------------------------------------------------------

    def dispatch(self, now_ms: int, most: int = maxsize) -> bool:
        """Give what waits to consumers that have room; true when it was so many that there may be more."""
        consumers = self.consumers
        if not consumers.all:
            return False
        if self.expires and self.expire(now_ms, most):
            return True
        active = consumers.active
        while most > 0:
            count = self._deal(now_ms) if active is None else self._serve(active, now_ms)
            if not count:
                return False
            most -= count
        return True

    def _serve(self, consumer: Consumer, now_ms: int) -> int:
        """Give the only consumer that counts a batch, and return how many messages that are."""
        room = consumer.room(_BATCH)
        if room <= 0 or not (batch := self._take(room, now_ms)):
            return 0
        self._hand(consumer, batch)
        return len(batch)

    def open_to(self, count: int, *, persistent: bool) -> Consumer | None:
        """Return the consumer that new messages may go to at once, if there is such a one.

        Nothing waits before them, nothing has to be written down, and it has room for all.
        """
        active = self.consumers.active
        if active is None or self.expires or (persistent and self.lane.durable) or len(self.lane):
            return None
        return active if active.room(count) >= count else None

    def give(self, consumer: Consumer, messages: list[Message]) -> None:
        """Hand new messages to the consumer that the queue is open to."""
        self.lane.pass_by(messages)
        self._hand(consumer, messages)

    def _deal(self, now_ms: int) -> int:
        """Give one message each, in turns, and return how many; a consumer's of one pass go out together."""
        given: dict[Consumer, list[Message]] = {}
        next_turns = self.consumers.next
        plain = self.plain and not self.expires
        for _ in range(_BATCH):
            if (turns := next_turns()) is None:
                break
            message = self.lane.pop() if plain else self._take_one(now_ms)
            if message is None:
                break
            consumer = turns[0]
            turns.rotate(-1)
            given.setdefault(consumer, []).append(message)
            if not consumer.no_ack:
                consumer.unacked += 1
                consumer.receiver.room -= 1
        for consumer, batch in given.items():
            if not consumer.no_ack:
                consumer.unacked -= len(batch)
                consumer.receiver.room += len(batch)
            spent = plain and (self.expires or self._is_tried_out(batch))
            self._hand(consumer, self._unspent(batch, now_ms) if spent else batch)
        return sum(map(len, given.values()))

    def _hand(self, consumer: Consumer, batch: list[Message]) -> None:
        if consumer.no_ack:
            for message in batch:
                if message.offset >= 0:
                    message.lane.settle(message)
        else:
            count = len(batch)
            consumer.unacked += count
            consumer.receiver.room -= count
            self.unacked += count
            if self.definition.durable:
                self._mark(batch)
        consumer.receiver.deliver(consumer, batch)

    def _mark(self, batch: list[Message]) -> None:
        for message in batch:
            if message.offset >= 0:
                store = message.lane.store
                store.delivered(message.offset)
                if self.counts and message.deliveries:
                    store.tried(message.offset, message.deliveries + 1)

    def _take(self, count: int, now_ms: int) -> list[Message]:
        batch: list[Message] = []
        plain = self.plain and not self.expires
        if plain:
            batch = self.lane.pop_all(count)
            if not self.expires and not self._is_tried_out(batch):
                return batch
            # It was read from the log, which brought it to light that some expire.
            batch = self._unspent(batch, now_ms)
        while len(batch) < count and (message := self._take_one(now_ms)) is not None:
            batch.append(message)
        return batch

    def _is_tried_out(self, batch: list[Message]) -> bool:
        """Tell whether some went out too often before the broker ended, which nobody gave back then."""
        limit = self.settings.delivery_limit
        return limit is not None and any(message.deliveries > limit for message in batch)

    def _unspent(self, batch: list[Message], now_ms: int) -> list[Message]:
        return [message for message in batch if self._is_fit(message, now_ms)]

    def _take_one(self, now_ms: int) -> Message | None:
        for lane in self.lanes:
            while (message := lane.pop()) is not None:
                if self._is_fit(message, now_ms):
                    return message
        return None

    def _is_fit(self, message: Message, now_ms: int) -> bool:
        """Tell whether a message may go out; one that may not is dead."""
        if message.expires_ms is not None and message.expires_ms < now_ms:
            self.dead.append(Dead(message, Reason.EXPIRED))
            return False
        limit = self.settings.delivery_limit
        if limit is not None and message.deliveries > limit:
            self.dead.append(Dead(message, Reason.DELIVERY_LIMIT))
            return False
        return True

    def get(self, consumer: Consumer, now_ms: int) -> Message | None:
        """Take one message for a basic.get."""
        self.check()
        if self.expires:
            self.expire(now_ms)
        message = self._take_one(now_ms)
        if message is not None:
            if consumer.no_ack:
                message.lane.settle(message)
            else:
                consumer.unacked += 1
                self.unacked += 1
                self._mark([message])
        return message

    # -- settling --------------------------------------------------------------------------------

    def acknowledge(self, message: Message) -> None:
        """Know that a message was consumed."""
        self.unacked -= 1
        if message.offset >= 0:
            message.lane.settle(message)

    def reject(self, message: Message) -> None:
        """Take a message out that a consumer does not want."""
        self.unacked -= 1
        self.dead.append(Dead(message, Reason.REJECTED))

    def requeue(self, message: Message) -> None:
        """Put a message back in its place, unless that was done too often or there is no room for it."""
        self.unacked -= 1
        message.deliveries += 1
        message.consumer = None
        limit = self.settings.delivery_limit
        if limit is not None and message.deliveries > limit:
            self.dead.append(Dead(message, Reason.DELIVERY_LIMIT))
        else:
            message.lane.give_back(message)
            if not self.plain:
                self._trim()

    # -- consumers -------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer in; raises `AmqpError` where somebody has the queue for itself."""
        self.check()
        everybody, single = self.consumers.all, self.consumers.single
        if any(other.exclusive for other in everybody) or (consumer.exclusive and (everybody or single)):
            name, vhost = self.definition.name, self.definition.vhost
            raise AmqpError(
                ReplyCode.ACCESS_REFUSED, f"queue '{name}' in vhost '{vhost}' in exclusive use", 60, 20
            )
        self.consumers.add(consumer)

    def remove_consumer(self, consumer: Consumer) -> bool:
        """Let a consumer go; true when the queue goes with its last one."""
        self.consumers.remove(consumer)
        return self.definition.auto_delete and not self.consumers.all

    # -- time ------------------------------------------------------------------------------------

    def expire(self, now_ms: int, most: int = maxsize) -> bool:
        """Take out what has expired at the head of the queue; true when there is more, but so many dead already.

        What has expired behind a message of a higher priority that has not stays, as it does in RabbitMQ.
        """
        if not self.plain:
            self._trim()  # what came back after a crash may be too much
        for lane in self.lanes:
            while (head := lane.head()) is not None:
                if head.expires_ms is None or head.expires_ms >= now_ms:
                    return False
                if len(self.dead) >= most:
                    return True
                lane.pop()
                self.dead.append(Dead(head, Reason.EXPIRED))
        return False

    def next_expiry(self) -> int | None:
        """Return when the message at the head expires, if it does."""
        head = next((head for lane in self.lanes if (head := lane.head()) is not None), None)
        return None if head is None else head.expires_ms

    def purge(self) -> int:
        """Drop everything that waits, and return how many messages that were."""
        return sum(lane.clear() for lane in self.lanes)
