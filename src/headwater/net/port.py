"""A port that is listened on, with or without TLS, and the work that is done for its connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.net.admission import Admission, Connection
from headwater.net.tls import ServerTls, TlsServer

if TYPE_CHECKING:
    from headwater.net.access import AccessOptions
    from headwater.net.node import Node

__all__ = ["Port"]

_BACKLOG = 1024

C = TypeVar("C", bound=Connection)


class Port(Generic[C]):
    """One listening socket; `make` makes the protocol of each connection."""

    def __init__(
        self,
        node: Node,
        access: AccessOptions,
        admission: Admission[C],
        make: Callable[[], asyncio.BaseProtocol],
        *,
        send_buffer: int | None = None,
    ) -> None:
        self._node = node
        self._admission = admission
        self._make = make
        self._send_buffer = send_buffer
        self.tls: ServerTls | None = None
        if access.tls_cert is not None:
            self.tls = ServerTls(access.tls_cert, access.tls_key, access.tls_client_ca)
        self._server: asyncio.Server | None = None
        self._tls_server: TlsServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port, which the system chooses when `port` is 0."""
        if self.tls is not None:
            self._tls_server = self._admission.tls_server = TlsServer(
                self.tls,
                self._make,
                seconds=self._node.number("headwater.authentication.timeout.ms") / 1000,
                refuse=self._admission.refusal,
                report=self._admission.report,
            )
            return await self._tls_server.start(host, port, _BACKLOG)
        self._server = await self._node.loop.create_server(self._make, host, port, backlog=_BACKLOG)
        if self._send_buffer is not None:
            for listening in self._server.sockets:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def close(self, end: Callable[[C], None]) -> None:
        """Stop accepting, end each connection, and give up what is being done for them."""
        if self._server is not None:
            self._server.close()
        if self._tls_server is not None:
            await self._tls_server.stop()
        for connection in list(self._admission.connections):
            end(connection)
        await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a connection, until it is done or the port is closed."""
        task = self._node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
