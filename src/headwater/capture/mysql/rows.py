"""The rows of a table as the binary log stores them, read into JSON.

How each type is stored is described in MySQL's internals manual, "Rows event" and "Date and time data type
representation"; a table's columns with their metadata come from the table map event in front of the rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any

from headwater.capture.change import Row
from headwater.capture.mysql import times
from headwater.capture.mysql.document import document_text
from headwater.capture.mysql.tables import Field, Table, Type
from headwater.capture.mysql.text import Texts, quote_utf8
from headwater.capture.mysql.values import base64_json, double_json, float_json
from headwater.capture.source import CaptureError

__all__ = ["RowReader", "Stored", "fits"]

Stored = tuple[int, int]
"""How a column is stored: its type's code, and its metadata as one number."""
Reader = Callable[[bytes, int], tuple[bytes, int]]
"""Takes the rows and where the value begins; returns its JSON and where the next value begins."""

_DECIMAL_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_CODES: dict[str, tuple[int, ...]] = {
    "tinyint": (1,),
    "smallint": (2,),
    "int": (3,),
    "float": (4,),
    "double": (5,),
    "timestamp": (7, 17),
    "bigint": (8,),
    "mediumint": (9,),
    "date": (10, 14),
    "time": (11, 19),
    "datetime": (12, 18),
    "year": (13,),
    "bit": (16,),
    "json": (245, 252),  # MariaDB's is a longtext
    "decimal": (246,),
    "enum": (247,),
    "set": (248,),
    "char": (254,),
    "binary": (254,),
    "uuid": (254,),
    "inet6": (254,),
    "inet4": (254,),
    "varchar": (15, 253),
    "varbinary": (15, 253),
}


def fits(field: Field, stored: Stored) -> bool:
    """Tell whether a column of that type can be stored like this."""
    code = stored[0]
    codes = _CODES.get(field.type.base)
    if codes is None:
        return code == (252 if field.type.base.endswith(("text", "blob")) else 255)
    if code not in codes:
        return False
    if code == 246:
        return field.type.decimal == (stored[1] >> 8, stored[1] & 0xFF)
    return True


class RowReader:
    """Reads the rows of one table, as one table map describes it."""

    def __init__(self, table: Table, stored: list[Stored], texts: Texts) -> None:
        self.table = table
        self._readers = [_reader(field, *how, texts) for field, how in zip(table.fields, stored, strict=True)]
        self._nulls = (len(stored) + 7) // 8

    def read(self, data: bytes, at: int) -> tuple[Row, int]:
        """Return the row that begins somewhere, and where the next one begins."""
        nulls = int.from_bytes(data[at : at + self._nulls], "little")
        at += self._nulls
        row: list[bytes] = []
        append = row.append
        for reader in self._readers:
            if nulls & 1:
                append(b"null")
            else:
                value, at = reader(data, at)
                append(value)
            nulls >>= 1
        return tuple(row), at


def _reader(field: Field, code: int, meta: int, texts: Texts) -> Reader:
    type_ = field.type
    if (size := type_.integer_size) is not None:
        return _integer(size, signed=not type_.unsigned)
    if code == 246:
        return _decimal(meta >> 8, meta & 0xFF)
    if code == 16:
        return _bit(meta, type_)
    if code in (247, 248):
        return _members(code, meta & 0xFF, type_)
    if code in (17, 18, 19):
        return {17: times.timestamp, 18: times.datetime, 19: times.time_of_day}[code](meta)
    if code in (15, 253):
        return _bytes(1 if meta < 256 else 2, _made(field, texts))
    if code == 254:
        longest = (((meta >> 4) & 0x300) ^ 0x300) + (meta & 0xFF)
        return _bytes(1 if longest < 256 else 2, _fixed(field, longest, texts))
    if code in (249, 250, 251, 252, 255):
        return _bytes(meta, _made(field, texts))
    if code == 245:
        return _bytes(meta, lambda raw: quote_utf8(document_text(raw).encode()))
    # MariaDB's older times with fractions have a form whose length the log does not say.
    if (found := _PLAIN.get(code)) and not (code in (7, 11, 12) and type_.fraction):
        return found
    raise CaptureError(
        f"column {field.name} is of the type {field.native}, stored in a way ({code}) that cannot be read from the"
        " binary log: ALTER TABLE … FORCE stores old times anew; otherwise leave its table out of the capture"
    )


def _integer(size: int, *, signed: bool) -> Reader:
    if letter := {1: "b", 2: "h", 4: "i", 8: "q"}.get(size):
        unpack: Callable[[bytes, int], Any] = struct.Struct(
            "<" + (letter if signed else letter.upper())
        ).unpack_from

        def read_plain(data: bytes, at: int) -> tuple[bytes, int]:
            return b"%d" % unpack(data, at), at + size

        return read_plain

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        return b"%d" % int.from_bytes(data[at:end], "little", signed=signed), end

    return read


