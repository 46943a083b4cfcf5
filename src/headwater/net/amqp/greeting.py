"""How a client comes in, and how it is known to be there: the handshake, its password, and heartbeats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.base import Frame

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.wire.amqp.constants import HEARTBEAT_FRAME, PROTOCOL_HEADER
from headwater.wire.amqp.handshake import Credentials, Handshake, Stage

if TYPE_CHECKING:
    from headwater.net.amqp.connection import AmqpConnection

__all__ = ["Greeting"]


class Greeting:
    """The handshake of one connection, from its first bytes until channels may be opened."""

    def __init__(self, connection: AmqpConnection) -> None:
        listener = connection.listener
        self._connection = connection
        self._listener = listener
        self._handshake = Handshake(listener.properties, listener.mechanisms, listener.tuning)
        self._first = b""
        self._heartbeat = 0
        self._beat: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether the client has not said yet what it speaks."""
        return self._handshake.stage is Stage.WAITING

    @property
    def over(self) -> bool:
        """Whether the client is in."""
        return self._handshake.stage is Stage.RUNNING

    @property
    def capabilities(self) -> frozenset[str]:
        """The extensions that the client says it understands."""
        return self._handshake.capabilities

    def begin(self, data: bytes) -> bytes:
        """Take the client's first bytes, and return what follows them."""
        self._first += data
        if len(self._first) < len(PROTOCOL_HEADER):
            return b""
        header, rest = self._first[: len(PROTOCOL_HEADER)], self._first[len(PROTOCOL_HEADER) :]
        self._first = b""
        self._connection.write(self._handshake.start(header))
        if self._handshake.close:
            self._connection.close(f"it does not speak AMQP 0-9-1: it began with {header!r}")
            return b""
        return rest

    def method(self, channel: int, command: Frame) -> None:
        """Take a method of the handshake."""
        connection, handshake = self._connection, self._handshake
        if channel:
            raise AmqpError(ReplyCode.CHANNEL_ERROR, f"channel {channel} before the connection is open")
        if isinstance(command, commands.Connection.Close | commands.Connection.CloseOk):
            connection.connection_method(command)
            return
        match handshake.stage:
            case Stage.STARTING:
                self._log_in(handshake.start_ok(command))
            case Stage.TUNING:
                tuned = handshake.tune_ok(command)
                connection.tune(tuned.frame_max, tuned.channel_max)
                self._heartbeat = tuned.heartbeat
                self._arm()
            case _:
                vhost = handshake.open(command)
                connection.service.definitions.virtual_host(vhost)
                connection.vhost = vhost
                connection.write(handshake.open_ok())
                self._listener.admitted(connection)
                self._listener.tell_blocked(connection)

    def _log_in(self, credentials: Credentials) -> None:
        connection = self._connection
        connection.user = credentials.user
        if not self._listener.access.sasl:
            connection.write(self._handshake.tune())
            return
        connection.hold()
        self._listener.check_password(connection, credentials)

    def logged_in(self) -> None:
        """Go on with a client whose password is right."""
        self._connection.write(self._handshake.tune())
        self._connection.go_on()

    def refuse_login(self, reason: str) -> None:
        """End the connection of a client whose password is wrong."""
        self._connection.write(self._handshake.refuse_login())
        self._connection.close(reason)

    def tells(self, error: AmqpError) -> bool:
        """Whether the client is told of an error: before it has come through the handshake, hardly ever."""
        stage = self._handshake.stage
        if stage in (Stage.OPENING, Stage.AUTHORIZING, Stage.RUNNING):
            return True
        return stage is Stage.TUNING and error.code is ReplyCode.NOT_ALLOWED

    # -- heartbeats ------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._heartbeat:
            self._beat = self._connection.node.loop.call_later(self._heartbeat / 2, self._pulse)

    def _pulse(self) -> None:
        connection = self._connection
        quiet_ms = connection.node.clock.monotonic_ms() - connection.active_ms
        if quiet_ms > 2000 * self._heartbeat and not connection.waits:
            connection.close(f"missed heartbeats from client, timeout: {self._heartbeat}s")
            return
        connection.write(HEARTBEAT_FRAME)
        self._arm()

    def end(self) -> None:
        """Beat no more."""
        if self._beat is not None:
            self._beat.cancel()
