"""The memory of messages that are not published yet, bounded over all connections.

A client may begin a large message on each of its channels, or publish without end in a transaction that it does not
commit, and every client may do so. Nobody waits for anybody here: once all together is more than there may be,
the connection that has the most of it is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.amqp import AmqpError, ReplyCode

if TYPE_CHECKING:
    from headwater.net.amqp.connection import AmqpConnection

__all__ = ["UnfinishedMessages"]


class UnfinishedMessages:
    """What the connections hold of messages that are not whole, or not committed, yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[AmqpConnection, int] = {}
        self.total = 0

    def note(self, connection: AmqpConnection, size: int) -> None:
        """Know what a connection holds now; may close one."""
        self.total += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        while self.total > self._limit:
            largest = max(self._held, key=self._held.__getitem__)
            self.forget(largest)
            text = f"messages that are arriving, or not committed, take more memory than {self._limit} bytes"
            largest.fail(AmqpError(ReplyCode.RESOURCE_ERROR, text))

    def forget(self, connection: AmqpConnection) -> None:
        """Know that a connection holds nothing any more."""
        self.total -= self._held.pop(connection, 0)
