"""The server's side of a connection's beginning, as a state machine without a socket.

    client                      here              the shell
    protocol header             start             sends it
    connection.start-ok         start_ok          checks the credentials; tune sends, or refuse_login
    connection.tune-ok          tune_ok           takes the limits that hold from here on
    connection.open             open              looks for the virtual host; open_ok sends
    anything

A method that is not due raises CHANNEL_ERROR, as in RabbitMQ; every error here ends the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from pamqp import commands
from pamqp.base import Frame

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Table, decode_pairs
from headwater.wire.amqp.constants import (
    CHANNEL_MAX,
    CONNECTION,
    CONNECTION_TUNE,
    FRAME_MAX,
    FRAME_MIN_SIZE,
    HEARTBEAT_SECONDS,
    PROTOCOL_HEADER,
)
from headwater.wire.amqp.methods import encode_close, encode_method, make

__all__ = [
    "AMQPLAIN",
    "CAPABILITIES",
    "PLAIN",
    "Credentials",
    "Handshake",
    "Stage",
    "Tuning",
    "server_properties",
]

PLAIN = "PLAIN"
AMQPLAIN = "AMQPLAIN"

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
"""The extensions that the server says it has, RabbitMQ's own."""

_PRODUCT, _PRODUCT_VERSION = "RabbitMQ", "3.10.8"
"""Whose behaviour this is. kombu reads it, and Celery through it: unless the product is RabbitMQ of a version
from 3.3 to 3.x, a worker takes basic.qos to mean what it meant before, never widens the prefetch of its
consumers, and stands still as soon as enough of its tasks wait for their countdown."""

_OLDER_HEADER = b"AMQP\x01\x01\x00\x09"
"""The header of 0-9, whose clients RabbitMQ treats as 0-9-1's."""
_CHANNEL_MIN = 1
_TUNE_METHOD = CONNECTION_TUNE & 0xFFFF

Command = TypeVar("Command", bound=Frame)


class Stage(Enum):
    """How far the handshake is; errors show the values, which are named as in RabbitMQ."""

    WAITING = "pre_init"
    STARTING = "starting"
    SECURING = "securing"
    TUNING = "tuning"
    OPENING = "opening"
    AUTHORIZING = "authorizing"
    RUNNING = "running"
    CLOSED = "closed"


class Credentials(NamedTuple):
    """Who the client says it is."""

    user: str
    password: str
    mechanism: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, mechanism={self.mechanism!r})"


class Tuning(NamedTuple):
    """What a connection may use; zero is no limit, and no heartbeats."""

    channel_max: int = CHANNEL_MAX
    frame_max: int = FRAME_MAX
    heartbeat: int = HEARTBEAT_SECONDS


def server_properties(version: str) -> Table:
    """Make what connection.start says of the server: RabbitMQ's product and version, and our name beside them."""
    return {
        "capabilities": dict.fromkeys(CAPABILITIES, True),
        "cluster_name": "headwater",
        "information": f"Headwater {version}, which behaves as {_PRODUCT} {_PRODUCT_VERSION} does",
        "platform": f"Headwater {version}",
        "product": _PRODUCT,
        "version": _PRODUCT_VERSION,
    }