def _bytes(prefix: int, made: Callable[[bytes], bytes]) -> Reader:
    if prefix == 1:

        def read_short(data: bytes, at: int) -> tuple[bytes, int]:
            end = at + 1 + data[at]
            return made(data[at + 1 : end]), end

        return read_short

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        begin = at + prefix
        end = begin + int.from_bytes(data[at:begin], "little")
        return made(data[begin:end]), end

    return read


def _made(field: Field, texts: Texts) -> Callable[[bytes], bytes]:
    if field.type.base == "json":
        return quote_utf8
    if field.type.is_binary or field.charset == "binary":
        return base64_json
    return texts.quoting(field.charset)


def _fixed(field: Field, longest: int, texts: Texts) -> Callable[[bytes], bytes]:
    """Return what makes JSON of a value of fixed length, whose padding is not stored."""
    base = field.type.base
    if base == "uuid":
        return lambda raw: _uuid(raw.ljust(16, b"\0"))
    if base == "inet6":
        return lambda raw: _inet6(raw.ljust(16, b"\0"))
    if base == "inet4":
        return lambda raw: b'"%d.%d.%d.%d"' % tuple(raw.ljust(4, b"\0"))
    if base == "binary":
        return lambda raw: base64_json(raw.ljust(longest, b"\0"))
    return _made(field, texts)


def _uuid(raw: bytes) -> bytes:
    text = raw.hex()
    return f'"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"'.encode()


def _inet6(raw: bytes) -> bytes:
    address = IPv6Address(raw)
    # Like inet_ntop: addresses that embed one of IPv4 end in its form.
    if raw[:12] == bytes(10) + b"\xff\xff":
        return b'"::ffff:%d.%d.%d.%d"' % tuple(raw[12:])
    if not any(raw[:12]) and any(raw[12:14]):
        return b'"::%d.%d.%d.%d"' % tuple(raw[12:])
    return b'"%b"' % str(address).encode()


def _decimal(digits: int, behind: int) -> Reader:
    """Nine digits in four bytes, the rest in as few as will do; the first bit set where it is not negative."""
    whole, first = divmod(digits - behind, 9)
    groups, last = divmod(behind, 9)
    begin = _DECIMAL_BYTES[first]
    size = begin + 4 * (whole + groups) + _DECIMAL_BYTES[last]
    flip_positive = 0x80 << (8 * (size - 1))
    flip_negative = (1 << (8 * size)) - 1 - flip_positive
    is_string = digits > 38

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        negative = not data[at] & 0x80
        flipped = int.from_bytes(data[at:end], "big") ^ (flip_negative if negative else flip_positive)
        raw = flipped.to_bytes(size, "big")
        number = int.from_bytes(raw[:begin], "big")
        place = begin
        for _ in range(whole):
            number = number * 1_000_000_000 + int.from_bytes(raw[place : place + 4], "big")
            place += 4
        text = b"-%d" % number if negative else b"%d" % number
        if behind:
            text += b"."
            for _ in range(groups):
                text += b"%09d" % int.from_bytes(raw[place : place + 4], "big")
                place += 4
            if last:
                text += b"%0*d" % (last, int.from_bytes(raw[place:], "big"))
        return (b'"%b"' % text if is_string else text), end

    return read


def _bit(meta: int, type_: Type) -> Reader:
    bits, whole = meta >> 8, meta & 0xFF
    size = whole + (bits > 0)
    is_boolean = not type_.arguments or type_.arguments[0] == 1

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        value = int.from_bytes(data[at:end], "big")
        if is_boolean:
            return (b"true" if value else b"false"), end
        return b"%d" % value, end

    return read


def _members(code: int, size: int, type_: Type) -> Reader:
    if code == 247:
        # Zero is what a value that is no member became.
        texts = [b'""', *(quote_utf8(member.encode()) for member in type_.members)]

        def read_one(data: bytes, at: int) -> tuple[bytes, int]:
            end = at + size
            return texts[int.from_bytes(data[at:end], "little")], end

        return read_one

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        bits = int.from_bytes(data[at:end], "little")
        chosen = ",".join(member for place, member in enumerate(type_.members) if bits >> place & 1)
        return quote_utf8(chosen.encode()), end

    return read


def _float(data: bytes, at: int) -> tuple[bytes, int]:
    return float_json(struct.unpack_from("<f", data, at)[0]), at + 4


def _double(data: bytes, at: int) -> tuple[bytes, int]:
    return double_json(struct.unpack_from("<d", data, at)[0]), at + 8


_PLAIN: dict[int, Reader] = {
    4: _float,
    5: _double,
    7: times.old_timestamp,
    10: times.date,
    11: times.old_time,
    12: times.old_datetime,
    13: times.year,
    14: times.date,
}
