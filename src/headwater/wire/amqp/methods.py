"""Methods off the hot path: payloads into pamqp's commands, commands into frames.

pamqp says which fields a method has and of which types. They are read and written here: its own decoder
takes what is cut short for what is whole, and its commands check names against the specification, which
RabbitMQ and its clients do not (a queue's name is any text of up to 255 bytes). So build a command with
`make`, and not with its class.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, NamedTuple, TypeVar

from pamqp import commands
from pamqp.base import Frame

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import NAME_ERRORS, decode_table, encode_table
from headwater.wire.amqp.constants import (
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_PUBLISH,
    BASIC_RETURN,
    FRAME_END,
    MAX_SHORT_STRING,
    METHOD,
)

__all__ = ["AccessRequest", "AccessRequestOk", "decode_method", "encode_close", "encode_method", "make"]

Command = TypeVar("Command", bound=Frame)

_HEAD = struct.Struct(">BHII")
_INDEX = struct.Struct(">I")
_NUMBERS = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}
_END = bytes([FRAME_END])
_BITS_PER_OCTET = 8
# A routing key may be any bytes: RabbitMQ looks for UTF-8 in every method but those that carry content.
_CARRY_CONTENT = frozenset({BASIC_PUBLISH, BASIC_RETURN, BASIC_DELIVER, BASIC_GET_OK})
_ELLIPSIS = "..."


class AccessRequest(Frame):
    """access.request, which some old clients still send and RabbitMQ still grants."""

    __slots__: ClassVar[list[str]] = ["realm", "exclusive", "passive", "active", "write", "read"]  # noqa: RUF023 - as on the wire
    frame_id = 10
    index = 0x001E000A
    name = "Access.Request"
    synchronous = True
    _realm = "shortstr"
    _exclusive = _passive = _active = _write = _read = "bit"


class AccessRequestOk(Frame):
    """access.request-ok."""

    __slots__: ClassVar[list[str]] = ["ticket"]
    frame_id = 11
    index = 0x001E000B
    name = "Access.RequestOk"
    _ticket = "short"


_METHODS: dict[int, type[Frame]] = {
    **commands.INDEX_MAPPING,
    AccessRequest.index: AccessRequest,
    AccessRequestOk.index: AccessRequestOk,
}
_CLASSES = frozenset(index >> 16 for index in _METHODS)


class _Field(NamedTuple):
    name: str
    kind: str
    bit: int
    """Which bit of its octet it is, from the lowest up; a run of bits shares octets."""


def _layout(command: type[Frame]) -> tuple[_Field, ...]:
    fields: list[_Field] = []
    for name in command.__slots__:
        kind = command.amqp_type(name)
        follows = kind == "bit" and bool(fields) and fields[-1].kind == "bit"
        fields.append(_Field(name, kind, (fields[-1].bit + 1) % _BITS_PER_OCTET if follows else 0))
    return tuple(fields)


_FIELDS = {index: _layout(command) for index, command in _METHODS.items()}


def make(command: type[Command], **values: Any) -> Command:
    """Build a command without pamqp's checks; what is not named is zero, empty or false."""
    made = command.__new__(command)
    for field in _FIELDS[command.index]:
        setattr(made, field.name, values.pop(field.name) if field.name in values else _blank(field.kind))
    if values:
        raise TypeError(f"{command.name} has no field {', '.join(values)}")
    return made


def decode_method(payload: bytes | memoryview) -> Frame:
    """Read the payload of a method frame.

    Raises `AmqpError` for a class (COMMAND_INVALID) or method (NOT_IMPLEMENTED) that does not exist, and for
    fields that are not the method's (FRAME_ERROR).
    """
    data = bytes(payload)
    if len(data) < _INDEX.size:
        raise AmqpError(ReplyCode.FRAME_ERROR, "a method frame is too short for a method")
    (index,) = _INDEX.unpack_from(data)
    command = _METHODS.get(index)
    if command is None:
        raise _unknown(index)
    made = command.__new__(command)
    try:
        _read_fields(made, data)
    except AmqpError as error:
        raise AmqpError(ReplyCode.FRAME_ERROR, error.text, index >> 16, index & 0xFFFF) from error
    return made


