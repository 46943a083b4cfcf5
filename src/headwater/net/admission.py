"""The connections of one listener: how many there may be, and who of them is not let in yet."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headwater.net.tls import TlsServer

if TYPE_CHECKING:
    from headwater.net.node import Node

__all__ = ["Admission", "Connection"]


class Connection(Protocol):
    """What has to be known of a connection."""

    peer: str
    active_ms: int


C = TypeVar("C", bound=Connection)


class Admission(Generic[C]):
    """Counts connections in and out, and says when one more is too many."""

    def __init__(self, node: Node, logger: logging.Logger) -> None:
        self.connections: dict[C, None] = {}
        self.tls_server: TlsServer | None = None
        """Over TLS a connection is asked for before its handshake, and counted there until it is done."""
        self._node = node
        self._logger = logger
        self._by_host: Counter[str] = Counter()
        # In the order they came, so that the first ones are those whose time is up first.
        self._strangers: dict[C, int] = {}

    def enter(self, connection: C, *, stranger: bool) -> str | None:
        """Count a connection in, and return why it is one too many, or None.

        A stranger has a time to be `admitted` in.
        """
        refusal = self.refusal(connection.peer) if self.tls_server is None else None
        self.connections[connection] = None
        self._by_host[connection.peer] += 1
        self._node.counters.connections_opened += 1
        if stranger:
            self._strangers[connection] = connection.active_ms
        return refusal

    def refusal(self, peer: str) -> str | None:
        """Return why one more connection from an address is too many, or None."""
        shaking = Counter[str]() if self.tls_server is None else self.tls_server.shaking
        for name, count in (
            ("max.connections", len(self.connections) + shaking.total()),
            ("max.connections.per.ip", self._by_host[peer] + shaking[peer]),
            ("headwater.max.unauthenticated.connections", len(self._strangers) + shaking.total()),
        ):
            if count >= self._node.number(name):
                return f"there are more connections than {name}={self._node.number(name)}"
        return None

    def admitted(self, connection: C) -> None:
        """Know that a client has come through the handshake."""
        self._strangers.pop(connection, None)

    def leave(self, connection: C) -> None:
        """Count a connection out."""
        self.connections.pop(connection, None)
        self._strangers.pop(connection, None)
        self._by_host[connection.peer] -= 1
        if not self._by_host[connection.peer]:
            del self._by_host[connection.peer]

    def take_overdue(self) -> list[C]:
        """Return the strangers whose time is up, once."""
        before = self._node.clock.monotonic_ms() - self._node.number("headwater.authentication.timeout.ms")
        overdue: list[C] = []
        for connection, since in self._strangers.items():
            if since > before:
                break
            overdue.append(connection)
        for connection in overdue:
            del self._strangers[connection]
        return overdue

    def report(self, peer: str, reason: str) -> None:
        """Say in the log why a connection is closed."""
        self._node.counters.connections_refused += 1
        self._node.log_limit.log(
            self._logger, logging.WARNING, peer,
            "closed the connection from %s: %s", peer, reason, reason=reason,
        )  # fmt: skip
