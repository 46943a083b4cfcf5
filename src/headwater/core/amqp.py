"""AMQP 0-9-1's reply codes, and the error that carries one from where it is found to the client."""

from __future__ import annotations

from enum import IntEnum

from headwater.core.errors import HeadwaterError

__all__ = ["AmqpError", "ReplyCode"]


class ReplyCode(IntEnum):
    """Why a channel or a connection is closed, or a message returned."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


_SOFT = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)


class AmqpError(HeadwaterError):
    """What a client did that closes its channel or, where the code is a hard one, its connection."""

    def __init__(self, code: ReplyCode, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id

    @property
    def closes_connection(self) -> bool:
        """Whether the whole connection ends, and not its channel alone."""
        return self.code not in _SOFT

    @property
    def reply_text(self) -> str:
        """What the client is told, in the form that RabbitMQ's clients show."""
        return f"{self.code.name} - {self.text}"
