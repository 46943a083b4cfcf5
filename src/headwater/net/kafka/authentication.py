"""The gate before a connection: nothing but the way to authenticate, until the client has.

    VERSIONS    ApiVersions, at most once, or SaslHandshake
    HANDSHAKE   SaslHandshake, which names the mechanism
    TOKENS      the exchange: SaslAuthenticate requests after SaslHandshake version 1, bare tokens after version 0
    BUSY        a password is being checked; what came with it is held, and nothing more is read
    OVER        the client is in, or it failed, and is told so and sent away after a delay

The states, and the answers to what does not belong in one, are those of Kafka's SaslServerAuthenticator.
The connection's own path knows nothing of this: while the gate is there, the connection counts as taken
by one request, and everything that comes is handed here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headwater.broker.access.errors import AuthenticationFailed
from headwater.broker.access.plain import PLAIN, PlainExchange
from headwater.broker.access.scram import ScramExchange, ScramMechanism
from headwater.core.errors import ErrorCode
from headwater.wire.kafka.codec import decode_request, encode_error_response, encode_response
from headwater.wire.kafka.errors import UnencodableAnswer
from headwater.wire.kafka.frames import RequestHeader, parse_header
from headwater.wire.kafka.versions import Api, is_served

if TYPE_CHECKING:
    from headwater.broker.access.users import Users
    from headwater.net.kafka.connection import KafkaConnection
    from headwater.net.kafka.listener import KafkaListener

logger = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_NONCE_BYTES = 24


class Exchange(Protocol):
    """The server's side of a mechanism: tokens in, tokens out, until it is complete or fails."""

    user: str | None
    complete: bool
    slow: bool

    def answer(self, token: bytes) -> bytes:
        """Take the client's next token, and return the one to answer with."""


def new_exchange(mechanism: str, users: Users) -> Exchange:
    """Return an exchange of a mechanism that is offered."""
    if mechanism == PLAIN:
        return PlainExchange(users.any_scram)
    for scram in ScramMechanism:
        if scram.sasl_name == mechanism:
            nonce = secrets.token_urlsafe(_NONCE_BYTES)
            return ScramExchange(scram, partial(users.scram, scram), nonce)
    raise ValueError(f"{mechanism} is not a mechanism")


class _State(Enum):
    VERSIONS = "before ApiVersions"
    HANDSHAKE = "before SaslHandshake"
    TOKENS = "during authentication"
    BUSY = "while a password is checked"
    OVER = "after authentication"


