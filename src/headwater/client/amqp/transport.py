"""Bytes to and from a broker, over TCP or TLS.

The socket does not block, so that sending reads what arrives meanwhile: a broker that waits for its answers
to be read before it reads on, and a client that waits to be read, would otherwise wait for each other.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque

from headwater.client.errors import Unreachable
from headwater.client.tls import tls_context
from headwater.core.urls import AmqpUrl

__all__ = ["Transport"]

CONNECT_SECONDS = 5.0
_CHUNK = 256 * 1024
_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A broker whose machine is gone is noticed within a minute, without heartbeats of a thread of our own."""


class Transport:
    """One connected socket; confined to one thread."""

    def __init__(self, url: AmqpUrl) -> None:
        self._where = url.address
        self._arrived: deque[bytes] = deque()
        self._broken: str | None = None
        tls = tls_context(url.ca, url.cert, url.key) if url.tls else None
        try:
            connected = socket.create_connection((url.host, url.port), timeout=CONNECT_SECONDS)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in _KEEPALIVE.items():
                    connected.setsockopt(socket.IPPROTO_TCP, option, value)
                self._socket = tls.wrap_socket(connected, server_hostname=url.host) if tls else connected
            except BaseException:
                connected.close()
                raise
        except OSError as error:
            raise Unreachable(f"no broker answers at {self._where}: {error}") from error
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def send(self, data: bytes | bytearray) -> None:
        """Send all of it. A connection that breaks is told by `receive`, after what had arrived."""
        view = memoryview(data)
        while view and self._broken is None:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLIN | select.POLLOUT, None)
                self._take()
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, None)
                self._take()
            except OSError as error:
                self._take()
                self._broken = str(error)

    def receive(self, seconds: float | None) -> bytes | None:
        """Return what has arrived, or None where nothing has after that time; None waits for ever."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._take()
        # What can be read may be TLS's own, or a part of a record: nothing has arrived with it.
        while not self._arrived and self._broken is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._wait(select.POLLIN, left)
            self._take()
        if self._arrived:
            return self._arrived.popleft()
        raise Unreachable(f"{self._where} closed the connection: {self._broken}")

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _wait(self, events: int, seconds: float | None) -> None:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        self._poll.modify(self._socket, events)
        self._poll.poll(None if seconds is None else max(int(seconds * 1000), 0))

    def _take(self) -> None:
        """Read once, where there is something."""
        if self._broken is not None:
            return
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._broken = str(error)
            return
        if data:
            self._arrived.append(data)
        else:
            self._broken = "it stopped, or this is no AMQP listener, or one that wants amqps://"
