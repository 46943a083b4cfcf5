"""The columns that queries may ask about, and what they hold in an event.

A query compares like with like: what is asked of a field is of its kind, and a value that is not of the field's kind,
a null and a number that is none (NaN) all count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, Literal

from headwater.pipeline.searches.words import Term, Text

__all__ = ["Document", "Fields", "Kind", "literal"]

Kind = Literal["number", "decimal", "text", "boolean", "time", "date"]
Fields = Mapping[str, Kind]

_NONE: Final[frozenset[int]] = frozenset()
_WHAT: Final = {
    "number": "a number",
    "decimal": "a number",
    "text": "a text",
    "boolean": "true or false",
    "time": 'a time with its zone, as in "2026-03-01T12:00:00Z"',
    "date": 'a date, as in "2026-03-01"',
}


def literal(kind: Kind, value: Any) -> Any:
    """Return a value of a query as one of a field's kind; raises ValueError with what it should be."""
    match kind:
        case "number" | "decimal" if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            if kind == "decimal" and (exact := Decimal(value)).is_finite():
                return exact
            if kind == "number" and isinstance(value, int):
                return value
            if kind == "number" and isfinite(number := float(value)):
                return number
        case "text" if isinstance(value, str):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "time" if isinstance(value, str):
            return _micros(value)
        case "date" if isinstance(value, str):
            return _days(value)
        case _:
            pass
    raise ValueError(f"has to be {_WHAT[kind]}")


def _micros(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"has to be {_WHAT['time']}") from None
    if time.tzinfo is None:
        raise ValueError(f"has to be {_WHAT['time']}")
    since = time - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _days(text: str) -> int:
    try:
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError:
        raise ValueError(f"has to be {_WHAT['date']}") from None


class Document:
    """An event as queries see it."""

    def __init__(
        self, fields: Fields, event: Mapping[str, Any], prefixes: Mapping[str, frozenset[int]] | None = None
    ) -> None:
        """Take an event; `prefixes` are the lengths of the prefixes that queries ask for, by field."""
        self.values = {name: _value(kind, event.get(name)) for name, kind in fields.items()}
        self._prefixes = prefixes or {}
        self._texts: dict[str, Text | None] = {}
        self._keys: dict[str, set[str]] = {}

    def holds(self, field: str, term: Term) -> bool:
        """Whether a text has a word, phrase or prefix; one that is missing has none."""
        text = self._text(field)
        return text is not None and text.holds(term)

    def keys(self, field: str) -> set[str]:
        """Return the words of a text, and the prefixes that are asked for."""
        keys = self._keys.get(field)
        if keys is None:
            text = self._text(field)
            keys = self._keys[field] = set() if text is None else text.keys(self._prefixes.get(field, _NONE))
        return keys

    def _text(self, field: str) -> Text | None:
        if field not in self._texts:
            value = self.values.get(field)
            self._texts[field] = None if value is None else Text(value)
        return self._texts[field]


def _value(kind: Kind, value: Any) -> Any:
    match kind:
        case _ if value is None:
            return None
        case "number":
            return value if type(value) is int or (type(value) is float and value == value) else None
        case "decimal":
            return _decimal(value)
        case "text":
            return value if type(value) is str else None
        case "boolean":
            return value if type(value) is bool else None
        case "time" | "date":
            return value if type(value) is int else None


def _decimal(value: Any) -> Decimal | None:
    """Return an exact number; state and rows carry it as its digits."""
    if type(value) not in (int, str, Decimal):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return None if number.is_nan() else number
