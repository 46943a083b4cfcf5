"""The parameters of a request that are given once, and those that are numbers."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from headwater.serve.errors import HttpError

__all__ = ["count", "number", "one_of"]


def one_of(given: QueryParams, name: str) -> str:
    """Return a parameter that is given once."""
    values = given.getlist(name)
    if len(values) > 1:
        raise HttpError(400, f"{name} is given more than once")
    return values[0]


def count(given: QueryParams, name: str, default: int, *, least: int = 0, most: int, also: str = "") -> int:
    """Return a parameter that is a whole number, or raise `HttpError`; `also` says what else it could have been."""
    if name not in given:
        return default
    text = one_of(given, name)
    plain = text.isascii() and text.isdigit() and len(text) < 20
    if not plain or not least <= int(text) <= most:
        raise HttpError(400, f"{name}={text} does not fit: it is a whole number from {least} to {most}{also}")
    return int(text)


def number(given: QueryParams, name: str, default: float, *, most: float) -> float:
    """Return a parameter that is a number from 0 on, or raise `HttpError`."""
    if name not in given:
        return default
    text = one_of(given, name)
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= most:
        raise HttpError(400, f"{name}={text} does not fit: it is a number from 0 to {most:g}")
    return found
