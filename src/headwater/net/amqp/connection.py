"""An AMQP connection: bytes in, frames to channels, bytes out, once a turn.

What is sent gathers here and is written at the end of a turn. A client that reads too slowly is `choked`:
its consumers get nothing more until it has caught up, and it costs the others nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pamqp import commands

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.net.amqp.channel import Channel
from headwater.net.amqp.greeting import Greeting
from headwater.net.amqp.methods import HANDLERS
from headwater.net.amqp.publishing import HeldBack, Publishing
from headwater.wire.amqp.constants import BASIC_ACK, CHANNEL_OPEN, FRAME_MIN_SIZE
from headwater.wire.amqp.methods import decode_method, encode_close, encode_method, make
from headwater.wire.amqp.parser import Parser

if TYPE_CHECKING:
    from headwater.net.amqp.listener import AmqpListener

__all__ = ["AmqpConnection"]

logger = logging.getLogger(__name__)

_WRITE_HIGH = 128 * 1024
_WRITE_LOW = 32 * 1024
_GATHERED = 96 * 1024
_CLOSE_SECONDS = 5.0
_MUCH = 64 * 1024
"""After as much the others have their turn: the event loop would read from one socket 32 times before the next."""


class AmqpConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, listener: AmqpListener) -> None:
        self.listener = listener
        self.node = listener.node
        self.service = listener.node.queue_service
        self.number = listener.next_number()
        self.vhost = "/"
        self.user = ""
        self.peer = ""
        self.active_ms = 0
        self.frame_max = FRAME_MIN_SIZE
        self.channel_max = 0
        self.channels: dict[int, Channel] = {}
        self.choked = False
        self.blocked = False
        """Whether the client was told that it had better not publish."""
        self.greeting = Greeting(self)
        self._parser = Parser(FRAME_MIN_SIZE, listener.max_body)
        self._publishing = Publishing(self)
        self.publish = self._publishing.publish
        self._out: list[bytes] = []
        self._gathered = 0
        self._held = False
        self.held_back = 0
        """The memory of what its transactions hold back."""
        self._unfinished = 0
        self.full = False
        """Whether there is no room on the disk for what the client would publish."""
        self._stalled: list[tuple[bytes, list[bytes], int]] = []
        self._stopped = False
        self._closing = False
        self._transport: asyncio.Transport | None = None

    # -- transport -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH, low=_WRITE_LOW)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "local"
        self.active_ms = self.node.clock.monotonic_ms()
        self.listener.opened(self)

    def data_received(self, data: bytes) -> None:
        """Take in what the client sent, and end the turn."""
        self.node.counters.bytes_in += len(data)
        self.active_ms = self.node.clock.monotonic_ms()
        if self._closing and not self.channels and self._transport is None:
            return
        try:
            if self.greeting.waits:
                data = self.greeting.begin(data)
                if not data:
                    return
            self.service.begin_turn()
            self._parser.feed(data, self)
            size = self._parser.buffered + self.held_back
            if size != self._unfinished:
                self._unfinished = size
                self.listener.unfinished.note(self, size)
        except AmqpError as error:
            self.fail(error)
        except Exception:
            logger.exception("a connection from %s failed", self.peer)
            self.fail(AmqpError(ReplyCode.INTERNAL_ERROR, "see the broker's log"))
        self.service.end_soon()
        if len(data) > _MUCH and self._transport is not None and not self.waits:
            self._transport.pause_reading()
            self.node.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self.waits:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Give its consumers nothing more: the client does not read."""
        self.choked = True
        for channel in self.channels.values():
            channel.choked = True

    def resume_writing(self) -> None:
        """Go on: the client has caught up."""
        self.choked = False
        for channel in self.channels.values():
            channel.choked = False
            for consumer in channel.consumers.values():
                self.service.touch(consumer.queue)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything that the client had."""
        self._transport = None
        self._closing = True
        self.greeting.end()
        self.end_channels()
        for definition in self.service.definitions.owned_by(self.vhost, self.number):
            self.service.change(self.service.definitions.delete_queue(definition.vhost, definition.name))
        self.listener.closed(self)
        self.service.end_turn()

    def end_channels(self) -> None:
        """Close all channels: what they have not acknowledged goes back to its queues."""
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.end()
        self._publishing.forget()

    # -- output ----------------------------------------------------------------------------------

    def send(self, frames: list[bytes], size: int) -> None:
        """Have frames sent at the end of this turn, or now when there is much to send."""
        self._out += frames
        self._gathered += size
        if self._gathered > _GATHERED:
            self.flush()
        else:
            self.service.talking[self] = None

    def command(self, channel: int, command: object) -> None:
        """Have a method sent at the end of this turn."""
        self.send([encode_method(channel, command)], 0)  # type: ignore[arg-type]

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._out:
            return
        data = b"".join(self._out)
        self._out = []
        self._gathered = 0
        self.write(data)

    def write(self, data: bytes) -> None:
        """Write at once."""
        if self._transport is not None:
            self.node.counters.bytes_out += len(data)
            self._transport.write(data)

    # -- frames ----------------------------------------------------------------------------------

    def acknowledge(self, channel: int, tag: int, multiple: int) -> None:
        """Take an acknowledgement."""
        found = self.channels.get(channel)
        if found is None or found.closing:
            found = self.channel(channel)
            if found is None:
                return
        try:
            found.acknowledge(tag, multiple)
        except AmqpError as error:
            error.class_id, error.method_id = BASIC_ACK >> 16, BASIC_ACK & 0xFFFF
            self.fail_channel(found, error)

    def method(self, channel: int, payload: bytes) -> None:
        """Take any other method."""
        if not self.greeting.over:
            self.greeting.method(channel, decode_method(payload))
            return
        if channel == 0:
            self.connection_method(decode_method(payload))
            return
        found = self.channels.get(channel)
        if found is not None and found.closing:
            self._closing_method(found, payload)
            return
        command = decode_method(payload)
        if command.index == CHANNEL_OPEN:
            self._open_channel(channel)
            return
        if found is None:
            found = self.channel(channel)
            if found is None:
                return
        handler = HANDLERS.get(type(command))
        if handler is None:
            raise AmqpError(
                ReplyCode.COMMAND_INVALID, f"{command.name} is not for clients to send",
                command.index >> 16, command.index & 0xFFFF,
            )  # fmt: skip
        try:
            handler(found, command)
        except AmqpError as error:
            if not error.class_id:
                error.class_id, error.method_id = command.index >> 16, command.index & 0xFFFF
            self.fail_channel(found, error)

    def refuse(self, channel: int, error: AmqpError) -> None:
        """Close a channel whose message cannot be taken."""
        found = self.channel(channel)
        if found is not None:
            self.fail_channel(found, error)

    def closes(self, channel: int) -> bool:
        """Tell whether a channel is closing, so that what still comes for it is left out."""
        if channel == 0:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "content on channel 0")
        found = self.channels.get(channel)
        if found is None:
            if self.greeting.over and not self._closing:
                self.channel(channel)
            return self._closing
        return found.closing

    def channel(self, number: int) -> Channel | None:
        """Return an open channel; None for one that is closing; raises `AmqpError` for one that is not open."""
        found = self.channels.get(number)
        if found is None:
            if self._closing:
                return None
            raise AmqpError(ReplyCode.CHANNEL_ERROR, f"expected 'channel.open' on channel {number}")
        return None if found.closing else found

    def _closing_method(self, channel: Channel, payload: bytes) -> None:
        command = decode_method(payload)
        if isinstance(command, commands.Channel.CloseOk):
            del self.channels[channel.number]
        elif isinstance(command, commands.Channel.Close):
            self.command(channel.number, make(commands.Channel.CloseOk))

    def _open_channel(self, number: int) -> None:
        if number in self.channels:
            raise AmqpError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", 20, 10)
        if self.channel_max and number > self.channel_max:
            raise AmqpError(
                ReplyCode.NOT_ALLOWED,
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max "
                f"({self.channel_max})",
            )
        self.channels[number] = Channel(self, number)
        self.command(number, make(commands.Channel.OpenOk))

    def commit(self, publishes: list[HeldBack]) -> None:
        """Publish what a transaction has held back."""
        self._publishing.commit(publishes)

    # -- waiting ---------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether nothing is read from the client for now, for no fault of its own."""
        return self._held or self._stopped

    def tune(self, frame_max: int, channel_max: int) -> None:
        """Hold to what was agreed on."""
        self.frame_max, self.channel_max = frame_max, channel_max
        self._parser.frame_max = frame_max

    def hold(self) -> None:
        """Take nothing more in until `go_on`: an answer has to wait, and what follows it too."""
        self._held = self._parser.paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Take in again what the client sends, and first what it has sent meanwhile."""
        if not self._held:
            return
        self._held = self._parser.paused = False
        if self._transport is None:
            return
        if not self._stopped:
            self._transport.resume_reading()
        self.data_received(b"")

    def stall(self, method: bytes, contents: list[bytes], header_size: int) -> None:
        """Keep what a client publishes, and read nothing more of it, until there is room on the disk again."""
        self._stalled.append((method, contents, header_size))
        self._stopped = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _publish_stalled(self) -> None:
        self._stopped = False
        stalled, self._stalled = self._stalled, []
        self.service.begin_turn()
        for method, contents, header_size in stalled:
            self._publishing.publish(method, contents, header_size)
        if self._transport is not None and not self._held:
            self._transport.resume_reading()
        self.service.end_turn()

    def after_sync(self, then: Callable[[], object]) -> None:
        """Do something when all that was changed is on disk, and take nothing in before."""
        if not self.node.logs.synced:
            then()
            return
        self.hold()

        def synced() -> None:
            if self.service.failed is not None:
                self.fail(AmqpError(ReplyCode.INTERNAL_ERROR, self.service.failed))
            else:
                then()
            self.go_on()
            self.service.end_turn()

        self.node.commit.wait(synced)

    # -- ends ------------------------------------------------------------------------------------

    def connection_method(self, command: object) -> None:
        """Take a method that is about the connection."""
        if isinstance(command, commands.Connection.Close):
            self.end_channels()
            self._closing = True
            self.command(0, make(commands.Connection.CloseOk))
            self.flush()
            self.close()
        elif isinstance(command, commands.Connection.CloseOk):
            self.close()
        elif isinstance(command, commands.Connection.UpdateSecret):
            self.command(0, make(commands.Connection.UpdateSecretOk))
        else:
            index = command.index  # type: ignore[attr-defined]
            raise AmqpError(
                ReplyCode.CHANNEL_ERROR,
                "unexpected method in connection state running",
                index >> 16,
                index & 0xFFFF,
            )

    def fail_channel(self, channel: Channel, error: AmqpError) -> None:
        """Close a channel, or the connection where the error is that hard."""
        if error.closes_connection:
            self.fail(error)
            return
        if channel.closing:
            return
        self._end_channel(channel)
        self.send([encode_close(channel.number, error)], 0)

    def close_channel(self, channel: Channel) -> None:
        """Close a channel because the client asked for it."""
        self._end_channel(channel)
        self.channels.pop(channel.number, None)
        self.command(channel.number, make(commands.Channel.CloseOk))

    def _end_channel(self, channel: Channel) -> None:
        channel.closing = True
        self._parser.forget(channel.number)
        channel.end()
        self._publishing.forget()

    def fail(self, error: AmqpError) -> None:
        """Tell the client what it did wrong, and end the connection."""
        if self._closing:
            return
        self._closing = True
        self.listener.report(self, error.reply_text)
        self.end_channels()
        self._parser.paused = True
        if not self.greeting.tells(error):
            self.close()
            return
        self.send([encode_close(0, error)], 0)
        self.flush()
        self._parser = Parser(max(self.frame_max, FRAME_MIN_SIZE), 0)
        self.node.loop.call_later(_CLOSE_SECONDS, self.close)

    def shut_down(self) -> None:
        """Tell the client that the broker stops, and close."""
        if self.greeting.over and not self._closing:
            forced = AmqpError(
                ReplyCode.CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'"
            )
            self.send([encode_close(0, forced)], 0)
        self.close()

    def close(self, reason: str | None = None) -> None:
        """Close the connection."""
        if reason is not None:
            self.listener.report(self, reason)
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._transport = None

    def tell_cancelled(self, channel: Channel, tag: str) -> None:
        """Tell the client that a consumer gets nothing more, if it understands that."""
        if "consumer_cancel_notify" in self.greeting.capabilities and not self._closing:
            self.command(channel.number, make(commands.Basic.Cancel, consumer_tag=tag, nowait=True))

    def tell_blocked(self, reason: str | None) -> None:
        """Tell the client that publishing is held up, or goes on: with its next publish we read no further."""
        self.full = reason is not None
        self._publishing.forget()
        if self._stopped and not self.full:
            self._publish_stalled()
        if "connection.blocked" not in self.greeting.capabilities or self.blocked == (reason is not None):
            return
        self.blocked = reason is not None
        if reason is not None:
            self.command(0, make(commands.Connection.Blocked, reason=reason))
        else:
            self.command(0, make(commands.Connection.Unblocked))
