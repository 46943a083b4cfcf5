"""One connection to a broker of queues, with its channels.

It is confined to one thread and reads only while somebody waits for something, so it asks the broker for no
heartbeats: TCP's own keep-alive notices a machine that is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from pamqp import commands
from pamqp.base import Frame as Command

from headwater import __version__
from headwater.client.amqp.channel import Channel
from headwater.client.amqp.errors import Refused, refusal
from headwater.client.amqp.frames import Frames
from headwater.client.amqp.transport import Transport
from headwater.client.errors import AuthenticationFailed, BadAnswer, ClientError, Unreachable
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.core.urls import AmqpUrl
from headwater.wire.amqp.constants import FRAME_MAX, HEARTBEAT, METHOD, PROTOCOL_HEADER
from headwater.wire.amqp.methods import decode_method, encode_method, make

__all__ = ["Connection"]

C = TypeVar("C", bound=Command)

ANSWER_SECONDS = 30.0
"""How long a broker may be silent when an answer is due."""
_SEND_AT = 64 * 1024
_CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)


class Connection:
    """A connection that is authenticated as its address says, a context manager.

    >>> with Connection(AmqpUrl.parse("amqp://127.0.0.1")) as connection:   # doctest: +SKIP
    ...     channel = connection.channel()
    ...     channel.publish(b"hello", routing_key="greetings")
    """

    def __init__(
        self, url: AmqpUrl, name: str = "headwater", *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self.url = url
        self.where = url.address
        self.server: dict[str, Any] = {}
        """What the broker says of itself: its product, its version, its capabilities."""
        self.blocked: str | None = None
        """Why the broker takes no messages for now."""
        self.frame_max = FRAME_MAX
        self._answer_seconds = answer_seconds
        self._replies: deque[Command] = deque()
        self._channels: dict[int, Channel] = {}
        self._outgoing = bytearray()
        self._frames = Frames(self.where)
        self._error: ClientError | None = None
        self._transport = Transport(url)
        try:
            self._open(name)
        except BaseException:
            self._transport.close()
            raise

    @property
    def is_headwater(self) -> bool:
        """Whether the broker is Headwater's, which calls itself by the product whose behaviour it has."""
        return str(self.server.get("platform", "")).startswith("Headwater")

    def channel(self) -> Channel:
        """Open a channel."""
        number = next(number for number in range(1, 65536) if number not in self._channels)
        channel = self._channels[number] = Channel(self, number)
        channel.open()
        return channel

    def close(self) -> None:
        """Say goodbye, which gives back what was not acknowledged, and hang up; a lost connection is closed."""
        if self._error is None:
            try:
                self._send(
                    commands.Connection.Close, reply_code=ReplyCode.REPLY_SUCCESS, reply_text="goodbye"
                )
                self._expect(commands.Connection.CloseOk)
            except ClientError:
                pass  # whatever it was, the connection ends
        self._error = self._error or ClientError(f"the connection to {self.where} is closed")
        self._transport.close()

    def send(self, data: bytes) -> None:
        """Send soon: once there is enough of it, or when somebody waits for an answer."""
        self._outgoing += data
        if len(self._outgoing) >= _SEND_AT:
            self.flush()

    def flush(self) -> None:
        """Send what is left to send."""
        if self._error is not None:
            raise self._error
        if self._outgoing:
            data, self._outgoing = self._outgoing, bytearray()
            self._transport.send(data)

    def pump(self, seconds: float | None) -> bool:
        """Read once and hand out what came; tell whether anything did within that time."""
        self.flush()
        try:
            data = self._transport.receive(seconds)
            if data is None:
                return False
            for kind, channel, payload in self._frames.feed(data):
                self._hand_out(kind, channel, payload)
        except (ClientError, AmqpError) as error:
            self._transport.close()
            if isinstance(error, AmqpError):
                error = BadAnswer(f"{self.where} sends what is not AMQP: {error}")
            self._error = error
            raise error from None
        return True

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Read until something is so; raise `Unreachable` where the broker stays silent instead."""
        while not ready():
            if not self.pump(self._answer_seconds):
                reason = f": it takes no messages for now ({self.blocked})" if self.blocked else ""
                raise Unreachable(
                    f"{self.where} has not answered {what} for {self._answer_seconds:g} s{reason}"
                )

    def forget(self, number: int) -> None:
        """Let the number of a closed channel be used again."""
        self._channels.pop(number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, name: str) -> None:
        url = self.url
        self.send(PROTOCOL_HEADER)
        start = self._expect(commands.Connection.Start)
        self.server = dict(start.server_properties or {})
        if "PLAIN" not in str(start.mechanisms).split():
            raise AuthenticationFailed(f"{self.where} takes no passwords (PLAIN), but {start.mechanisms}")
        said = {
            "product": "Headwater",
            "version": __version__,
            "platform": "Python",
            "connection_name": name,
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
        }
        answer = f"\0{url.user}\0{url.password}"
        self._send(
            commands.Connection.StartOk,
            client_properties=said,
            mechanism="PLAIN",
            response=answer,
            locale="en_US",
        )
        try:
            tune = self._expect(commands.Connection.Tune)
        except Refused as error:
            if error.code == ReplyCode.ACCESS_REFUSED:
                raise AuthenticationFailed(f"{self.where} refuses user {url.user!r}: {error}") from None
            raise
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self._frames.max_size = self.frame_max
        self._send(commands.Connection.TuneOk, channel_max=tune.channel_max, frame_max=self.frame_max)
        self._send(commands.Connection.Open, virtual_host=url.vhost)
        self._expect(commands.Connection.OpenOk)

    def _send(self, kind: type[Command], **fields: Any) -> None:
        self.send(encode_method(0, make(kind, **fields)))

    def _expect(self, kind: type[C]) -> C:
        self.wait(lambda: bool(self._replies), kind.name)
        reply = self._replies.popleft()
        if not isinstance(reply, kind):
            raise BadAnswer(f"{self.where} sends {reply.name} where {kind.name} is due")
        return reply

    def _hand_out(self, kind: int, number: int, payload: bytes) -> None:
        if kind == HEARTBEAT:
            return
        if number:
            # What was under way to a channel that we have given up meets nobody.
            if channel := self._channels.get(number):
                channel.take(kind, payload)
            return
        if kind != METHOD:
            raise BadAnswer(f"{self.where} sends a frame of type {kind} that belongs to no channel")
        command = decode_method(payload)
        if isinstance(command, commands.Connection.Close):
            self._transport.send(encode_method(0, make(commands.Connection.CloseOk)))
            raise refusal(command.reply_code or 0, command.reply_text)
        if isinstance(command, commands.Connection.Blocked):
            self.blocked = command.reason or "it gives no reason"
        elif isinstance(command, commands.Connection.Unblocked):
            self.blocked = None
        else:
            self._replies.append(command)
