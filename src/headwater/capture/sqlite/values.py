"""SQLite's values as JSON text.

A value is written as what it is: a whole number with all its digits, a real number so that it reads back as the same,
text as text. Bytes are base64, as Debezium has them. Infinities, which JSON has not, are the strings that Spark reads.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from math import isinf
from typing import Any

__all__ = ["Convert", "converter_of", "type_of"]

Convert = Mapping[type, Callable[[Any], bytes]]
"""How to write a value, by its Python type."""


def _real(value: float) -> bytes:
    if isinf(value):
        return b'"Infinity"' if value > 0 else b'"-Infinity"'
    return repr(value).encode()


def _text(value: str) -> bytes:
    return encode_basestring(value).encode()


def _bytes(value: bytes) -> bytes:
    return b'"%b"' % b2a_base64(value, newline=False)


def _null(value: None) -> bytes:
    return b"null"


def _boolean(value: int) -> bytes:
    return (b"false", b"true")[value] if value in (0, 1) else b"%d" % value


_PLAIN: Convert = {
    int: lambda value: b"%d" % value,
    float: _real,
    str: _text,
    bytes: _bytes,
    type(None): _null,
}
_BOOLEAN: Convert = {**_PLAIN, int: _boolean}
_ANY: Convert = {
    **_PLAIN,
    int: lambda value: b'"%d"' % value,
    float: lambda value: b'"%b"' % _real(value).strip(b'"'),
}

_KINDS = (
    # The order is that of SQLite's rules of affinity, with what it has no type for before them.
    (re.compile("BOOL"), "boolean"),
    (re.compile("INT"), "bigint"),
    (re.compile("CHAR|CLOB|TEXT|DATE|TIME|JSON|UUID"), "string"),
    (re.compile("BLOB"), "binary"),
    (re.compile("REAL|FLOA|DOUB|NUM|DEC"), "double"),
)


def type_of(declared: str) -> str:
    """Return the type, in Spark's DDL, for a column's declared one.

    >>> type_of("VARCHAR(20)"), type_of("unsigned big int"), type_of("")
    ('string', 'bigint', 'string')
    """
    upper = declared.upper()
    return next((type_ for pattern, type_ in _KINDS if pattern.search(upper)), "string")


def converter_of(declared: str) -> Convert:
    """Return how the values of a column are written; those of a column that may hold anything, as strings."""
    type_ = type_of(declared)
    if type_ == "boolean":
        return _BOOLEAN
    return _ANY if type_ == "string" else _PLAIN
