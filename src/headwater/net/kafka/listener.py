"""The Kafka listener: a port, the connections to it, and the calls of the general APIs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headwater.core.errors import ApiError, ErrorCode
from headwater.net.access import AccessOptions
from headwater.net.admission import Admission
from headwater.net.kafka.api import Request
from headwater.net.kafka.connection import RECEIVE_SIZE, KafkaConnection, Slot
from headwater.net.kafka.handlers import HANDLERS
from headwater.net.kafka.memory import RequestMemory, ResponseMemory
from headwater.net.port import Port
from headwater.wire.kafka.codec import encode_error_response, encode_response
from headwater.wire.kafka.errors import UnencodableAnswer
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.versions import Api, api_versions_answer, is_served, unsupported_api_versions_answer

if TYPE_CHECKING:
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

_IDLE_CHECK_SECONDS = 10.0
_STRANGER_CHECK_SECONDS = 1.0
# What a client may call itself (KIP-511), so that it can go into metrics and logs.
_SHOWABLE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class KafkaListener:
    """One listening socket and its connections."""

    def __init__(self, node: Node, access: AccessOptions | None = None) -> None:
        self.node = node
        self.access = access or AccessOptions()
        self.mechanisms = self.access.mechanisms(node.settings["sasl.enabled.mechanisms"])
        self.buffer = memoryview(bytearray(RECEIVE_SIZE))
        self.max_request = node.number("socket.request.max.bytes")
        self.request_memory = RequestMemory(node.number("queued.max.request.bytes"), node.clock, node.loop)
        self.response_memory = ResponseMemory(node.number("headwater.fetch.memory.bytes"), node.clock)
        self.max_before = node.number("sasl.server.max.receive.size")
        self.failure_delay = node.number("connection.failed.authentication.delay.ms") / 1000
        self._admission = Admission[KafkaConnection](node, logger)
        self.port = Port(node, self.access, self._admission, lambda: KafkaConnection(self))
        self._idle_check: asyncio.TimerHandle | None = None
        self._stranger_check: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which the system chooses when `port` is 0."""
        chosen = await self.port.open(host, port)
        self._idle_check = self.node.loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)
        if self.access.sasl:
            self._close_slow()
        return chosen

    async def stop(self) -> None:
        """Stop accepting, and close the connections."""
        for timer in (self._idle_check, self._stranger_check):
            if timer is not None:
                timer.cancel()
        await self.port.close(KafkaConnection.close)

    def opened(self, connection: KafkaConnection) -> None:
        """Count a connection in, or refuse it."""
        refusal = self._admission.enter(connection, stranger=self.access.sasl)
        if self.access.tls_client_ca is not None:
            connection.user = connection.certificate_name()
        if refusal is not None:
            connection.close(refusal)
        elif self.node.throttle.active:
            wait_ms = self.node.throttle.connected(connection.peer, connection.active_ms)
            if wait_ms:
                reason = "its address opens connections faster than its quota connection_creation_rate"
                connection.dismiss(reason, None, wait_ms / 1000)

    def admitted(self, connection: KafkaConnection) -> None:
        """Know that a client has authenticated."""
        self._admission.admitted(connection)

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._admission.connections)

    def closed(self, connection: KafkaConnection) -> None:
        """Count a connection out."""
        self._admission.leave(connection)

    def spawn(
        self, connection: KafkaConnection, slot: Slot, header: RequestHeader, request: Request, message: Any
    ) -> None:
        """Have a general request handled, and answered in its turn."""
        if header.api_key == Api.API_VERSIONS:
            connection.reply(slot, [_api_versions(header, message)])
            return
        self.run_task(self._run(connection, slot, header, request, message))

    def api_versions(self, header: RequestHeader, message: Any) -> bytes:
        """Return the response to ApiVersions, which everybody is given."""
        return _api_versions(header, message)

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something for a connection, until it is done or the listener stops."""
        self.port.run(work)

    async def _run(
        self, connection: KafkaConnection, slot: Slot, header: RequestHeader, request: Request, message: Any
    ) -> None:
        api, version, correlation = header.api_key, header.version, header.correlation_id
        try:
            try:
                answer = await HANDLERS[api](self.node, request, message)
                frame = encode_response(api, version, correlation, answer)
                if throttle_ms := answer.get("throttle_time"):
                    connection.mute(throttle_ms)
                if code := answer.get("error_code"):
                    self.node.counters.errors[api, int(code)] += 1
            except ApiError as error:
                self.node.counters.errors[api, int(error.code)] += 1
                frame = encode_error_response(api, version, correlation, error.code, error.message or None)
            except Exception:
                self.node.counters.errors[api, int(ErrorCode.unknown_server_error)] += 1
                fields = {"peer": request.client_host, "client_id": request.client_id}
                logger.exception("%s version %d failed", Api(api).name, version, extra=fields)
                frame = encode_error_response(api, version, correlation, ErrorCode.unknown_server_error)
        except UnencodableAnswer:
            connection.close(f"{Api(api).name} version {version} has no place for the error it met")
            return
        connection.reply(slot, [frame])

    def _close_slow(self) -> None:
        self._stranger_check = self.node.loop.call_later(_STRANGER_CHECK_SECONDS, self._close_slow)
        for connection in self._admission.take_overdue():
            connection.close("it did not authenticate in time (headwater.authentication.timeout.ms)")

    def _close_idle(self) -> None:
        self._idle_check = self.node.loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)
        limit_ms = self.node.number("connections.max.idle.ms")
        if limit_ms < 0:
            return
        before = self.node.clock.monotonic_ms() - limit_ms
        for connection in list(self._admission.connections):
            if connection.active_ms < before:
                connection.close()


def _api_versions(header: RequestHeader, message: Any) -> bytes:
    if is_served(Api.API_VERSIONS, header.version):
        named = (getattr(message, f"client_software_{part}", "none") for part in ("name", "version"))
        if not all(_SHOWABLE.fullmatch(text) for text in named):
            return encode_error_response(
                Api.API_VERSIONS, header.version, header.correlation_id, ErrorCode.invalid_request
            )
        answer = api_versions_answer(header.version)
        return encode_response(Api.API_VERSIONS, header.version, header.correlation_id, answer)
    # A version we do not know is answered in one that everybody reads (KIP-511).
    return encode_response(Api.API_VERSIONS, 0, header.correlation_id, unsupported_api_versions_answer())
