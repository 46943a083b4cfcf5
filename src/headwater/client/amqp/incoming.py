"""What arrives on a channel: methods, and messages put together from their frames."""

from __future__ import annotations

from typing import Any

from pamqp import commands
from pamqp.base import Frame as Command

from headwater.client.amqp.messages import Delivery, Returned
from headwater.client.errors import BadAnswer
from headwater.wire.amqp.constants import BODY, HEADER, METHOD
from headwater.wire.amqp.methods import decode_method

__all__ = ["Arrived", "Incoming"]

_HEADER_SIZE = 12
_CARRY_CONTENT = (commands.Basic.GetOk, commands.Basic.Deliver, commands.Basic.Return)

Arrived = tuple[Command, Delivery | Returned | None]
"""A method, with its message where it carries one."""


class Incoming:
    """Puts the frames of one channel together."""

    def __init__(self) -> None:
        self._method: Command | None = None
        self._properties: bytes | None = None
        self._body = bytearray()
        self._size = 0

    def feed(self, kind: int, payload: bytes) -> Arrived | None:
        """Take a frame, and return what it completes."""
        expected = METHOD if self._method is None else HEADER if self._properties is None else BODY
        if kind != expected:
            raise BadAnswer(f"the broker sends a frame of type {kind} where {expected} is due")
        if kind == METHOD:
            command = decode_method(payload)
            if not isinstance(command, _CARRY_CONTENT):
                return command, None
            self._method = command
            return None
        if kind == HEADER:
            self._size = int.from_bytes(payload[4:_HEADER_SIZE], "big")
            self._properties = payload[_HEADER_SIZE:]
        else:
            self._body += payload
        if len(self._body) < self._size:
            return None
        if len(self._body) > self._size:
            raise BadAnswer("the broker sends a body that is longer than it announced")
        return self._complete()

    def _complete(self) -> Arrived:
        method: Any = self._method
        message: Delivery | Returned
        if isinstance(method, commands.Basic.Return):
            code, key = method.reply_code or 0, method.routing_key or ""
            message = Returned(code, method.reply_text, method.exchange, key)
        else:
            message = Delivery(
                method.delivery_tag,
                method.redelivered,
                method.exchange,
                method.routing_key,
                self._properties or b"",
                bytes(self._body),
                getattr(method, "message_count", None),
            )
        self._method = self._properties = None
        self._body = bytearray()
        return method, message
