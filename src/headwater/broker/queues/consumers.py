"""Who consumes from a queue, and whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from headwater.record.amqp.message import Message

if TYPE_CHECKING:
    from headwater.broker.queues.queue import Queue

__all__ = ["Consumer", "Consumers", "Receiver"]


class Receiver(Protocol):
    """The channel that deliveries go out on."""

    room: int
    """How many more unacknowledged messages the channel takes, all its consumers together."""
    choked: bool
    """Whether the client reads more slowly than it is sent to."""

    def deliver(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Send messages to a consumer."""


class Consumer:
    """One basic.consume, or one basic.get that has not been acknowledged."""

    __slots__ = (
        "exclusive",
        "no_ack",
        "prefetch",
        "prefix",
        "priority",
        "queue",
        "receiver",
        "tag",
        "unacked",
    )

    def __init__(
        self,
        queue: Queue,
        receiver: Receiver,
        tag: str,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        prefetch: int = 0,
        priority: int = 0,
    ) -> None:
        self.queue = queue
        self.receiver = receiver
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        """How many unacknowledged messages it takes; 0 for any number."""
        self.priority = priority
        self.unacked = 0
        self.prefix: dict[int, bytes] = {}
        """How its deliveries begin, by the length of the address; the receiver's."""

    def room(self, most: int) -> int:
        """Return how many messages it takes now, `most` at most."""
        if self.receiver.choked:
            return 0
        if self.no_ack:
            return most
        room = self.receiver.room
        if self.prefetch:
            room = min(room, self.prefetch - self.unacked)
        return room if room < most else most


class Consumers:
    """A queue's consumers, in turns: those of higher priority first, equals one after the other.

    Where there is to be a `single` active one, it is the first that comes, until it goes.
    """

    __slots__ = ("_by_priority", "active", "all", "single")

    def __init__(self, *, single: bool = False) -> None:
        self.all: list[Consumer] = []
        """In the order in which they came."""
        self.single = single
        self.active: Consumer | None = None
        """The consumer that gets everything, where there is such a one."""
        self._by_priority: list[tuple[int, deque[Consumer]]] = []

    def __len__(self) -> int:
        return len(self.all)

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take turns, after all others of its priority."""
        self.all.append(consumer)
        if not self.single:
            self.active = consumer if len(self.all) == 1 else None
        elif self.active is None:
            self.active = consumer
        for priority, turns in self._by_priority:
            if priority == consumer.priority:
                turns.append(consumer)
                return
        self._by_priority.append((consumer.priority, deque([consumer])))
        self._by_priority.sort(key=itemgetter(0), reverse=True)

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer take turns no more."""
        self.all.remove(consumer)
        for _, turns in self._by_priority:
            if consumer in turns:
                turns.remove(consumer)
        self._by_priority = [entry for entry in self._by_priority if entry[1]]
        if len(self.all) == 1:
            self.active = self.all[0]
        elif consumer is self.active:
            self.active = self._by_priority[0][1][0] if self.all else None

    def next(self) -> deque[Consumer] | None:
        """Return the turns whose first consumer is next: the one of the highest priority that has room.

        Whoever gives it something rotates them.
        """
        for _, turns in self._by_priority:
            for _ in range(len(turns)):
                if turns[0].room(1) > 0:
                    return turns
                turns.rotate(-1)
        return None
