"""Messages from one queue to others, none of them lost.

A message is published where it goes and confirmed there before it is acknowledged where it was. Whatever ends
the two in between, the broker, the network or a kill, leaves it in both places, never in none.

They are fetched with `basic.get`, which unlike a consumer says when a queue is empty, and of which many can
be under way. Those that are to stay remain unacknowledged until the end, so that the ones behind them can be
reached, and then go back to their places. Only as many are looked at as there were at the beginning:
what fails again, and comes back while the transfer runs, is not sent a second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from headwater.client.amqp.connection import Connection
from headwater.client.amqp.errors import NotTaken
from headwater.client.amqp.messages import Delivery
from headwater.record.amqp.properties import Properties

__all__ = ["Transfer", "origin"]

_BATCH = 500
_FIRST_BATCH = 20
_BATCH_BYTES = 8 * 1024 * 1024
_STEPS_A_SECOND = 10

Destination = Callable[[Delivery], str | None]
"""Says which queue a message goes to; None leaves it where it is."""


class Transfer:
    """Moves messages from a queue to others of the same broker, or of the one that `to` is connected to."""

    def __init__(
        self,
        connection: Connection,
        source: str,
        destination: Destination,
        *,
        to: Connection | None = None,
        limit: int | None = None,
        rate: float | None = None,
    ) -> None:
        self._source = source
        self._destination = destination
        self._rate = rate
        self._reader, self._writer = connection.channel(), (to or connection).channel()
        self._writer.confirm()
        ready = self._reader.look_up(source).messages
        self.total = ready if limit is None else min(ready, limit)
        self.moved = 0
        self.kept = 0
        self._bytes = 0

    def run(self) -> Iterator[int]:
        """Move all of them, and give the number that each step moved.

        Raises `NotTaken` where a destination does not take a message; what was not taken stays.
        """
        began = time.monotonic()
        while (seen := self.moved + self.kept) < self.total:
            if self._rate is not None:
                time.sleep(max(began + seen / self._rate - time.monotonic(), 0))
            deliveries = self._reader.get_many(self._source, min(self._batch_size(), self.total - seen))
            if not deliveries:
                break
            yield self._move(deliveries)
        self._reader.close()
        self._writer.close()

    def _move(self, deliveries: list[Delivery]) -> int:
        sent: dict[int, tuple[Delivery, str]] = {}
        try:
            for delivery in deliveries:
                self._bytes += len(delivery.body) + len(delivery.raw_properties)
                queue = self._destination(delivery)
                if queue is None:
                    self.kept += 1
                    continue
                properties = _to_publish(delivery)
                tag = self._writer.publish(
                    delivery.body, routing_key=queue, properties=properties, mandatory=True
                )
                sent[tag] = delivery, queue
            self._writer.wait_for_confirms()
        finally:
            refused, returned = self._writer.refusals()
            # What comes back does not say which message it was: none of that queue's counts as taken.
            missing = {message.routing_key for message in returned}
            left = refused.union(self._writer.unconfirmed)
            taken = [d for tag, (d, queue) in sent.items() if tag not in left and queue not in missing]
            for delivery in taken:
                self._reader.ack(delivery.tag)
            self.moved += len(taken)
        if missing:
            raise NotTaken(f"there is no queue named {min(missing)}: its messages stay in {self._source}")
        if refused:
            raise NotTaken(
                f"{len(refused)} messages were refused, and stay in {self._source}: "
                f"{min(sent[tag][1] for tag in refused)} is full"
            )
        return len(taken)

    def _batch_size(self) -> int:
        """Return how many to fetch at once: not more than fit in memory, nor than the rate allows."""
        seen = self.moved + self.kept
        fitting = _BATCH_BYTES * seen // max(self._bytes, 1)
        size = max(min(_BATCH, fitting), 1) if seen else _FIRST_BATCH
        if self._rate is not None:
            size = max(min(size, int(self._rate / _STEPS_A_SECOND)), 1)
        return size


def _to_publish(delivery: Delivery) -> bytes:
    """Return a message's properties as it is published again, without what would mislead the broker."""
    raw = delivery.raw_properties
    # Other queues that the publisher wanted a copy in have theirs, and another queue counts from the start.
    if not any(name in raw for name in (b"\x02CC", b"\x0fx-delivery-count")):
        return raw
    properties = delivery.properties
    for name in ("CC", "x-delivery-count"):
        (properties.headers or {}).pop(name, None)
    return properties.encode()


def origin(properties: Properties, dead_letters: str) -> str | None:
    """Return the queue that a dead letter came from first, as its `x-death` header says, or None."""
    deaths = (properties.headers or {}).get("x-death")
    if not isinstance(deaths, list):
        return None
    # The newest death is the first of them. One in the queue that it is in now leads nowhere.
    for death in reversed(deaths):
        queue = death.get("queue") if isinstance(death, dict) else None
        if isinstance(queue, str) and queue != dead_letters:
            return queue
    return None
