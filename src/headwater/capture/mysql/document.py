"""JSON documents of MySQL, from the bytes that it stores them as and from the text that it shows, into the same text.

How they are stored is described in MySQL's `sql-common/json_binary.h`: a byte with the type, and a value, in which
objects and arrays have the places of what is in them. Values that JSON has no form for (decimals, times, bytes) are
stored as those of a column are, and shown as numbers and strings.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal

from headwater.capture.source import CaptureError

__all__ = ["document_text", "normal_text"]

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_STRING, _OPAQUE = 0x0C, 0x0F
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE = 11
_DECIMAL_DIGITS, _DECIMAL_BYTES = 9, (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_DATE, _DATETIMES, _TIME, _DECIMAL = 10, (7, 12), 11, 246


def normal_text(raw: bytes) -> str:
    """Return the text of a document as MySQL shows it, in our form."""
    exact = True

    def number(text: str) -> float:
        nonlocal exact
        exact = exact and _is_double(text)
        return float(text)

    value = json.loads(raw, parse_float=number)
    if exact:
        return json.dumps(value, ensure_ascii=False)
    return _dumped(json.loads(raw, parse_float=Decimal))


def document_text(raw: bytes) -> str:
    """Return the text of a document as the binary log has it."""
    if not raw:
        return "null"  # what a column got that was added NOT NULL
    return _value(raw, raw[0], 1)


def _is_double(text: str) -> bool:
    """Tell whether a number is all that is left of it as a double."""
    return Decimal(text) == Decimal(repr(float(text)))


def _decimal_text(text: str) -> str:
    return repr(float(text)) if _is_double(text) else text


def _dumped(value: object) -> str:
    """Return a document with decimals as they are."""
    if isinstance(value, dict):
        return _object([_quoted(name) for name in value], [_dumped(item) for item in value.values()])
    if isinstance(value, list):
        return f"[{', '.join(map(_dumped, value))}]"
    if isinstance(value, Decimal):
        return _decimal_text(str(value))
    return json.dumps(value, ensure_ascii=False)


def _object(names: list[str], values: list[str]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True)) + "}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(data: bytes, kind: int, at: int) -> str:
    """Return the text of a value that begins somewhere."""
    if kind <= _LARGE_ARRAY:
        return _container(data, kind, at)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return repr(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return _quoted(data[at : at + size].decode(errors="replace"))
    if kind == _OPAQUE:
        size, begin = _length(data, at + 1)
        return _opaque(data[at], data[begin : begin + size])
    raise CaptureError(
        f"a JSON document has a value of a type ({kind}) that is not known: capture from an older server"
    )


def _container(data: bytes, kind: int, at: int) -> str:
    is_large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    width = 4 if is_large else 2
    count = int.from_bytes(data[at : at + width], "little")
    entries = at + 2 * width
    names: list[str] = []
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        for _ in range(count):
            begin = at + int.from_bytes(data[entries : entries + width], "little")
            entries += width
            size = int.from_bytes(data[entries : entries + 2], "little")
            entries += 2
            names.append(_quoted(data[begin : begin + size].decode(errors="replace")))
    values: list[str] = []
    for _ in range(count):
        item = data[entries]
        # Short values stand where the place of a longer one would.
        is_inline = item in (4, 5, 6) or (is_large and item in (7, 8))
        place = (
            entries + 1
            if is_inline
            else at + int.from_bytes(data[entries + 1 : entries + 1 + width], "little")
        )
        values.append(_value(data, item, place))
        entries += 1 + width
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return f"[{', '.join(values)}]"
    return _object(names, values)


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length of seven bits a byte, the lowest first."""
    size = shift = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
        shift += 7


def _opaque(column: int, data: bytes) -> str:
    if column == _DECIMAL:
        return _decimal_text(_decimal(data))
    if form := _TIMES.get(column):
        return f'"{form(int.from_bytes(data, "little", signed=True))}"'
    return f'"base64:type{column}:{b64encode(data).decode()}"'


def _decimal(data: bytes) -> str:
    """Read the digits of a decimal: nine in four bytes, the rest in as few as will do."""
    digits, behind, raw = data[0], data[1], data[2:]
    negative = not raw[0] & 0x80
    raw = bytes((raw[0] ^ 0x80, *raw[1:]))
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    whole, first = divmod(digits - behind, _DECIMAL_DIGITS)
    groups, last = divmod(behind, _DECIMAL_DIGITS)
    sizes = [first, *[_DECIMAL_DIGITS] * (whole + groups), last]
    text, at = "", 0
    for size in sizes:
        width = _DECIMAL_BYTES[size]
        if size:
            text += f"{int.from_bytes(raw[at : at + width], 'big'):0{size}d}"
        at += width
    before = text[: digits - behind].lstrip("0") or "0"
    return ("-" if negative else "") + before + (f".{text[digits - behind :]}" if behind else "")


def _date(packed: int) -> str:
    days = packed >> 41
    return f"{(days >> 5) // 13:04d}-{(days >> 5) % 13:02d}-{days & 31:02d}"


def _clock(packed: int) -> str:
    seconds = packed >> 24
    return f"{seconds >> 6 & 63:02d}:{seconds & 63:02d}.{packed & 0xFFFFFF:06d}"


def _datetime(packed: int) -> str:
    return f"{_date(packed)} {packed >> 36 & 31:02d}:{_clock(packed)}"


def _time(packed: int) -> str:
    sign, size = ("-", -packed) if packed < 0 else ("", packed)
    return f"{sign}{size >> 36 & 1023:02d}:{_clock(size)}"


_TIMES: dict[int, Callable[[int], str]] = {
    _DATE: _date,
    _TIME: _time,
    **dict.fromkeys(_DATETIMES, _datetime),
}