def encode_method(channel: int, command: Frame) -> bytes:
    """Write a whole method frame; raise `ValueError` for a field that does not fit."""
    out = bytearray()
    try:
        for field in _FIELDS[command.index]:
            _write_field(out, field, getattr(command, field.name))
    except struct.error as error:
        raise ValueError(f"{command.name}: {error}") from error
    return _HEAD.pack(METHOD, channel, len(out) + _INDEX.size, command.index) + bytes(out) + _END


def encode_close(channel: int, error: AmqpError) -> bytes:
    """Write the close of the channel that an error ends, or of the connection where it ends that."""
    whole = channel == 0 or error.closes_connection
    close = make(
        commands.Connection.Close if whole else commands.Channel.Close,
        reply_code=int(error.code),
        reply_text=_shortened(error.reply_text),
        class_id=error.class_id,
        method_id=error.method_id,
    )
    return encode_method(0 if whole else channel, close)


def _unknown(index: int) -> AmqpError:
    class_id, method_id = index >> 16, index & 0xFFFF
    if class_id in _CLASSES:
        return AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            f"there is no method {method_id} in class {class_id}",
            class_id,
            method_id,
        )
    return AmqpError(ReplyCode.COMMAND_INVALID, f"there is no class {class_id}", class_id, method_id)


def _blank(kind: str) -> Any:
    match kind:
        case "bit":
            return False
        case "table":
            return {}
        case "shortstr" | "longstr":
            return ""
        case _:
            return 0


def _read_fields(command: Frame, data: bytes) -> None:
    position = _INDEX.size
    octet = 0
    errors = NAME_ERRORS if command.index in _CARRY_CONTENT else "strict"
    for field in _FIELDS[command.index]:
        if field.kind == "bit":
            if field.bit == 0:
                octet, position = _number(command, data, position, "octet")
            setattr(command, field.name, bool(octet >> field.bit & 1))
            continue
        value: Any
        if field.kind == "table":
            value, position = decode_table(data, position)
        elif field.kind in _NUMBERS:
            value, position = _number(command, data, position, field.kind)
        else:
            length, position = _number(
                command, data, position, "octet" if field.kind == "shortstr" else "long"
            )
            start, position = position, position + length
            if position > len(data):
                raise _undecodable(command, "it ends before its last field does")
            value = (
                _short(data[start:position], errors)
                if field.kind == "shortstr"
                else _long(data[start:position])
            )
        setattr(command, field.name, value)
    if position < len(data):
        raise _undecodable(command, f"{len(data) - position} bytes follow its last field")


def _number(command: Frame, data: bytes, position: int, kind: str) -> tuple[int, int]:
    number = _NUMBERS[kind]
    if position + number.size > len(data):
        raise _undecodable(command, "it ends before its last field does")
    value: int = number.unpack_from(data, position)[0]
    return value, position + number.size


def _short(raw: bytes, errors: str) -> str:
    try:
        return raw.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise AmqpError(ReplyCode.FRAME_ERROR, "Malformed UTF-8 in shortstr") from None


def _long(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _undecodable(command: Frame, why: str) -> AmqpError:
    return AmqpError(ReplyCode.FRAME_ERROR, f"cannot decode {command.name.lower()}: {why}")


def _write_field(out: bytearray, field: _Field, value: Any) -> None:
    if field.kind == "bit":
        if field.bit == 0:
            out.append(0)
        out[-1] |= bool(value) << field.bit
    elif field.kind == "table":
        out += encode_table(value or {})
    elif field.kind in _NUMBERS:
        out += _NUMBERS[field.kind].pack(value or 0)
    else:
        raw = _bytes(value or "")
        if field.kind == "shortstr" and len(raw) > MAX_SHORT_STRING:
            raise ValueError(f"{field.name} is {len(raw)} bytes long, {MAX_SHORT_STRING} are the most")
        out += _NUMBERS["octet" if field.kind == "shortstr" else "long"].pack(len(raw)) + raw


def _bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", NAME_ERRORS) if isinstance(value, str) else value


def _shortened(text: str) -> str:
    raw = text.encode("utf-8", NAME_ERRORS)
    if len(raw) <= MAX_SHORT_STRING:
        return text
    return raw[: MAX_SHORT_STRING - len(_ELLIPSIS)].decode("utf-8", "ignore") + _ELLIPSIS