class Handshake:
    """One connection from its first bytes to connection.open-ok."""

    def __init__(
        self, properties: Table, mechanisms: Sequence[str] = (PLAIN, AMQPLAIN), proposed: Tuning | None = None
    ) -> None:
        self.stage = Stage.WAITING
        self.capabilities: frozenset[str] = frozenset()
        """The extensions that the client says it understands."""
        self.client_properties: Table = {}
        self.proposed = proposed or Tuning()
        self._properties = properties
        self._mechanisms = tuple(mechanisms)
        self._mechanism = ""

    @property
    def close(self) -> bool:
        """Whether the connection is to be closed once what is to be sent has been."""
        return self.stage is Stage.CLOSED

    def start(self, protocol_header: bytes) -> bytes:
        """Take the client's first eight bytes; return connection.start.

        For another protocol return our own header, which says what we speak, and `close`.
        """
        self._expect(Stage.WAITING)
        if protocol_header not in (PROTOCOL_HEADER, _OLDER_HEADER):
            self.stage = Stage.CLOSED
            return PROTOCOL_HEADER
        self.stage = Stage.STARTING
        start = make(
            commands.Connection.Start,
            version_major=0,
            version_minor=9,
            server_properties=self._properties,
            mechanisms=" ".join(self._mechanisms),
            locales="en_US",
        )
        return encode_method(0, start)

    def start_ok(self, command: Frame) -> Credentials:
        """Take the client's properties and credentials, which the shell is to check."""
        answer = self._due(Stage.STARTING, command, commands.Connection.StartOk)
        if answer.mechanism not in self._mechanisms:
            raise AmqpError(
                ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{answer.mechanism}'"
            )
        self._mechanism = answer.mechanism
        self.client_properties = answer.client_properties
        self.capabilities = _capabilities(answer.client_properties)
        response = _raw(answer.response)
        credentials = _plain(response) if answer.mechanism == PLAIN else _amqplain(response)
        self.stage = Stage.SECURING
        return credentials

    def refuse_login(self) -> bytes:
        """Return what tells the client that its credentials are wrong; nothing, if it would not understand."""
        self._expect(Stage.SECURING)
        self.stage = Stage.CLOSED
        if "authentication_failure_close" not in self.capabilities:
            return b""
        refused = (
            f"Login was refused using authentication mechanism {self._mechanism}. "
            "For details see the broker logfile."
        )
        return encode_close(0, AmqpError(ReplyCode.ACCESS_REFUSED, refused))

    def tune(self) -> bytes:
        """Return connection.tune, which also says that the credentials are right."""
        self._expect(Stage.SECURING)
        self.stage = Stage.TUNING
        return encode_method(0, make(commands.Connection.Tune, **self.proposed._asdict()))

    def tune_ok(self, command: Frame) -> Tuning:
        """Take what the client wants; return what holds from here on.

        As in RabbitMQ the client may ask for less than was proposed, not for more, and zero is more; its
        heartbeat counts whatever it is.
        """
        answer = self._due(Stage.TUNING, command, commands.Connection.TuneOk)
        _check_negotiated("frame_max", answer.frame_max, FRAME_MIN_SIZE, self.proposed.frame_max)
        _check_negotiated("channel_max", answer.channel_max, _CHANNEL_MIN, self.proposed.channel_max)
        self.stage = Stage.OPENING
        return Tuning(answer.channel_max, answer.frame_max, answer.heartbeat)

    def open(self, command: Frame) -> str:
        """Return the virtual host that the client asks for."""
        answer = self._due(Stage.OPENING, command, commands.Connection.Open)
        self.stage = Stage.AUTHORIZING
        return answer.virtual_host

    def open_ok(self) -> bytes:
        """Return connection.open-ok: the virtual host is there, channels may be opened."""
        self._expect(Stage.AUTHORIZING)
        self.stage = Stage.RUNNING
        return encode_method(0, make(commands.Connection.OpenOk))

    def _due(self, stage: Stage, command: Frame, expected: type[Command]) -> Command:
        if self.stage is not stage or not isinstance(command, expected):
            text = f"unexpected method in connection state {self.stage.value}"
            raise AmqpError(ReplyCode.CHANNEL_ERROR, text, command.index >> 16, command.index & 0xFFFF)
        return command

    def _expect(self, stage: Stage) -> None:
        if self.stage is not stage:
            raise RuntimeError(f"the handshake is {self.stage.value}, not {stage.value}")


def _capabilities(properties: Table) -> frozenset[str]:
    capabilities = properties.get("capabilities")
    if not isinstance(capabilities, dict):
        return frozenset()
    return frozenset(name for name, value in capabilities.items() if value is True)


def _plain(response: bytes) -> Credentials:
    # RFC 4616: authorization identity, NUL, user, NUL, password. The first is ignored: nobody acts for another.
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise _unreadable(f"a {PLAIN} response has a user and a password, each after a zero byte")
    return _credentials(parts[1], parts[2], PLAIN)


def _amqplain(response: bytes) -> Credentials:
    table = decode_pairs(response)
    if "LOGIN" not in table or "PASSWORD" not in table:
        raise _unreadable(f"{AMQPLAIN} auth info is missing LOGIN or PASSWORD field")
    user, password = table["LOGIN"], table["PASSWORD"]
    if not isinstance(user, str | bytes) or not isinstance(password, str | bytes):
        raise _unreadable(f"{AMQPLAIN} auth info uses unsupported type for LOGIN or PASSWORD field")
    return _credentials(_raw(user), _raw(password), AMQPLAIN)


def _credentials(user: bytes, password: bytes, mechanism: str) -> Credentials:
    try:
        return Credentials(user.decode(), password.decode(), mechanism)
    except UnicodeDecodeError:
        raise _unreadable(f"a {mechanism} response is not UTF-8") from None


def _raw(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _unreadable(why: str) -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, why)


def _check_negotiated(name: str, value: int, least: int, most: int) -> None:
    """Refuse a limit outside what is allowed, in RabbitMQ's words; `most` may be 0, which is no limit."""
    if value != 0 and value < least:
        raise _not_negotiable(
            f"negotiated {name} = {value} is lower than the minimum allowed value ({least})"
        )
    if most != 0 and (value == 0 or value > most):
        detail = " (no limit)" if name == "channel_max" and value == 0 else ""
        raise _not_negotiable(
            f"negotiated {name} = {value}{detail} is higher than the maximum allowed value ({most})"
        )


def _not_negotiable(text: str) -> AmqpError:
    return AmqpError(ReplyCode.NOT_ALLOWED, text, CONNECTION, _TUNE_METHOD)
