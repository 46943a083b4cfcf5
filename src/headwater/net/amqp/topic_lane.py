"""The lane of a queue that is fed from a topic: nothing is stored but what was settled.

A record waits in its topic until it is read, a chunk of one partition at a time and the partitions in turns, and
becomes a message that is delivered, given back and settled as any other. What is kept for each partition is which
offsets are settled, as for a queue's own log, so a crash brings back what was not acknowledged. Only
committed records are read. What retention deletes before it was consumed is gone for the queue too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from headwater.broker.queues.lane import Budget, Lane
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.core.errors import HeadwaterError
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.net.amqp.positions import Place, Positions
from headwater.record.amqp.conversion import message_of
from headwater.record.amqp.message import Message
from headwater.record.batch import batches
from headwater.record.committed import committed_batches
from headwater.record.records import decode_batch

if TYPE_CHECKING:
    from headwater.broker.queues.queue import Queue

__all__ = ["TopicFeed", "TopicLane"]

_READ = 256 * 1024
_AHEAD = 1000
_GAP = 1000
"""How many offsets without a record are settled one by one; more of them at once are written as a range."""

Expiry = Callable[[Message, int], int | None]


class TopicFeed:
    """One partition of the topic. Its messages have it for their lane."""

    def __init__(
        self, lane: TopicLane, log: PartitionLog, key: bytes, place: Place, positions: Positions | None
    ) -> None:
        self.log = log
        self.key = key
        self.place = place
        self._lane = lane
        self._positions = positions
        """Where it is kept what was settled; None where the queue does not survive a restart."""
        self._gone = False
        self._flagged = self._marked = self.sent = place.delivered
        self.next = place.settled.head
        """The offset that is read next."""

    @property
    def store(self) -> TopicFeed:
        """What is told that a message goes out."""
        return self

    def waiting(self) -> int:
        """Return how many records have not been read, about: some offsets may hold none."""
        start = max(self.next, self.log.start_offset)
        return self.place.settled.unsettled(start, self.log.last_stable_offset)

    def read(self) -> list[Message]:
        """Return the next messages; none where the partition has no more for now."""
        log, settled = self.log, self.place.settled
        while not self._gone:
            if log.start_offset > self.next:
                self._skip(self.next, log.start_offset)
                self.next = log.start_offset
            self.next = settled.after(self.next)
            if self.next >= log.last_stable_offset:
                return []
            try:
                data, aborted = log.read_committed(self.next, _READ)
                messages, after = self._decode(data, [ended[:2] for ended in aborted])
            except HeadwaterError:
                return []  # the log has said why; what follows is looked at again when it grows
            if after == self.next:
                return []
            self.next = after
            if messages:
                return messages
        return []

    def _decode(self, data: bytes | memoryview, aborted: list[tuple[int, int]]) -> tuple[list[Message], int]:
        start, settled = self.next, self.place.settled
        after = expected = start
        for _, header in batches(data):
            after = header.last_offset + 1
        messages: list[Message] = []
        for position, _ in committed_batches(data, aborted):
            for record in decode_batch(data, position):
                offset = record.offset
                if offset < start:
                    continue
                if offset > expected:
                    self._skip(expected, offset)
                expected = offset + 1
                if offset in settled:
                    continue
                message = message_of(record, self.log.topic, self.log.partition)
                message.offset = offset
                message.lane = self
                message.deliveries = self.place.attempts.get(offset, int(offset < self._flagged))
                message.expires_ms = self._lane.expiry(message, record.timestamp)
                messages.append(message)
        if after > expected:
            self._skip(expected, after)
        return messages, after

    def _skip(self, start: int, stop: int) -> None:
        """Settle offsets that hold no record for anybody."""
        if self._positions is None or stop - start > _GAP:
            self.settle_range(start, stop)
            return
        for offset in range(start, stop):
            if offset not in self.place.settled:
                self._positions.settle(self.key, self.place, offset)

    def settle(self, message: Message) -> None:
        """Know that a message is done with."""
        if self._gone:
            return
        if self._positions is None:
            self.place.settled.add(message.offset)
        else:
            self._positions.settle(self.key, self.place, message.offset)

    def settle_range(self, start: int, stop: int) -> None:
        """Know that all records from an offset to before another are done with."""
        if self._positions is None:
            self.place.settled.add_range(start, stop)
        else:
            self._positions.settle_range(self.key, self.place, start, stop)

    def give_back(self, message: Message) -> None:
        """Have a message delivered again."""
        if not self._gone:
            self._lane.give_back(message)

    def delivered(self, offset: int) -> None:
        """Know that a message goes out now: should we crash, it comes back as redelivered."""
        if offset >= self.sent:
            self.sent = offset + 1
        if offset >= self._marked and self._positions is not None and not self._gone:
            try:
                self._positions.delivered(self.key, self.place, offset + _AHEAD)
            except PartitionError:  # the next one tries again
                return
            self._marked = offset + _AHEAD

    def tried(self, offset: int, count: int) -> None:
        """Know that a message goes out again: should we crash, it was tried that often."""
        if self._positions is not None and not self._gone:
            self._positions.tried(self.key, self.place, offset, count)

    def advanced(self) -> None:
        """Know that the partition has more to read."""
        if not self._gone:
            self._lane.advanced()

    def end(self) -> None:
        """Follow the partition no more."""
        self._gone = True
        self.log.on_advance.pop(self, None)


class TopicLane(Lane):
    """What a queue is fed with from a topic."""

    def __init__(
        self, budget: Budget, queue: Callable[[], Queue], wake: Callable[[Queue], None], expiry: Expiry
    ) -> None:
        super().__init__(budget, _no_store, durable=False)
        self.feeds: deque[TopicFeed] = deque()
        self.expiry = expiry
        self._queue = queue
        self._wake = wake

    def add(self, feed: TopicFeed) -> None:
        """Follow one more partition."""
        self.feeds.append(feed)
        feed.log.on_advance[feed] = feed.advanced

    def remove(self, feed: TopicFeed) -> None:
        """Follow a partition no more that is gone, and drop what was read of it."""
        feed.end()
        self.feeds.remove(feed)
        kept = [message for message in self.waiting_in_memory() if message.lane is not feed]
        super().drop()
        for message in kept:
            self._admit(message)

    def advanced(self) -> None:
        """Have the queue dispatched: a partition has more."""
        queue = self._queue()
        if len(queue.consumers):
            self._wake(queue)

    def __len__(self) -> int:
        return len(self.ready) + len(self._returned) + sum(feed.waiting() for feed in self.feeds)

    def push(self, message: Message) -> None:
        """Refuse: what is in the topic is in the queue, and nothing else."""
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED, f"{self._queue().definition} takes messages from its topic alone"
        )

    def head(self) -> Message | None:
        """Return the message that is next, or None."""
        if self._returned:
            return self._returned[0][1]
        if not self.ready:
            self._fill()
        return self.ready[0] if self.ready else None

    def pop(self) -> Message | None:
        """Take the message that is next."""
        return None if self.head() is None else super().pop()

    def _fill(self) -> None:
        for _ in range(len(self.feeds)):
            feed = self.feeds[0]
            self.feeds.rotate(-1)
            if messages := feed.read():
                for message in messages:
                    message.position = self._next
                    self._next += 1
                    self._admit(message)
                return

    def _admit(self, message: Message) -> None:
        self.ready.append(message)
        self._take_in(message)

    def clear(self) -> int:
        """Settle everything that waits, and return how many messages that were."""
        count = len(self)
        for message in self.waiting_in_memory():
            message.lane.settle(message)
        for feed in self.feeds:
            stable = feed.log.last_stable_offset
            if feed.next < stable:
                feed.settle_range(feed.next, stable)
                feed.next = stable
        super().drop()
        return count

    def drop(self) -> None:
        """Forget everything; the queue is gone."""
        for feed in self.feeds:
            feed.end()
        super().drop()


def _no_store() -> NoReturn:
    raise AssertionError("a topic is the store")
