"""Messages of a queue as they come."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.client.amqp.errors import Cancelled
from headwater.client.amqp.messages import Delivery
from headwater.client.errors import ClientError

if TYPE_CHECKING:
    from headwater.client.amqp.channel import Channel

__all__ = ["Consumer"]


class Consumer:
    """An iterator over what a queue delivers; `Channel.consume` makes it. As a context manager it ends with it."""

    def __init__(
        self, channel: Channel, queue: str, tag: str, *, no_ack: bool, seconds: float | None
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._no_ack = no_ack
        self._seconds = seconds
        self.tag = tag
        self.arrived: deque[Delivery] = deque()
        self.cancelled = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        while not self.arrived:
            if self.cancelled:
                raise Cancelled(f"the queue {self._queue!r} is gone: the broker ended its consumer")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise StopIteration
            self._channel.pump(left)
        return self.arrived.popleft()

    def close(self) -> None:
        """End it, and give back what has come and was not looked at."""
        if not self.cancelled:
            self.cancelled = True
            self._channel.cancel(self.tag)
        while self.arrived and not self._no_ack:
            self._channel.nack(self.arrived.popleft().tag)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, ClientError):  # then there may be nothing left to close
            self.close()
