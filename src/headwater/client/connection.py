"""One connection to one broker: frames out, frames in, in order.

It is confined to one thread. Requests may be sent ahead of reading their answers, which come in the
order of the requests; whoever sends ahead receives in that order.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping
from typing import Any

from headwater.client.errors import AuthenticationFailed, BadAnswer, Unreachable
from headwater.client.messages import decode_response, encode_request
from headwater.client.sasl import exchange
from headwater.client.tls import tls_context
from headwater.core.urls import KafkaUrl
from headwater.wire.kafka.versions import Api

__all__ = ["Connection"]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""How long a broker may be silent when an answer is due; longer than any long poll of ours."""
MAX_RESPONSE = 256 * 1024 * 1024
_SASL_HANDSHAKE_VERSION = 1
_SASL_AUTHENTICATE_VERSION = 2


class Connection:
    """A connection that is authenticated as its address says."""

    def __init__(self, host: str, port: int, url: KafkaUrl, client_id: str = "headwater") -> None:
        self.where = f"{host}:{port}"
        self._client_id = client_id.encode()
        self._correlation = 0
        self._awaited: deque[int] = deque()
        self._size = bytearray(4)
        tls = tls_context(url.ca, url.cert, url.key) if url.tls else None
        try:
            self._socket = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise Unreachable(f"no broker answers at {self.where}: {error}") from error
        self._socket.settimeout(ANSWER_SECONDS)
        if url.user is not None:
            try:
                self._authenticate(url)
            except BaseException:
                self.close()
                raise

    def call(self, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        """Send a request and return its response as kio's entity."""
        correlation = self.next_correlation()
        self.send(encode_request(api_key, version, correlation, self._client_id, body), correlation)
        return decode_response(api_key, version, bytes(self.receive()))

    @property
    def client_id(self) -> bytes:
        """How requests are signed, for those who encode their own."""
        return self._client_id

    def next_correlation(self) -> int:
        """Return a number for the next request."""
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return self._correlation

    def send(self, frame: bytes | bytearray, correlation: int) -> None:
        """Send a whole frame; its answer is to be received."""
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise Unreachable(f"{self.where} does not take a request: {error}") from error
        self._awaited.append(correlation)

    def receive(self, into: memoryview | None = None) -> memoryview:
        """Return the next response without its size: in `into` if it fits there, else in fresh memory."""
        self._fill(memoryview(self._size))
        size = int.from_bytes(self._size, "big", signed=True)
        if not 4 <= size <= MAX_RESPONSE:
            raise BadAnswer(
                f"{self.where} answers with {size} bytes: is it a Kafka listener, and without TLS?"
            )
        answer = memoryview(bytearray(size)) if into is None or len(into) < size else into[:size]
        self._fill(answer)
        if int.from_bytes(answer[:4], "big") != self._awaited.popleft():
            raise BadAnswer(f"{self.where} answered another request than the one it was sent")
        return answer

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _fill(self, view: memoryview) -> None:
        position = 0
        try:
            while position < len(view):
                count = self._socket.recv_into(view[position:])
                if not count:
                    raise Unreachable(
                        f"{self.where} closed the connection: it stopped, or wants tls=true or a user"
                    )
                position += count
        except OSError as error:
            raise Unreachable(f"{self.where} does not answer: {error}") from error

    def _authenticate(self, url: KafkaUrl) -> None:
        mechanism = url.mechanism or ""
        steps = exchange(mechanism, url.user or "", url.password or "")
        answer = self.call(Api.SASL_HANDSHAKE, _SASL_HANDSHAKE_VERSION, {"mechanism": mechanism})
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "no mechanism at all"
            raise AuthenticationFailed(f"{self.where} does not take mechanism={mechanism}, but {offered}")
        message = next(steps)
        while True:
            answer = self.call(Api.SASL_AUTHENTICATE, _SASL_AUTHENTICATE_VERSION, {"auth_bytes": message})
            if answer.error_code:
                reason = answer.error_message or "the password is refused"
                raise AuthenticationFailed(f"{self.where} refuses user {url.user!r}: {reason}")
            try:
                message = steps.send(answer.auth_bytes)
            except StopIteration:
                return
