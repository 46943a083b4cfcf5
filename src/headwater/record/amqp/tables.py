"""Field tables: the arguments, headers and properties of AMQP 0-9-1.

A table is its length in four bytes, then pairs of a short string and a value; a value is one byte that
names its type, then its bytes. The types are those that RabbitMQ reads (its "errata" page), which differ
from the specification's: `l` and `L` are both signed, `s` is a number, `x` is bytes.

    t bool    b B s u I i l L integers    f d floats    D decimal    T seconds since 1970
    S string  x bytes                     A array       F table      V nothing

Most of them are read as plain values of Python's. What would be written in another field than it came in,
as the eight bytes of a small number, is of a class that knows its field: a client whose language has more
than one kind of number asks for the one that was sent.

A length is a claim: each is compared with what is left of the table around it before anything is made of
it, and tables may not be nested deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from headwater.core.amqp import AmqpError, ReplyCode

__all__ = [
    "MAX_DEPTH",
    "Buffer",
    "Float",
    "Long",
    "Number",
    "Table",
    "Text",
    "Timestamp",
    "decode_pairs",
    "decode_table",
    "encode_table",
]

Buffer = bytes | bytearray | memoryview
Table: TypeAlias = dict[str, Any]
"""Names and values: bool, int, float, str, bytes, None, datetime (UTC), Decimal, list and Table."""

MAX_DEPTH = 32
"""How many tables and arrays may stand inside one another."""

# RabbitMQ takes any bytes for a name: they come out as they went in.
NAME_ERRORS = "surrogateescape"

_LENGTH = struct.Struct(">I")
_DECIMAL = struct.Struct(">Bi")
_SECONDS = struct.Struct(">Q")
_INT = struct.Struct(">ci")
_LONG = struct.Struct(">cq")
_FLOAT = struct.Struct(">cf")
_DOUBLE = struct.Struct(">cd")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_MIN_INT32, _MAX_INT32 = -(2**31), 2**31 - 1
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_MAX_NAME = 255
_MAX_SCALE = 255


class Timestamp(int):
    """A time after the year 9999, as clients that count milliseconds send it; it is written back as it came."""


class Number(int):
    """A whole number in a field that it would not be put in by its size; it is written back in that one."""

    field: ClassVar[struct.Struct]
    kind: ClassVar[bytes]
    name: ClassVar[str]
    """What RabbitMQ calls the field."""


class Byte(Number):
    """A number of one byte."""

    field, kind, name = struct.Struct(">cb"), b"b", "byte"


class UnsignedByte(Number):
    """A number of one byte, without a sign."""

    field, kind, name = struct.Struct(">cB"), b"B", "unsignedbyte"


class Short(Number):
    """A number of two bytes."""

    field, kind, name = struct.Struct(">ch"), b"s", "short"


class UnsignedShort(Number):
    """A number of two bytes, without a sign."""

    field, kind, name = struct.Struct(">cH"), b"u", "unsignedshort"


class UnsignedInt(Number):
    """A number of four bytes, without a sign."""

    field, kind, name = struct.Struct(">cI"), b"i", "unsignedint"


class Long(Number):
    """A number of eight bytes, where four would do."""

    field, kind, name = _LONG, b"l", "long"


class Float(float):
    """A floating-point number of four bytes."""


class Text(bytes):
    """A string that is not UTF-8."""


def _long(value: int) -> int:
    return Long(value) if _MIN_INT32 <= value <= _MAX_INT32 else value


_FIXED: dict[int, tuple[struct.Struct, Callable[[Any], Any] | None]] = {
    ord(kind): (struct.Struct(">" + code), made)
    for kind, code, made in (
        ("t", "?", None),
        ("b", "b", Byte),
        ("B", "B", UnsignedByte),
        ("s", "h", Short),
        ("u", "H", UnsignedShort),
        ("I", "i", None),
        ("i", "I", UnsignedInt),
        ("l", "q", _long),
        ("L", "q", _long),
        ("f", "f", Float),
        ("d", "d", None),
    )
}
"""The fields of one length, and what their values are made where that is not plain."""


def decode_table(buffer: Buffer, position: int, end: int | None = None) -> tuple[Table, int]:
    """Read the table at `position`; return it and the position after it.

    Raises `AmqpError` with SYNTAX_ERROR when it is malformed or does not end before `end`.
    """
    return _read_table(buffer, position, len(buffer) if end is None else end, 1)


def decode_pairs(buffer: Buffer) -> Table:
    """Read a table that has no length in front, as AMQPLAIN's response."""
    return _read_pairs(buffer, 0, len(buffer), 1)


def encode_table(table: Table) -> bytes:
    """Write a table with its length in front.

    Raises `ValueError` for a number, name or depth that no table holds, `TypeError` for another type.
    """
    return _write_table(table, 1)


def _read_table(buffer: Buffer, position: int, end: int, depth: int) -> tuple[Table, int]:
    start, stop = _span(buffer, position, end)
    return _read_pairs(buffer, start, stop, depth), stop


def _read_pairs(buffer: Buffer, position: int, end: int, depth: int) -> Table:
    _check_depth(depth)
    table: Table = {}
    while position < end:
        start = position + 1
        position = start + buffer[position]
        if position > end:
            raise _malformed("a name ends after its table does")
        name = str(buffer[start:position], "utf-8", NAME_ERRORS)
        table[name], position = _read_value(buffer, position, end, depth)
    return table


