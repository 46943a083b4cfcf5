"""AMQP's protocol byte by byte, for what no client would send. Methods are pamqp's; frames are here."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, Self

from pamqp import commands, frame
from pamqp.header import ProtocolHeader
from pamqp.heartbeat import Heartbeat

from .brokers import Broker

SECONDS = 15.0
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
BASIC = 60
PERSISTENT = b"\x10\x00\x02"
"""The properties of a message whose delivery mode is 2."""


class Closed(Exception):
    """The broker closed the connection."""


def raw_frame(kind: int, channel: int, payload: bytes, *, size: int | None = None, end: bytes = END) -> bytes:
    """Write a frame, with another size or end than is right where they are given."""
    return struct.pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


def method(command: Any, channel: int = 0) -> bytes:
    """Write a method frame."""
    return bytes(frame.marshal(command, channel))


def header(size: int, channel: int = 1, *, class_id: int = BASIC, properties: bytes = b"\0\0") -> bytes:
    """Write a content header that announces a body of this size."""
    return raw_frame(HEADER, channel, struct.pack(">HHQ", class_id, 0, size) + properties)


def body(payload: bytes, channel: int = 1) -> bytes:
    """Write a frame of content."""
    return raw_frame(BODY, channel, payload)


def publish(routing_key: str, payload: bytes, channel: int = 1) -> bytes:
    """Write a message to the default exchange."""
    asked = commands.Basic.Publish(exchange="", routing_key=routing_key)
    return method(asked, channel) + header(len(payload), channel) + body(payload, channel)


class Raw:
    """One connection to a broker, as far as the test has taken it."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=SECONDS)
        self._stream = self._socket.makefile("rb")

    def send(self, *data: bytes) -> None:
        """Send bytes as they are; a broker that has closed already is no surprise."""
        with suppress(ConnectionError):
            self._socket.sendall(b"".join(data))

    def receive(self) -> tuple[int, Any]:
        """Receive a frame: the channel, and what pamqp makes of it."""
        raw = self.frame()
        if raw.startswith(b"AMQP"):
            return 0, ProtocolHeader(*raw[5:])
        _consumed, channel, found = frame.unmarshal(raw)
        return channel, found

    def frame(self) -> bytes:
        """Receive a frame as it is, or the protocol header that may come in its place."""
        try:
            head = self._stream.read(7)
            if len(head) < 7:
                raise Closed
            rest = 1 if head.startswith(b"AMQP") else struct.unpack_from(">I", head, 3)[0] + 1
            return head + self._stream.read(rest)
        except ConnectionError as error:
            raise Closed from error

    def some(self) -> bytes:
        """Receive bytes as they come, at least one."""
        data = self._stream.read1(1 << 18)
        if not data:
            raise Closed
        return data

    def expect(self, kind: type[Any], channel: int = 0) -> Any:
        """Receive a frame of this kind on this channel, passing over heartbeats."""
        while True:
            where, found = self.receive()
            if not isinstance(found, Heartbeat):
                break
        assert isinstance(found, kind), f"expected {kind.__name__}, got {found!r}: {dict(found)}"
        assert where == channel
        return found

    def call(self, command: Any, answer: type[Any], channel: int = 0) -> Any:
        """Send a method and receive its answer."""
        self.send(method(command, channel))
        return self.expect(answer, channel)

    def start(self, **fields: Any) -> Any:
        """Send the protocol header, answer connection.start, and return what the broker said of itself."""
        self.send(PROTOCOL_HEADER)
        said = self.expect(commands.Connection.Start)
        answer: dict[str, Any] = {"client_properties": {}, "mechanism": "PLAIN", "response": "\0guest\0guest"}
        self.send(method(commands.Connection.StartOk(**(answer | fields))))
        return said

    def tune(self, **fields: Any) -> Any:
        """Go on to connection.tune, answer with other values where they are given, and return it."""
        self.start()
        asked = self.expect(commands.Connection.Tune)
        answer = {"channel_max": asked.channel_max, "frame_max": asked.frame_max, "heartbeat": 0}
        self.send(method(commands.Connection.TuneOk(**(answer | fields))))
        return asked

    def open(self, **fields: Any) -> Self:
        """Go on to an open connection."""
        self.tune(**fields)
        self.call(commands.Connection.Open(), commands.Connection.OpenOk)
        return self

    def channel(self, number: int = 1) -> Self:
        """Open a channel."""
        self.call(commands.Channel.Open(), commands.Channel.OpenOk, number)
        return self

    def ended(self) -> None:
        """Receive frames until the broker closes the connection."""
        with suppress(Closed):
            while True:
                self.receive()

    def seconds(self, limit: float) -> None:
        """Wait no longer than this for the next frames."""
        self._socket.settimeout(limit)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
