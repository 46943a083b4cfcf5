"""Messages of many sizes, encoded beforehand, and how many of them so many bytes of deliveries are."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from pamqp import body, commands, frame, header

from bench.amqp.connection import CHANNEL

MESSAGES = 5_000
SMALLEST, LARGEST = 20, 4_000


class Mix:
    """A round of messages to one queue, to be published over and over.

    Sizes are drawn evenly on a logarithmic scale: most messages are small, and most bytes are in large ones.
    With `own_properties` each message has a message id of its own beside its content type.
    """

    def __init__(
        self, queue: str, tag: str, *, own_properties: bool = False, messages: int = MESSAGES
    ) -> None:
        self.queue = queue
        self.tag = tag
        self.own_properties = own_properties
        contents = list(self._contents(messages))
        publish = frame.marshal(commands.Basic.Publish(routing_key=queue), CHANNEL)
        self.published = b"".join(publish + content for content in contents)
        self._publish_ends = list(accumulate(len(publish) + len(content) for content in contents))
        deliveries = [
            frame.marshal(self._deliver(number), CHANNEL) + content
            for number, content in enumerate(contents, start=1)
        ]
        self.first_deliveries = b"".join(deliveries)
        """What a broker sends for the first round that is published to an empty queue."""
        self._delivery_ends = list(accumulate(map(len, deliveries)))

    @property
    def messages(self) -> int:
        """Return how many messages a round has."""
        return len(self._publish_ends)

    def sent(self, size: int) -> int:
        """Return how many whole messages so many bytes are, of those published."""
        return _count(self._publish_ends, size)

    def delivered(self, size: int) -> int:
        """Return how many whole messages so many bytes are, of those delivered."""
        return _count(self._delivery_ends, size)

    def publish_end(self, messages: int) -> int:
        """Return how many bytes so many messages are, when they are published."""
        return _size(self._publish_ends, messages)

    def delivery_end(self, messages: int) -> int:
        """Return how many bytes so many messages are, when they are delivered."""
        return _size(self._delivery_ends, messages)

    def _deliver(self, number: int) -> commands.Basic.Deliver:
        return commands.Basic.Deliver(self.tag, number, False, "", self.queue)

    def _contents(self, messages: int) -> Iterator[bytes]:
        draw = random.Random(1)
        for _ in range(messages):
            size = round(SMALLEST * (LARGEST / SMALLEST) ** draw.random())
            yield frame.marshal(
                header.ContentHeader(0, size, self._properties(draw)), CHANNEL
            ) + frame.marshal(body.ContentBody(draw.randbytes(size)), CHANNEL)

    def _properties(self, draw: random.Random) -> commands.Basic.Properties:
        properties = commands.Basic.Properties(content_type="application/octet-stream", delivery_mode=1)
        if self.own_properties:
            properties.message_id = draw.randbytes(16).hex()
        return properties


def _count(ends: list[int], size: int) -> int:
    rounds, rest = divmod(size, ends[-1])
    return rounds * len(ends) + bisect_right(ends, rest)


def _size(ends: list[int], messages: int) -> int:
    rounds, rest = divmod(messages, len(ends))
    return rounds * ends[-1] + (ends[rest - 1] if rest else 0)
