"""A lane: messages that wait in order, the next ones in memory, the rest in a log.

    given back ─► ready ─► (in memory) ─► paged_from … (in the log alone) ─► end

A queue has one lane, or one for each priority. What must survive goes to the lane's log as it comes. Once
the lanes hold more memory than they may, everything that comes to a lane goes to its log alone, until
all that was there before has been taken; so ten million waiting messages need no more memory than
ten thousand.

Messages that were given back are older than all that wait, and go first, in their old order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from headwater.record.amqp.message import Message

__all__ = ["Budget", "Lane", "Store"]

_FLOOR = 256 * 1024
"""What a lane may hold in memory however short that is, unless there are so many lanes that it gets far too short."""
_READ = 256 * 1024
_OVERHEAD = 300
"""What a message takes in memory besides its content, about."""


class Store(Protocol):
    """The log behind a lane."""

    def append(self, message: Message) -> int:
        """Write a message with the next flush, and return the offset that it gets."""

    def read(self, offset: int, size: int) -> tuple[list[Message], int]:
        """Return messages from an offset on that are not settled, and the offset after them.

        About `size` bytes; the same offset while what follows is not to be read yet.
        """

    def settle(self, offset: int) -> None:
        """Know that a message is done with."""

    def delivered(self, offset: int) -> None:
        """Know that a message goes out now."""

    def tried(self, offset: int, count: int) -> None:
        """Know that a message that was given back goes out again, and which time that is."""

    def settle_range(self, start: int, stop: int) -> None:
        """Know that all messages from an offset to before another are done with."""

    def waiting(self, offset: int) -> int:
        """Return how many messages from an offset on are not settled."""

    @property
    def end(self) -> int:
        """The offset that the next message gets."""


class Budget:
    """The memory that all lanes share."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Lane:
    """Messages of one queue and one priority."""

    __slots__ = (
        "_budget",
        "_next",
        "_open_store",
        "_returned",
        "_uncounted",
        "bytes",
        "durable",
        "memory",
        "paged",
        "paged_from",
        "ready",
        "store",
        "wakes",
    )

    def __init__(
        self, budget: Budget, open_store: Callable[[], Store], *, durable: bool, store: Store | None = None
    ) -> None:
        self.durable = durable
        """Whether messages that ask for it survive."""
        self.ready: deque[Message] = deque()
        self.memory = 0
        self.paged = 0
        """How many messages are in the log alone."""
        self.paged_from = 0
        self.store = store
        """The log, once there is something for it."""
        self.bytes = 0
        """The bodies of all that waits; what was found on start is not counted, unless `recover` did."""
        self.wakes = False
        """Whether somebody could not be served because the log does not show its end yet."""
        self._budget = budget
        self._open_store = open_store
        self._next = 0
        self._returned: list[tuple[int, Message]] = []
        self._uncounted = 0
        """The messages before this offset were found on start, and are not in `bytes` yet."""

    def __len__(self) -> int:
        return len(self.ready) + len(self._returned) + self.paged

    def recover(self, *, count_bytes: bool = False) -> None:
        """Take what the log holds for waiting; to count its bytes, all of it is read."""
        store = self.store
        assert store is not None, "there is a log to recover from"
        self.paged_from = offset = 0
        while count_bytes:
            messages, after = store.read(offset, _READ)
            if after == offset:
                break
            offset = after
            self.bytes += sum(message.size for message in messages)
        self.paged = store.waiting(0)
        self._uncounted = 0 if count_bytes else store.end

    def push(self, message: Message) -> None:
        """Put a message at the end."""
        message.lane = self
        self.bytes += message.size
        budget = self._budget
        if self.paged or (
            budget.used > budget.limit and (self.memory > _FLOOR or budget.used > 2 * budget.limit)
        ):
            self._page(message)
            return
        if self.durable and message.facts.persistent:
            message.offset = (self.store or self._open()).append(message)
        message.position = self._next
        self._next += 1
        self.ready.append(message)
        size = len(message.frames) + _OVERHEAD
        self.memory += size
        budget.used += size

    def push_all(self, messages: list[Message]) -> None:
        """Put messages that have the same facts at the end."""
        budget = self._budget
        if self.paged or budget.used > budget.limit or (self.durable and messages[0].facts.persistent):
            for message in messages:
                self.push(message)
            return
        position = self._next
        size = body = 0
        for message in messages:
            message.lane = self
            message.position = position
            position += 1
            size += len(message.frames)
            body += message.size
        self._next = position
        self.ready.extend(messages)
        self.bytes += body
        size += _OVERHEAD * len(messages)
        self.memory += size
        budget.used += size

    def pass_by(self, messages: list[Message]) -> None:
        """Give messages their places that are taken as they come."""
        position = self._next
        for message in messages:
            message.lane = self
            message.position = position
            position += 1
        self._next = position

    def _open(self) -> Store:
        self.store = self._open_store()
        return self.store

    def _page(self, message: Message) -> None:
        store = self.store or self._open()
        if not self.paged:
            self.paged_from = store.end
        store.append(message)
        self.paged += 1

    def give_back(self, message: Message) -> None:
        """Put a message that was taken back in its place."""
        heappush(self._returned, (message.position, message))
        self._take_in(message)

    def _take_in(self, message: Message) -> None:
        self.bytes += message.size
        size = len(message.frames) + _OVERHEAD
        self.memory += size
        self._budget.used += size

    def head(self) -> Message | None:
        """Return the message that is next, or None when there is none, or none to be had yet."""
        if self._returned:
            return self._returned[0][1]
        if not self.ready and self.paged:
            self._refill()
        return self.ready[0] if self.ready else None

    def pop(self) -> Message | None:
        """Take the message that is next."""
        if self._returned:
            message = heappop(self._returned)[1]
        else:
            if not self.ready:
                if not self.paged:
                    return None
                self._refill()
                if not self.ready:
                    return None
            message = self.ready.popleft()
        self.bytes -= message.size
        size = len(message.frames) + _OVERHEAD
        self.memory -= size
        self._budget.used -= size
        return message

    def pop_all(self, most: int) -> list[Message]:
        """Take the messages that are next, `most` at most."""
        ready = self.ready
        if self._returned or not ready:
            return [] if (message := self.pop()) is None else [message]
        popleft = ready.popleft
        messages = [popleft() for _ in range(min(most, len(ready)))]
        size = body = 0
        for message in messages:
            size += len(message.frames)
            body += message.size
        self.bytes -= body
        size += _OVERHEAD * len(messages)
        self.memory -= size
        self._budget.used -= size
        return messages

    def _refill(self) -> None:
        store = self.store
        assert store is not None, "what is paged is in a log"
        while self.paged and not self.ready:
            messages, after = store.read(self.paged_from, _READ)
            if after == self.paged_from:
                self.wakes = True
                self.paged = store.waiting(after)  # less than before where a write has failed
                return
            self.paged_from = after
            for message in messages:
                message.lane = self
                message.position = self._next
                self._next += 1
                if message.offset < self._uncounted:
                    self.bytes += message.size
                size = len(message.frames) + _OVERHEAD
                self.memory += size
                self._budget.used += size
            self.ready.extend(messages)
            self.paged = store.waiting(after)

    def settle(self, message: Message) -> None:
        """Know that a message that was taken is done with."""
        if message.offset >= 0 and self.store is not None:
            self.store.settle(message.offset)

    def clear(self) -> int:
        """Drop everything that waits, and return how many messages that were."""
        count = len(self)
        for message in self.waiting_in_memory():
            self.settle(message)
        if self.paged and self.store is not None:
            self.store.settle_range(self.paged_from, self.store.end)
        self._empty()
        return count

    def drop(self) -> None:
        """Forget everything, the log too: the queue is gone, and what is settled from here on does not matter."""
        self._empty()
        self.store = None

    def _empty(self) -> None:
        self.ready.clear()
        self._returned.clear()
        self._budget.used -= self.memory
        self.memory = self.bytes = self.paged = 0

    def waiting_in_memory(self) -> Iterator[Message]:
        """Yield the messages that wait in memory, in order."""
        yield from (message for _, message in sorted(self._returned, key=lambda entry: entry[0]))
        yield from self.ready
