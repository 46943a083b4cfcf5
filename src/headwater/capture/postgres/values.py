"""Values of Postgres as JSON: the text that its output functions give in, the bytes of JSON out, nothing lost.

The same functions serve the snapshot and the stream, and both sessions speak alike (see `connection.SESSION`): dates
in ISO form, times in UTC, intervals in ISO 8601, bytes in hexadecimal, floats with all their digits. So a value has
the same JSON wherever it was read.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Final

__all__ = [
    "NULL",
    "Convert",
    "array_of",
    "as_is",
    "boolean",
    "date",
    "hexadecimal",
    "hstore",
    "number",
    "string",
    "timestamp",
    "timestamp_utc",
    "unescaped",
]

Convert = Callable[[bytes], bytes]

NULL: Final = b"null"

_TO_ESCAPE = bytes((*range(0x20), ord('"'), ord("\\")))
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_ESCAPES = {
    **{bytes([code]): b"\\u%04x" % code for code in range(0x20)},
    b"\b": b"\\b",
    b"\t": b"\\t",
    b"\n": b"\\n",
    b"\f": b"\\f",
    b"\r": b"\\r",
    b'"': b'\\"',
    b"\\": b"\\\\",
}

_COPIED = re.compile(rb"\\(.)", re.DOTALL)
_COPIED_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

_ARRAY_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^{},"]+)|([{},])', re.DOTALL)
_PAIR = re.compile(rb'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', re.DOTALL)
_QUOTED_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


def as_is(text: bytes) -> bytes:
    """Return a whole number: JSON writes it alike."""
    return text


def string(text: bytes) -> bytes:
    """Return a text between quotes, with what JSON wants escaped."""
    if len(text.translate(None, _TO_ESCAPE)) != len(
        text
    ):  # much faster than a search, and most texts need nothing
        text = _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)
    return b'"%b"' % text


def boolean(text: bytes) -> bytes:
    """Return `t` or `f` as JSON has it."""
    return b"true" if text == b"t" else b"false"


def number(text: bytes) -> bytes:
    """Return a number with all its digits; NaN and the infinities, which JSON does not have, as strings."""
    return text if text[-1] <= 0x39 else b'"%b"' % text


def date(text: bytes) -> bytes:
    """Return a date in ISO 8601; an infinite one by its name."""
    return b'"%b"' % (text if len(text) == 10 else _astronomical(text))


def timestamp(text: bytes) -> bytes:
    """Return a time without a zone in ISO 8601."""
    if text[10:11] == b" " and text[-1] != 0x43:
        return b'"%bT%b"' % (text[:10], text[11:])
    return b'"%b"' % _astronomical(text).replace(b" ", b"T", 1)


def timestamp_utc(text: bytes) -> bytes:
    """Return a time with a zone, which the session has Postgres write in UTC."""
    if text[10:11] == b" " and text[-3:] == b"+00":
        return b'"%bT%bZ"' % (text[:10], text[11:-3])
    return b'"%b"' % _astronomical(text).replace(b" ", b"T", 1).replace(b"+00", b"Z")


def _astronomical(text: bytes) -> bytes:
    """Return a date with the sign and the count that ISO 8601 has for years outside of 1 to 9999."""
    if text.endswith(b"infinity"):
        return text
    year, dash, rest = text.partition(b"-")
    if rest.endswith(b" BC"):
        before = int(year) - 1  # 1 BC is the year 0
        return b"%b%04d%b%b" % (b"-" if before else b"", before, dash, rest[:-3])
    return (b"+%b%b%b" if len(year) > 4 else b"%b%b%b") % (year, dash, rest)


def hexadecimal(text: bytes) -> bytes:
    r"""Return bytes, which Postgres writes as `\x` and hexadecimal digits, in base64."""
    return b'"%b"' % b64encode(bytes.fromhex(text[2:].decode()))


def array_of(element: Convert) -> Convert:
    """Return what converts arrays, of any number of dimensions, whose elements are converted so."""

    def convert(text: bytes) -> bytes:
        if text[:1] == b"[":  # bounds that do not start at 1: [2:3]={…}
            text = text[text.index(b"=") + 1 :]
        out = bytearray()
        for found in _ARRAY_TOKEN.finditer(text):
            quoted, plain, mark = found.groups()
            if mark is not None:
                out += b"[" if mark == b"{" else b"]" if mark == b"}" else b","
            elif plain is not None:
                out += NULL if plain == b"NULL" else element(plain)
            else:
                out += element(_unquoted(quoted))
        return bytes(out)

    return convert


def hstore(text: bytes) -> bytes:
    """Return the pairs of an hstore as a JSON object of texts and nulls."""
    pairs = (
        b"%b:%b" % (string(_unquoted(key)), NULL if value is None else string(_unquoted(value)))
        for key, value in (found.groups() for found in _PAIR.finditer(text))
    )
    return b"{%b}" % b",".join(pairs)


def _unquoted(text: bytes) -> bytes:
    return _QUOTED_ESCAPE.sub(rb"\1", text) if b"\\" in text else text


def unescaped(field: bytes) -> bytes:
    """Return a value of a line of COPY's text format, which has a backslash before what would end it."""
    return _COPIED.sub(_copied, field) if b"\\" in field else field


def _copied(found: re.Match[bytes]) -> bytes:
    return _COPIED_ESCAPES.get(found[1], found[1])
