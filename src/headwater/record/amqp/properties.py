"""The fourteen properties of a message, as they stand behind the body size in its content header.

Sixteen flags say which properties are there, from the highest bit down; their values follow in the same
order. Strings have one byte of length, numbers are one byte (the timestamp eight), headers are a table.

The broker passes these bytes on as they came. `facts` finds in them the little that decides what happens
to a message; `Properties` is for everything that looks further.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import NAME_ERRORS, Table, decode_table, encode_table

__all__ = ["NO_PROPERTIES", "PERSISTENT", "Facts", "Properties", "facts"]

PERSISTENT = 2
"""The delivery mode of a message that survives a restart."""
NO_PROPERTIES = b"\x00\x00"

_BASIC, _PUBLISH = 60, 40
_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">Q")
_MORE_FLAGS = 0x0001
_MAX_STRING = 255
_MAX_EXPIRATION_MS = 315_360_000_000  # ten years, as RabbitMQ has it
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(slots=True)
class Properties:
    """The properties of a message; None is one that the publisher did not set."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    @classmethod
    def decode(cls, raw: bytes) -> Properties:
        """Read the flags and values of a content header; raise `AmqpError` when they are malformed.

        >>> Properties.decode(b"\\x10\\x00\\x02").delivery_mode
        2
        """
        flags = _flags(raw)
        values: dict[str, Any] = {}
        position = _FLAGS.size
        try:
            for name, bit in _BITS:
                if flags & bit:
                    values[name], position = _read(name, raw, position)
        except (IndexError, struct.error):
            raise _truncated() from None
        if position != len(raw):
            raise _truncated() if position > len(raw) else _left_over(len(raw) - position)
        return cls(**values)

    def encode(self) -> bytes:
        """Write them as a content header holds them; raise `ValueError` for one that does not fit."""
        flags = 0
        values = []
        for name, bit in _BITS:
            value = getattr(self, name)
            if value is not None:
                flags |= bit
                values.append(_write(name, value))
        return _FLAGS.pack(flags) + b"".join(values)


_BITS = tuple((field.name, 0x8000 >> place) for place, field in enumerate(fields(Properties)))
_OCTETS = frozenset({"delivery_mode", "priority"})


class Facts(NamedTuple):
    """What the broker itself needs to know of a message's properties."""

    persistent: bool
    priority: int
    expiration_ms: int | None
    headers: bool
    user_id: bool


def facts(raw: bytes) -> Facts:
    """Find the facts in a content header's flags and values; headers are stepped over.

    Raises `AmqpError`: SYNTAX_ERROR for what is no list of properties, PRECONDITION_FAILED for an
    expiration or a delivery mode that RabbitMQ refuses.

    >>> facts(b"\\x10\\x00\\x02").persistent
    True
    """
    flags = _flags(raw)
    position = 2
    mode = priority = 0
    expiration = None
    headers = False
    # Positions are checked once, at the end: a length that leads too far shows there or as an IndexError.
    try:
        if flags & 0x8000:
            position += 1 + raw[position]
        if flags & 0x4000:
            position += 1 + raw[position]
        if flags & 0x2000:
            (length,) = _LENGTH.unpack_from(raw, position)
            position += 4 + length
            headers = length > 0
        if flags & 0x1000:
            mode = raw[position]
            position += 1
        if flags & 0x0800:
            priority = raw[position]
            position += 1
        if flags & 0x0400:
            position += 1 + raw[position]
        if flags & 0x0200:
            position += 1 + raw[position]
        if flags & 0x0100:
            start = position + 1
            position = start + raw[position]
            expiration = raw[start:position]
        if flags & 0x0080:
            position += 1 + raw[position]
        if flags & 0x0040:
            position += 8
        for bit in (0x0020, 0x0010, 0x0008, 0x0004):
            if flags & bit:
                position += 1 + raw[position]
    except (IndexError, struct.error):
        raise _truncated() from None
    if position != len(raw):
        raise _truncated() if position > len(raw) else _left_over(len(raw) - position)
    if flags & 0x1000 and mode not in (1, PERSISTENT):
        raise _refused(f"invalid message: {{delivery_mode_unknown,{mode}}}")
    milliseconds = None if expiration is None else _milliseconds(expiration)
    return Facts(mode == PERSISTENT, priority, milliseconds, headers, bool(flags & 0x0010))


def _flags(raw: bytes) -> int:
    if len(raw) < _FLAGS.size:
        raise _truncated()
    flags: int = _FLAGS.unpack_from(raw)[0]
    if flags & _MORE_FLAGS:
        # RabbitMQ overlooks this bit, but a consumer that gets these bytes does not.
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "a content header announces properties that do not exist")
    return flags


def _read(name: str, raw: bytes, position: int) -> tuple[Any, int]:
    if name == "headers":
        return decode_table(raw, position)
    if name in _OCTETS:
        return raw[position], position + 1
    if name == "timestamp":
        return _TIMESTAMP.unpack_from(raw, position)[0], position + _TIMESTAMP.size
    start = position + 1
    end = start + raw[position]
    return str(raw[start:end], "utf-8", NAME_ERRORS), end


def _write(name: str, value: Any) -> bytes:
    if name == "headers":
        return encode_table(value)
    if name in _OCTETS:
        return bytes([value])
    if name == "timestamp":
        if not 0 <= value < 2**64:
            raise ValueError(f"{value} is no timestamp: it must be 0 or more, and fit 64 bits")
        return _TIMESTAMP.pack(value)
    raw: bytes = value.encode("utf-8", NAME_ERRORS)
    if len(raw) > _MAX_STRING:
        raise ValueError(f"{name} is {len(raw)} bytes long, {_MAX_STRING} are the most")
    return bytes([len(raw)]) + raw


def _milliseconds(expiration: bytes) -> int:
    """Read an expiration as RabbitMQ does, and refuse in its words what it refuses."""
    text = str(expiration, "utf-8", NAME_ERRORS)
    number = _INTEGER.match(text)
    if number is None:
        reason = "no_integer"
    elif number.end() < len(text):
        reason = f'{{leftover_string,"{text[number.end() :]}"}}'
    elif (value := int(number.group())) < 0:
        reason = f"{{value_negative,{value}}}"
    elif value > _MAX_EXPIRATION_MS:
        reason = f"{{value_too_large,{value}}}"
    else:
        return value
    raise _refused(f"invalid expiration '{text}': {reason}")


def _refused(text: str) -> AmqpError:
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text, _BASIC, _PUBLISH)


def _truncated() -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, "a content header ends inside its properties", _BASIC)


def _left_over(count: int) -> AmqpError:
    return AmqpError(
        ReplyCode.SYNTAX_ERROR, f"{count} bytes follow the last property of a content header", _BASIC
    )
