"""What queues and exchanges are called, and how errors name them."""

from __future__ import annotations

import base64
from typing import Final, Literal

from headwater.core.amqp import AmqpError, ReplyCode

Kind = Literal["queue", "exchange"]
"""What a name stands for, and what a binding leads to."""

DEFAULT_EXCHANGE: Final = ""
DEFAULT_VHOST: Final = "/"
RESERVED_PREFIX: Final = "amq."
MAX_BYTES: Final = 255
"""What fits in a short string."""
REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
"""The pseudo-queue of direct replies; it is never declared, and its names never reach a queue."""

_LINE_ENDS: Final = str.maketrans("", "", "\r\n")


def server_name(random: bytes) -> str:
    """Return the name of a queue whose client left it to the server, made of sixteen random bytes."""
    return "amq.gen-" + base64.urlsafe_b64encode(random).decode().rstrip("=")


def stripped(name: str) -> str:
    """Return a name as RabbitMQ takes it: without line ends."""
    return name.translate(_LINE_ENDS)


def described(kind: Kind, name: str, vhost: str) -> str:
    """Return how errors speak of a queue or an exchange.

    >>> described("queue", "orders", "/")
    "queue 'orders' in vhost '/'"
    """
    return f"{kind} '{name}' in vhost '{vhost}'"


def check_unreserved(kind: Kind, name: str) -> None:
    """Refuse a name that only the server may give."""
    if name.startswith(RESERVED_PREFIX):
        raise AmqpError(
            ReplyCode.ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'"
        )


def check_not_default(exchange: str) -> None:
    """Refuse to declare, delete, bind or unbind the default exchange."""
    if exchange == DEFAULT_EXCHANGE:
        raise AmqpError(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")


def not_found(kind: Kind, name: str, vhost: str) -> AmqpError:
    """Return the error of a queue or an exchange that is not there."""
    return AmqpError(ReplyCode.NOT_FOUND, f"no {described(kind, name, vhost)}")
