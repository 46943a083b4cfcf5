"""Names of columns, and what a filter's text may stand for."""

from __future__ import annotations

import re

from headwater.views.errors import ViewError

__all__ = ["NUMBER", "number", "parts"]

NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
"""A text that a column of numbers may hold."""


def number(text: str) -> int | float:
    """Return the number that a text is, exact where 64 bits hold it.

    >>> number("9007199254740993"), number("1e3")
    (9007199254740993, 1000.0)
    """
    whole = text.removeprefix("-")
    if whole.isdigit() and len(whole) < 19:
        return int(text)
    return float(text)


def parts(column: str) -> list[str]:
    """Return the names that lead to a column; dots go into a structure, like `window.start`."""
    found = column.split(".")
    if '"' in column or "\0" in column or not all(found):
        raise ViewError(f"{column!r} is no name of a column")
    return found
