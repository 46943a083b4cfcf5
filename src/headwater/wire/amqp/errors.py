"""Frames that are out of place or no frames at all, refused in RabbitMQ's words.

All of them close the connection: what follows such a frame cannot be trusted to be one.
"""

from __future__ import annotations

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.wire.amqp.constants import BASIC, BASIC_PUBLISH

__all__ = ["bad_frame", "content_header_error", "unexpected_frame"]

_SNIPPET = 16
_METHOD_MASK = 0xFFFF


def bad_frame(frame_type: int, payload: bytes, why: str) -> AmqpError:
    """Make the error for a frame of no known type, too large a frame, or one without its end."""
    return AmqpError(ReplyCode.FRAME_ERROR, f"type {frame_type}, {_octets(payload)}: {why}")


def unexpected_frame(frame_type: int, payload: bytes) -> AmqpError:
    """Make the error for a frame that is well formed but not due, as one on a channel before connection.open."""
    return AmqpError(ReplyCode.UNEXPECTED_FRAME, f"type {frame_type}, {_octets(payload)}")


def content_header_error(class_id: int, weight: int) -> AmqpError | None:
    """Return what is wrong with a content header that says this class and weight, if anything is."""
    if class_id == BASIC and weight == 0:
        return None
    got = "non content header frame" if weight else f"one for class {class_id}"
    return AmqpError(
        ReplyCode.UNEXPECTED_FRAME,
        f"expected content header for class {BASIC}, got {got} instead",
        BASIC,
        BASIC_PUBLISH & _METHOD_MASK,
    )


def _octets(payload: bytes) -> str:
    which = "all" if len(payload) <= _SNIPPET else f"first {_SNIPPET}"
    return f"{which} octets = <<{','.join(map(str, payload[:_SNIPPET]))}>>"
