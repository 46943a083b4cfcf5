"""Values as JSON: from the text that a query answers, and from the bytes of a row in the binary log.

Both ways give the same JSON, so that a row looks the same whether a snapshot read it or a change made it:

| MySQL | JSON |
|---|---|
| integers, year, bit(2…64) | a number |
| bit(1) | true or false |
| decimal | a number with all its digits; a string where it has more than 38 |
| float, double | the shortest number that reads back as the same |
| date | "2024-02-29"; a zero date stays "0000-00-00" |
| datetime | "2024-02-29T12:00:00.123", with the digits of its type |
| timestamp | the same in UTC, with a Z |
| time | "-838:59:59" |
| text, enum, set, uuid, inet4, inet6 | a string |
| json | a string: its text |
| binary, blob, geometry | a string: base64 |
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable

from headwater.capture.mysql.document import normal_text
from headwater.capture.mysql.tables import Field, Type
from headwater.capture.mysql.text import quote_utf8

__all__ = ["base64_json", "double_json", "float_json", "from_text", "select_expression"]

FromText = Callable[[bytes], bytes]


def base64_json(raw: bytes) -> bytes:
    """Return bytes as a JSON string."""
    return b'"%b"' % b64encode(raw)


def double_json(value: float) -> bytes:
    """Return the shortest number that reads back as the same double."""
    return repr(value).encode()


def float_json(value: float) -> bytes:
    """Return the shortest number that reads back as the same float of four bytes."""
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == value:
            break
    else:
        text = f"{value:.9g}"
    return repr(float(text)).encode()


def select_expression(field: Field) -> str:
    """Return what to select so that nothing of a column's value is lost."""
    name = "`" + field.name.replace("`", "``") + "`"
    # A float prints with six digits; as a double it prints with all it has.
    return f"{name} + 0e0" if field.type.base == "float" else name


def from_text(field: Field) -> FromText:
    """Return what makes JSON of a column's value as a query answers it, text being in UTF-8."""
    type_ = field.type
    if type_.integer_size or type_.base == "year":
        return _integer if type_.zerofill or type_.base == "year" else _same
    if type_.is_binary:
        return base64_json
    if type_.base == "decimal":
        return _decimal(type_)
    if type_.base == "bit":
        return _bit(type_)
    if type_.is_text and field.charset == "binary":
        return base64_json
    return _BY_BASE.get(type_.base, quote_utf8)


def _same(raw: bytes) -> bytes:
    return raw


def _integer(raw: bytes) -> bytes:
    return b"%d" % int(raw)


def _decimal(type_: Type) -> FromText:
    if type_.decimal[0] > 38:
        return lambda raw: b'"%b"' % _unpadded(raw)
    return _unpadded if type_.zerofill else _same


def _unpadded(raw: bytes) -> bytes:
    """Take off the zeros that ZEROFILL puts in front."""
    whole, point, behind = raw.partition(b".")
    return (whole.lstrip(b"0") or b"0") + point + behind if raw.startswith(b"0") else raw


def _bit(type_: Type) -> FromText:
    if not type_.arguments or type_.arguments[0] == 1:
        return lambda raw: b"true" if any(raw) else b"false"
    return lambda raw: b"%d" % int.from_bytes(raw, "big")


def _date(raw: bytes) -> bytes:
    return b'"%b"' % raw


def _datetime(raw: bytes) -> bytes:
    return b'"%b"' % raw.replace(b" ", b"T", 1)


def _timestamp(raw: bytes) -> bytes:
    return b'"%bZ"' % raw.replace(b" ", b"T", 1)


def _document(raw: bytes) -> bytes:
    return quote_utf8(normal_text(raw).encode())


_BY_BASE: dict[str, FromText] = {
    "float": lambda raw: float_json(float(raw)),
    "double": lambda raw: double_json(float(raw)),
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _date,
    "json": _document,
}