class Authentication:
    """One connection's authentication."""

    __slots__ = ("_connection", "_exchange", "_held", "_listener", "_mechanism", "_state", "_wrapped")

    def __init__(self, connection: KafkaConnection, listener: KafkaListener) -> None:
        self._connection = connection
        self._listener = listener
        self._state = _State.VERSIONS
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._wrapped = False
        self._held: list[bytes] = []

    def take(self, frame: bytes) -> None:
        """Take what came: a request, or a bare token."""
        if self._state is _State.BUSY:
            self._held.append(frame)
        elif self._state is _State.TOKENS and not self._wrapped:
            self._evaluate(None, frame)
        elif self._state is not _State.OVER:
            header = parse_header(frame, 0, len(frame))
            self._listener.node.counters.requests[header.api_key] += 1
            self._take_request(header, frame)

    def _take_request(self, header: RequestHeader, frame: bytes) -> None:
        api = header.api_key
        if self._state is _State.TOKENS:
            if api == Api.SASL_AUTHENTICATE:
                message = decode_request(api, header.version, frame, header.payload)
                self._evaluate(header, message.auth_bytes)
                return
        elif api == Api.SASL_HANDSHAKE:
            self._shake_hands(header, frame)
            return
        elif api == Api.API_VERSIONS and self._state is _State.VERSIONS:
            message = None
            if is_served(api, header.version):
                message = decode_request(api, header.version, frame, header.payload)
                self._state = _State.HANDSHAKE
            self._connection.write(self._listener.api_versions(header, message))
            return
        reason = f"{Api(api).name} is not for clients that have not authenticated"
        # Before the handshake Kafka closes without a word; during the exchange it answers.
        refusal = _refusal(header) if self._state is _State.TOKENS else None
        self._fail(reason, refusal)

    def _shake_hands(self, header: RequestHeader, frame: bytes) -> None:
        message = decode_request(header.api_key, header.version, frame, header.payload)
        offered = self._listener.mechanisms
        known = message.mechanism in offered
        code = ErrorCode.none if known else ErrorCode.unsupported_sasl_mechanism
        answer = {"error_code": code, "mechanisms": offered}
        response = encode_response(header.api_key, header.version, header.correlation_id, answer)
        if not known:
            self._count(header.api_key, code)
            reason = f"the SASL mechanism {message.mechanism!r:.40} is not one of {', '.join(offered)}"
            self._fail(reason, response)
            return
        self._mechanism = message.mechanism
        self._exchange = new_exchange(message.mechanism, self._listener.node.users)
        self._wrapped = header.version > 0
        self._state = _State.TOKENS
        self._connection.write(response)

    def _evaluate(self, header: RequestHeader | None, token: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None, "the handshake chose one"
        if exchange.slow:
            self._state = _State.BUSY
            self._connection.pause()
            self._listener.run_task(self._evaluate_aside(exchange, header, token))
            return
        try:
            answer = exchange.answer(token)
        except AuthenticationFailed as error:
            self._refuse(header, error)
        else:
            self._succeed(exchange, header, answer)

    async def _evaluate_aside(self, exchange: Exchange, header: RequestHeader | None, token: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(None, exchange.answer, token)
        except AuthenticationFailed as error:
            self._refuse(header, error)
        else:
            self._state = _State.TOKENS
            self._succeed(exchange, header, answer)

    def _succeed(self, exchange: Exchange, header: RequestHeader | None, answer: bytes) -> None:
        if header is None:
            response = _SIZE.pack(len(answer)) + answer
        else:
            fields = {
                "error_code": ErrorCode.none,
                "error_message": "",
                "auth_bytes": answer,
                "session_lifetime": 0,
            }
            response = encode_response(header.api_key, header.version, header.correlation_id, fields)
        self._connection.write(response)
        if exchange.complete:
            self._state = _State.OVER
            logger.debug(
                "%s from %s is authenticated with %s", exchange.user, self._connection.peer, self._mechanism
            )
            self._connection.user = exchange.user or self._connection.user
            self._connection.admit(self._held)

    def _refuse(self, header: RequestHeader | None, error: AuthenticationFailed) -> None:
        who = "a client" if error.user is None else f"{error.user!r:.80}"
        reason = f"{who} did not authenticate with {self._mechanism}: {error.reason}"
        self._count(Api.SASL_AUTHENTICATE, ErrorCode.sasl_authentication_failed)
        if header is None:
            self._fail(reason, None)
            return
        fields = {
            "error_code": ErrorCode.sasl_authentication_failed,
            "error_message": str(error),
            "auth_bytes": b"",
            "session_lifetime": 0,
        }
        self._fail(reason, encode_response(header.api_key, header.version, header.correlation_id, fields))

    def _fail(self, reason: str, response: bytes | None) -> None:
        self._state = _State.OVER
        self._held.clear()
        self._connection.dismiss(reason, response, self._listener.failure_delay)

    def _count(self, api: int, code: ErrorCode) -> None:
        self._listener.node.counters.errors[api, int(code)] += 1


def _refusal(header: RequestHeader) -> bytes | None:
    if not is_served(header.api_key, header.version):
        return None
    try:
        return encode_error_response(
            header.api_key, header.version, header.correlation_id, ErrorCode.illegal_sasl_state
        )
    except UnencodableAnswer:
        return None