def _read_array(buffer: Buffer, position: int, end: int, depth: int) -> tuple[list[Any], int]:
    _check_depth(depth)
    position, stop = _span(buffer, position, end)
    array = []
    while position < stop:
        value, position = _read_value(buffer, position, stop, depth)
        array.append(value)
    return array, stop


def _read_value(buffer: Buffer, position: int, end: int, depth: int) -> tuple[Any, int]:
    if position >= end:
        raise _malformed("a value has no type")
    kind = buffer[position]
    position += 1
    if (fixed := _FIXED.get(kind)) is not None:
        fields, made = fixed
        (value,) = _unpack(fields, buffer, position, end)
        return value if made is None else made(value), position + fields.size
    match chr(kind):
        case "S":
            start, stop = _span(buffer, position, end)
            return _text(bytes(buffer[start:stop])), stop
        case "x":
            start, stop = _span(buffer, position, end)
            return bytes(buffer[start:stop]), stop
        case "F":
            return _read_table(buffer, position, end, depth + 1)
        case "A":
            return _read_array(buffer, position, end, depth + 1)
        case "V":
            return None, position
        case "T":
            (seconds,) = _unpack(_SECONDS, buffer, position, end)
            return _time(seconds), position + _SECONDS.size
        case "D":
            scale, mantissa = _unpack(_DECIMAL, buffer, position, end)
            return Decimal(mantissa).scaleb(-scale), position + _DECIMAL.size
        case _:
            raise _malformed(f"a value of the unknown type {bytes([kind])!r}")


def _span(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a length; return where what it counts starts and stops."""
    (length,) = _unpack(_LENGTH, buffer, position, end)
    start = position + _LENGTH.size
    if length > end - start:
        raise _malformed(f"{length} bytes are announced where {end - start} are left")
    return start, start + length


def _unpack(fields: struct.Struct, buffer: Buffer, position: int, end: int) -> tuple[Any, ...]:
    if fields.size > end - position:
        raise _malformed("it ends inside a value")
    return fields.unpack_from(buffer, position)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Text(raw)


def _time(seconds: int) -> datetime | Timestamp:
    return _EPOCH + timedelta(seconds=seconds) if seconds <= _LAST_SECOND else Timestamp(seconds)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _malformed(f"it is nested deeper than {MAX_DEPTH}")


def _malformed(why: str) -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"malformed table: {why}")


def _write_table(table: Table, depth: int) -> bytes:
    out = bytearray(_LENGTH.size)
    _check_writable(depth)
    for name, value in table.items():
        raw = name.encode("utf-8", NAME_ERRORS)
        if len(raw) > _MAX_NAME:
            raise ValueError(f"the name {name[:20]!r}… of a table's value is longer than {_MAX_NAME} bytes")
        out.append(len(raw))
        out += raw
        _write_value(out, value, depth)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


def _write_array(array: list[Any], depth: int) -> bytes:
    out = bytearray(_LENGTH.size)
    _check_writable(depth)
    for value in array:
        _write_value(out, value, depth)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


def _write_value(out: bytearray, value: Any, depth: int) -> None:
    match value:
        case bool():
            out += b"t\x01" if value else b"t\x00"
        case Timestamp():
            out += b"T" + _SECONDS.pack(value)
        case Number():
            out += value.field.pack(value.kind, value)
        case int():
            out += _integer(value)
        case str():
            _write_span(out, b"S", value.encode("utf-8", NAME_ERRORS))
        case Text():
            _write_span(out, b"S", value)
        case bytes() | bytearray() | memoryview():
            _write_span(out, b"x", value)
        case None:
            out += b"V"
        case Float():
            out += _FLOAT.pack(b"f", value)
        case float():
            out += _DOUBLE.pack(b"d", value)
        case datetime():
            out += b"T" + _SECONDS.pack(_seconds(value))
        case Decimal():
            out += b"D" + _decimal(value)
        case dict():
            out += b"F" + _write_table(value, depth + 1)
        case list() | tuple():
            out += b"A" + _write_array(list(value), depth + 1)
        case _:
            raise TypeError(f"a table cannot hold a {type(value).__name__}")


def _write_span(out: bytearray, kind: bytes, raw: Buffer) -> None:
    out += kind + _LENGTH.pack(len(raw))
    out += raw


def _integer(value: int) -> bytes:
    if _MIN_INT32 <= value <= _MAX_INT32:
        return _INT.pack(b"I", value)
    if _MIN_INT64 <= value <= _MAX_INT64:
        return _LONG.pack(b"l", value)
    raise ValueError(f"{value} does not fit 64 bits")


def _seconds(time: datetime) -> int:
    seconds = (time.replace(tzinfo=UTC) if time.tzinfo is None else time) - _EPOCH
    if seconds < timedelta(0):
        raise ValueError(f"{time} is before 1970, where AMQP's time starts")
    return seconds // timedelta(seconds=1)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -_MAX_SCALE <= exponent <= len(str(_MAX_INT32)):
        raise ValueError(f"{value} is no decimal of AMQP's")
    mantissa = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    if not _MIN_INT32 <= mantissa <= _MAX_INT32:
        raise ValueError(f"{value} has more digits than a decimal of AMQP's")
    return _DECIMAL.pack(max(-exponent, 0), mantissa)


def _check_writable(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"a table is nested deeper than {MAX_DEPTH}")
