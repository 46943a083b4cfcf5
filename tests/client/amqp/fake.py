"""A broker that follows a script, for what a real one does not do on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from pamqp import commands
from pamqp.base import Frame as Command

from headwater.client.amqp.frames import Frames
from headwater.core.urls import AmqpUrl
from headwater.record.amqp.message import pack_frames
from headwater.record.amqp.properties import NO_PROPERTIES
from headwater.wire.amqp.constants import BODY, FRAME_MAX, HEADER, METHOD, PROTOCOL_HEADER
from headwater.wire.amqp.methods import decode_method, encode_method, make

C = TypeVar("C", bound=Command)
SERVER = {"product": "Fake", "version": "1.0", "capabilities": {"publisher_confirms": True}}


class Peer:
    """The broker's end of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._frames = Frames("the client")
        self._waiting: list[tuple[int, int, bytes]] = []

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def read(self, count: int) -> bytes:
        """Read bytes, before any frame."""
        data = b""
        while len(data) < count:
            data += self._socket.recv(count - len(data))
        return data

    def send(self, kind: type[Command], channel: int = 1, **fields: Any) -> None:
        """Send a method."""
        self.raw(encode_method(channel, make(kind, **fields)))

    def content(self, body: bytes, properties: bytes = NO_PROPERTIES, channel: int = 1) -> None:
        """Send what belongs to the method just sent."""
        self.raw(pack_frames(channel, properties, body, FRAME_MAX))

    def expect(self, kind: type[C]) -> C:
        """Return the next method, which must be one of this kind."""
        frame_type, _, payload = self._next()
        assert frame_type == METHOD, frame_type
        command = decode_method(payload)
        assert isinstance(command, kind), command.name
        return command

    def message(self) -> tuple[commands.Basic.Publish, bytes, bytes]:
        """Return the next publish, with its properties and its body."""
        method = self.expect(commands.Basic.Publish)
        frame_type, _, header = self._next()
        assert frame_type == HEADER
        size, body = int.from_bytes(header[4:12], "big"), b""
        while len(body) < size:
            frame_type, _, part = self._next()
            assert frame_type == BODY
            body += part
        return method, header[12:], body

    def handshake(self, **tune: int) -> commands.Connection.StartOk:
        """Open the connection, and return what the client said of itself."""
        assert self.read(len(PROTOCOL_HEADER)) == PROTOCOL_HEADER
        self.send(
            commands.Connection.Start,
            0,
            version_major=0,
            version_minor=9,
            server_properties=SERVER,
            mechanisms="AMQPLAIN PLAIN",
            locales="en_US",
        )
        said = self.expect(commands.Connection.StartOk)
        self.send(commands.Connection.Tune, 0, **{"channel_max": 2047, "frame_max": FRAME_MAX} | tune)
        self.expect(commands.Connection.TuneOk)
        self.expect(commands.Connection.Open)
        self.send(commands.Connection.OpenOk, 0)
        return said

    def open_channel(self) -> None:
        """Answer the opening of a channel."""
        self.expect(commands.Channel.Open)
        self.send(commands.Channel.OpenOk)

    def confirm_select(self) -> None:
        """Answer the wish for confirms."""
        self.expect(commands.Confirm.Select)
        self.send(commands.Confirm.SelectOk)

    def goodbye(self) -> None:
        """Answer the end of the connection."""
        self.expect(commands.Connection.Close)
        self.send(commands.Connection.CloseOk, 0)

    def _next(self) -> tuple[int, int, bytes]:
        while not self._waiting:
            data = self._socket.recv(65536)
            assert data, "the client hung up"
            self._waiting += self._frames.feed(data)
        return self._waiting.pop(0)


class FakeBroker:
    """Accepts one connection and runs a script on it; the script's failures fail the test."""

    def __init__(self, script: Callable[[Peer], object]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(10)
        self._script = script
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.url = AmqpUrl("127.0.0.1", self._listener.getsockname()[1])

    def _run(self) -> None:
        try:
            connected, _ = self._listener.accept()
            with connected:
                connected.settimeout(10)
                self._script(Peer(connected))
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(20)
        self._listener.close()
        assert not self._thread.is_alive()
        if self._error is not None and error is None:
            raise self._error
