"""Names of columns, and what a filter's text may stand for."""

from __future__ import annotations

import re

from headwater.views.errors import ViewError

__all__ = ["NUMBER", "comparable", "number", "parts"]

NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
"""A text that a column of numbers may hold."""
_MOST_DIGITS = 20
"""Of a whole number that 64 bits may hold, its sign included."""


def number(text: str) -> int | float:
    """Return the number that a text is, exact where 64 bits hold it.

    >>> number("9007199254740993"), number("1e3")
    (9007199254740993, 1000.0)
    """
    if text.removeprefix("-").isdigit() and len(text) <= _MOST_DIGITS:
        return comparable(int(text))
    return float(text)


def comparable(value: int | float) -> int | float:
    """Return a number as it is compared: a whole one that 64 bits do not hold as a float, as SQLite has it.

    >>> comparable(2**63 - 1), comparable(2**63)
    (9223372036854775807, 9.223372036854776e+18)
    """
    if isinstance(value, float) or -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def parts(column: str) -> list[str]:
    """Return the names that lead to a column; dots go into a structure, like `window.start`."""
    found = column.split(".")
    if '"' in column or "\0" in column or not all(found):
        raise ViewError(f"{column!r} is no name of a column")
    return found
