"""Settings as data: name, type, default, validator and help in one declaration.

A `Settings` table is a tuple of `Setting`; the command line, the topic configurations that Kafka's
`DescribeConfigs` answers with, and the reference in the docs are all made from such tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any

from headwater.core.errors import SettingError


class Kind(Enum):
    """The type of a setting; the values are the numbers of Kafka's `ConfigDef.Type` on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Value = bool | str | int | float | tuple[str, ...] | None
Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, or None when it fits."""


def between(low: float, high: float | None = None) -> Check:
    """Return a check that a number is at least `low` and at most `high`."""

    def check(value: Any) -> str | None:
        if value < low:
            return f"must be at least {low}"
        if high is not None and value > high:
            return f"must be at most {high}"
        return None

    return check


def one_of(*choices: str) -> Check:
    """Return a check that a string, or each string of a list, is one of `choices`."""

    def check(value: Any) -> str | None:
        for item in value if isinstance(value, tuple) else (value,):
            if item not in choices:
                return f"must be one of {', '.join(choices)}"
        return None

    return check


_BOUNDS = {Kind.SHORT: 2**15, Kind.INT: 2**31, Kind.LONG: 2**63}


@dataclass(frozen=True)
class Setting:
    """One setting: what it is called, what it takes, what it means."""

    name: str
    kind: Kind
    default: Value
    help: str
    check: Check | None = None

    def parse(self, text: str) -> Value:
        """Return the value that `text` stands for, or raise `SettingError`."""
        value = self._convert(text.strip())
        problem = self.check(value) if self.check is not None else None
        if problem:
            raise SettingError(f"{self.name}={text} does not fit: it {problem}")
        return value

    def text(self, value: Value) -> str | None:
        """Return `value` as the text that `parse` takes."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _convert(self, text: str) -> Value:
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise SettingError(f"{self.name}={text} does not fit: it must be true or false")
                return text.lower() == "true"
            case Kind.INT | Kind.LONG | Kind.SHORT:
                try:
                    number = int(_without_underscores(text))
                except ValueError:
                    raise SettingError(
                        f"{self.name}={text} does not fit: it must be a whole number"
                    ) from None
                bound = _BOUNDS[self.kind]
                if not -bound <= number < bound:
                    raise SettingError(f"{self.name}={text} does not fit: it is out of the type's range")
                return number
            case Kind.DOUBLE:
                try:
                    return float(_without_underscores(text))
                except ValueError:
                    raise SettingError(f"{self.name}={text} does not fit: it must be a number") from None
            case Kind.LIST:
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case _:
                return text


def _without_underscores(text: str) -> str:
    """Return a number's text, or raise ValueError for the underscores that only Python's numbers may have."""
    if "_" in text:
        raise ValueError
    return text


class Settings:
    """A table of settings, by name."""

    def __init__(self, *settings: Setting) -> None:
        self._by_name = {setting.name: setting for setting in settings}
        if len(self._by_name) != len(settings):
            raise ValueError("a setting is declared twice")

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Setting:
        try:
            return self._by_name[name]
        except KeyError:
            close = get_close_matches(name, self._by_name, 1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise SettingError(
                f"there is no setting named {name}{meant}: `headwater settings` lists them"
            ) from None

    def resolve(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Return every setting's value: the given text parsed, or the default."""
        for name in given:
            self[name]
        return {s.name: s.parse(given[s.name]) if s.name in given else s.default for s in self}
