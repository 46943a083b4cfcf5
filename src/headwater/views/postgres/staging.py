"""Changes as the text that COPY reads, made for all of them at once rather than row by row."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.views.postgres.select import storable

__all__ = ["copy_text"]

# Characters that stand for what COPY's text has between fields and rows, and for null, until all else is escaped.
_FIELD, _ROW, _NULL = "\x1f", "\x1e", "\x1d"
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def copy_text(changes: Sequence[tuple[str, str | None]]) -> str:
    """Return the input of `COPY … FROM STDIN` for keys and rows.

    >>> copy_text([("a", '{"x": "1\\\\n"}'), ("b", None)])
    'a\\t{"x": "1\\\\\\\\n"}\\nb\\t\\\\N\\n'
    """
    text = _ROW.join([f"{key}{_FIELD}{_NULL if row is None else row}" for key, row in changes]) + _ROW
    nulls = sum(1 for _, row in changes if row is None)
    if (text.count(_FIELD), text.count(_ROW), text.count(_NULL)) != (len(changes), len(changes), nulls):
        # A key has one of those characters; in JSON none of them can stand as it is.
        return "".join([f"{_escaped(storable(key))}\t{_field(row)}\n" for key, row in changes])
    if "\0" in text or "\\u0000" in text:
        text = _row(storable(text))
    return _escaped(text).replace(_NULL, "\\N").replace(_FIELD, "\t").replace(_ROW, "\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _field(row: str | None) -> str:
    return "\\N" if row is None else _escaped(_row(row))


def _row(text: str) -> str:
    return _NUL.sub(r"\1\\ufffd", text)
