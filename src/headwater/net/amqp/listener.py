"""The AMQP listener: a port, and the connections to it."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING

from headwater.broker.access.errors import AuthenticationFailed
from headwater.broker.access.plain import PLAIN, PlainExchange
from headwater.core.errors import SettingError
from headwater.net.access import AccessOptions
from headwater.net.admission import Admission
from headwater.net.amqp.connection import AmqpConnection
from headwater.net.amqp.unfinished import UnfinishedMessages
from headwater.net.port import Port
from headwater.wire.amqp.handshake import AMQPLAIN, Credentials, Tuning, server_properties

if TYPE_CHECKING:
    from headwater.net.node import Node

__all__ = ["AmqpListener"]

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 0.25
_SEND_BUFFER = 128 * 1024
"""What the system holds for a client that does not read; a small one keeps what is on its way short."""
_BLOCKED = "low on disk"


class AmqpListener:
    """One listening socket and its connections."""

    def __init__(self, node: Node, access: AccessOptions, version: str) -> None:
        self.node = node
        self.access = access
        self.mechanisms = self._mechanisms()
        self.properties = server_properties(version)
        self.tuning = Tuning(
            channel_max=node.number("headwater.amqp.channel.max"),
            frame_max=node.number("headwater.amqp.frame.max.bytes"),
            heartbeat=node.number("headwater.amqp.heartbeat.seconds"),
        )
        self.max_body = node.number("headwater.amqp.message.max.bytes")
        self.unfinished = UnfinishedMessages(node.number("headwater.amqp.unfinished.max.bytes"))
        self._numbers = count(1)
        self._admission = Admission[AmqpConnection](node, logger)
        self.connections = node.queue_service.connections = self._admission.connections
        self.port = Port(
            node, access, self._admission, lambda: AmqpConnection(self), send_buffer=_SEND_BUFFER
        )
        self._check: asyncio.TimerHandle | None = None
        self._blocked = False

    def _mechanisms(self) -> tuple[str, ...]:
        if self.access.sasl and not (self.access.encrypted or self.access.plain_without_tls):
            raise SettingError(
                "AMQP's passwords go in clear text: add --tls-cert, or --allow-plain-without-tls, "
                "or --amqp none to serve no queues"
            )
        return (PLAIN, AMQPLAIN)

    def next_number(self) -> int:
        """Return a number that no connection has had."""
        return next(self._numbers)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which the system chooses when `port` is 0."""
        chosen = await self.port.open(host, port)
        self._watch()
        return chosen

    async def stop(self) -> None:
        """Stop accepting, and close the connections."""
        if self._check is not None:
            self._check.cancel()
        await self.port.close(AmqpConnection.shut_down)

    # -- connections -----------------------------------------------------------------------------

    def opened(self, connection: AmqpConnection) -> None:
        """Count a connection in, or refuse it."""
        refusal = self._admission.enter(connection, stranger=True)
        if refusal is not None:
            connection.close(refusal)

    def admitted(self, connection: AmqpConnection) -> None:
        """Know that a client has come through the handshake."""
        self._admission.admitted(connection)

    def closed(self, connection: AmqpConnection) -> None:
        """Count a connection out."""
        self._admission.leave(connection)
        self.unfinished.forget(connection)

    def report(self, connection: AmqpConnection, reason: str) -> None:
        """Say in the log why a connection ends."""
        self._admission.report(connection.peer, reason)

    # -- passwords -------------------------------------------------------------------------------

    def check_password(self, connection: AmqpConnection, credentials: Credentials) -> None:
        """Check who a client says it is, away from the event loop."""
        self.port.run(self._check_password(connection, credentials))

    async def _check_password(self, connection: AmqpConnection, credentials: Credentials) -> None:
        exchange = PlainExchange(self.node.users.any_scram)
        token = f"\0{credentials.user}\0{credentials.password}".encode()
        try:
            await self.node.loop.run_in_executor(None, exchange.answer, token)
        except AuthenticationFailed as error:
            await asyncio.sleep(self.node.number("connection.failed.authentication.delay.ms") / 1000)
            connection.greeting.refuse_login(f"{credentials.user!r:.80} did not authenticate: {error.reason}")
        else:
            connection.greeting.logged_in()

    # -- time ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._check = self.node.loop.call_later(_CHECK_SECONDS, self._watch)
        for connection in self._admission.take_overdue():
            connection.close("it did not finish the handshake in time (headwater.authentication.timeout.ms)")
        blocked = self.node.disk.refusal is not None
        if blocked != self._blocked:
            self._blocked = blocked
            for connection in list(self.connections):
                self.tell_blocked(connection)
                connection.flush()

    def tell_blocked(self, connection: AmqpConnection) -> None:
        """Tell a client where publishing is held up, or goes on again."""
        connection.tell_blocked(_BLOCKED if self._blocked else None)
