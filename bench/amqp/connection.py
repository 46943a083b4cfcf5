"""A connection with one channel, as plain as can be: commands and their answers one by one."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self, TypeVar

from pamqp import base, commands, frame, header

from bench.clients import ClientError

CHANNEL = 1
ANSWER_SECONDS = 30.0
_FRAME_HEADER = 7
_FRAME_END = 1

Answer = TypeVar("Answer", bound=base.Frame)


class Connection:
    """An open connection to a broker on this machine, as guest, with its first channel open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(header.ProtocolHeader().marshal())
        self.expect(commands.Connection.Start)
        credentials = "\0guest\0guest"
        self.send(commands.Connection.StartOk({}, "PLAIN", credentials, "en_US"), channel=0)
        tune = self.expect(commands.Connection.Tune)
        self.send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), channel=0)
        self.send(commands.Connection.Open("/"), channel=0)
        self.expect(commands.Connection.OpenOk)
        self.send(commands.Channel.Open())
        self.expect(commands.Channel.OpenOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, command: base.Frame, channel: int = CHANNEL) -> None:
        """Send a command."""
        self.socket.sendall(frame.marshal(command, channel))

    def expect(self, kind: type[Answer]) -> Answer:
        """Read one frame, which must be this answer."""
        found = self.read_frame()
        if not isinstance(found, kind):
            raise ClientError(f"the broker did not answer with {kind.name} but with {described(found)}")
        return found

    def read_frame(self) -> frame.FrameTypes:
        """Read one frame, whatever it is."""
        start = self.read(_FRAME_HEADER)
        size = frame.frame_parts(start)[2] or 0
        return frame.unmarshal(start + self.read(size + _FRAME_END))[2]

    def read(self, size: int) -> bytes:
        """Read exactly that many bytes."""
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ClientError("the broker closed a connection of the benchmark")
            data += chunk
        return bytes(data)


def described(found: frame.FrameTypes) -> str:
    """Say what a frame is, with the broker's reason where it closes something."""
    if isinstance(found, commands.Connection.Close | commands.Channel.Close):
        return f"{found.name}: {found.reply_text}"
    return found.name
