"""Durations as people write them: "2 minutes", "1 hour 30 minutes", "500 ms"."""

from __future__ import annotations

import re
from typing import Final

from headwater.core.errors import SettingError

_UNITS: Final = {"week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}
_UNITS["millisecond"] = 1
_SHORT: Final = {"w": "week", "d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond"}
_PART: Final = re.compile(r"\s*(\d+)\s*([a-z]+)\s*", re.IGNORECASE)
# Spark keeps time as 64-bit microseconds; a bound far below leaves room to add durations to times.
_LONGEST: Final = 1000 * 366 * _UNITS["day"]


def milliseconds(text: str) -> int:
    """Return how many milliseconds a duration has.

    >>> milliseconds("2 minutes"), milliseconds("1 hour 30 minutes"), milliseconds("500 ms")
    (120000, 5400000, 500)
    """
    total, position = 0, 0
    if not isinstance(text, str) or not text.strip():
        raise SettingError(f"{text!r} is not a duration; {_FIX}")
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise SettingError(f"{text!r} is not a duration at {text[position:].strip()!r}; {_FIX}")
        total += int(part[1]) * _unit(text, part[2])
        position = part.end()
    if total > _LONGEST:
        raise SettingError(f"{text!r} is longer than 1000 years; use a shorter duration")
    return total


def text(milliseconds: int) -> str:
    """Return a duration as `milliseconds` reads it.

    >>> text(5_400_000), text(0)
    ('1 hour 30 minutes', '0 seconds')
    """
    if milliseconds < 0:
        raise ValueError(f"a duration of {milliseconds} ms")
    parts = []
    for unit, size in _UNITS.items():
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


_FIX: Final = (
    'write numbers and units, as in "2 minutes" or "1 hour 30 minutes"; the units are '
    + ", ".join([*_UNITS][:-1])
    + " and millisecond"
)


def _unit(text: str, name: str) -> int:
    unit = name.lower()
    unit = _SHORT.get(unit) or unit.removesuffix("s")
    if unit in ("month", "year", "quarter"):
        raise SettingError(f"{text!r} is not a duration: a {unit} has no fixed length; write it in days")
    if unit not in _UNITS:
        raise SettingError(f"{text!r} is not a duration: {name!r} is no unit; {_FIX}")
    return _UNITS[unit]
