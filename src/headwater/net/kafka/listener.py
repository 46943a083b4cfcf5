"""The Kafka listener: a port, the connections to it, and the calls of the general APIs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Request
from headwater.net.kafka.connection import RECEIVE_SIZE, KafkaConnection, Slot
from headwater.net.kafka.handlers import HANDLERS
from headwater.wire.kafka.codec import encode_error_response, encode_response
from headwater.wire.kafka.errors import UnencodableAnswer
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.versions import Api, api_versions_answer, is_served, unsupported_api_versions_answer

if TYPE_CHECKING:
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

_IDLE_CHECK_SECONDS = 10.0


class KafkaListener:
    """One listening socket and its connections."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.buffer = memoryview(bytearray(RECEIVE_SIZE))
        self.max_request = node.number("socket.request.max.bytes")
        self._connections: set[KafkaConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._idle_check: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which the system chooses when `port` is 0."""
        self._server = await self.node.loop.create_server(
            lambda: KafkaConnection(self), host, port, backlog=1024
        )
        self._idle_check = self.node.loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Stop accepting, and close the connections."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def opened(self, connection: KafkaConnection) -> None:
        """Count a connection in, or refuse it."""
        self._connections.add(connection)
        self._by_host[connection.peer] += 1
        for name, count in (
            ("max.connections", len(self._connections)),
            ("max.connections.per.ip", self._by_host[connection.peer]),
        ):
            if count > self.node.number(name):
                connection.close(f"there are more connections than {name}={self.node.number(name)}")
                return

    def closed(self, connection: KafkaConnection) -> None:
        """Count a connection out."""
        self._connections.discard(connection)
        self._by_host[connection.peer] -= 1
        if not self._by_host[connection.peer]:
            del self._by_host[connection.peer]

    def serves_version(self, header: RequestHeader) -> bool:
        """Tell whether the version a request came in is one of ours."""
        return is_served(header.api_key, header.version)

    def spawn(
        self, connection: KafkaConnection, slot: Slot, header: RequestHeader, request: Request, message: Any
    ) -> None:
        """Have a general request handled, and answered in its turn."""
        if header.api_key == Api.API_VERSIONS:
            connection.reply(slot, [_api_versions(header)])
            return
        task = self.node.loop.create_task(self._run(connection, slot, header, request, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self, connection: KafkaConnection, slot: Slot, header: RequestHeader, request: Request, message: Any
    ) -> None:
        api, version, correlation = header.api_key, header.version, header.correlation_id
        try:
            try:
                answer = await HANDLERS[api](self.node, request, message)
                frame = encode_response(api, version, correlation, answer)
            except ApiError as error:
                frame = encode_error_response(api, version, correlation, error.code, error.message or None)
            except Exception:
                logger.exception("%s version %d failed", Api(api).name, version)
                frame = encode_error_response(api, version, correlation, ErrorCode.unknown_server_error)
        except UnencodableAnswer:
            connection.close(f"{Api(api).name} version {version} has no place for the error it met")
            return
        connection.reply(slot, [frame])

    def _close_idle(self) -> None:
        self._idle_check = self.node.loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)
        limit_ms = self.node.number("connections.max.idle.ms")
        if limit_ms < 0:
            return
        before = self.node.clock.monotonic_ms() - limit_ms
        for connection in list(self._connections):
            if connection.active_ms < before:
                connection.close()


def _api_versions(header: RequestHeader) -> bytes:
    if is_served(Api.API_VERSIONS, header.version):
        answer = api_versions_answer(header.version)
        return encode_response(Api.API_VERSIONS, header.version, header.correlation_id, answer)
    # A version we do not know is answered in one that everybody reads (KIP-511).
    return encode_response(Api.API_VERSIONS, 0, header.correlation_id, unsupported_api_versions_answer())
