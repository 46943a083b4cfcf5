"""Events: what an application hands in, and what a stream holds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from headwater.events.errors import BadEvent

__all__ = ["Event", "NewEvent", "as_new_events", "check_name", "to_json"]

_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
MAX_NAME = 255
"""Characters of a stream's or a type's name, or of an id."""


@dataclass(frozen=True)
class NewEvent:
    """An event that is about to be stored: its type, and data that JSON can hold.

    Instead of one, any function here takes a dataclass's instance: its class's name is the type, and a field made by
    `field(metadata={"personal": True})` is personal.

    >>> NewEvent("Deposited", {"amount": 10}).type
    'Deposited'
    """

    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    """Made up where none is given."""
    schema: int | None = None
    """Which form its data have; the newest one that the store's upcasters know, unless given."""
    personal: Sequence[str] = ()
    """Which of the data can be erased: they are sealed with a key of the subject."""
    subject: str | None = None
    """Whom the personal data are about; the stream's name, unless given."""


@dataclass(frozen=True)
class Event:
    """An event of a stream, as it was stored or as upcasters made it."""

    stream: str
    version: int
    """Its number in the stream; the first is 1."""
    type: str
    data: dict[str, Any]
    id: str
    time_ms: int
    """When it was stored, in ms since 1970; within a stream it never goes back."""
    schema: int = 1
    command_id: str | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    partition: int = -1
    offset: int = -1
    personal: tuple[str, ...] = ()
    """Which of the data can be erased."""
    erased: bool = False
    """Whether they were: then each of them is None."""
    key_id: str | None = field(default=None, repr=False)
    """Which key they are sealed with."""

    @property
    def time(self) -> datetime:
        """When it was stored, in UTC."""
        return datetime.fromtimestamp(self.time_ms / 1000, UTC)

    def as_dict(self) -> dict[str, Any]:
        """Return what people are shown: all that is said of the event, without what is not."""
        said: dict[str, Any] = {"version": self.version, "type": self.type, "time": iso(self.time_ms)}
        said |= {"data": self.data, "id": self.id}
        if self.schema != 1:
            said["schema"] = self.schema
        for name in ("command_id", "causation_id", "correlation_id", "metadata"):
            if value := getattr(self, name):
                said[name] = value
        if self.personal:
            said |= {"personal": list(self.personal), "erased": self.erased}
        return said


@lru_cache(maxsize=64)  # the events of a transaction have few times
def iso(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds.

    >>> iso(1_767_225_600_250)
    '2026-01-01T00:00:00.250Z'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def to_json(value: object, what: str) -> str:
    """Return a value as JSON; raise `BadEvent`, naming what it is, where JSON cannot hold it."""
    try:
        text = _ENCODE(value)
        text.encode()  # half of a surrogate pair is text for Python, and for nobody else
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEvent(f"{what} cannot be JSON: {error}") from None
    return text


def check_name(text: object, what: str) -> str:
    """Return a stream's name, a type or an id; raise `BadEvent` where it cannot be one.

    >>> check_name("", "a stream's name")
    Traceback (most recent call last):
    headwater.events.errors.BadEvent: a stream's name is text of 1 to 255 characters, not ''
    """
    if not isinstance(text, str) or not 0 < len(text) <= MAX_NAME:
        raise BadEvent(f"{what} is text of 1 to {MAX_NAME} characters, not {text!r:.80}")
    if not text.isprintable():
        raise BadEvent(f"{what} is printable text, not {text!r:.80}")
    return text


def as_new_events(given: object) -> list[NewEvent]:
    """Return what a caller handed in, one event or several, each a `NewEvent` or a dataclass."""
    if given is None:
        return []
    if isinstance(given, NewEvent) or _is_record(given):
        return [_as_new_event(given)]
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return [_as_new_event(each) for each in given]
    raise _no_event(given)


def _as_new_event(given: object) -> NewEvent:
    if isinstance(given, NewEvent):
        return given
    if _is_record(given):
        data = dataclasses.asdict(given)  # type: ignore[call-overload]
        fields = dataclasses.fields(given)  # type: ignore[arg-type]
        personal = tuple(each.name for each in fields if each.metadata.get("personal"))
        return NewEvent(type(given).__name__, data, personal=personal)
    raise _no_event(given)


def _is_record(given: object) -> bool:
    return dataclasses.is_dataclass(given) and not isinstance(given, type)


def _no_event(given: object) -> BadEvent:
    return BadEvent(
        f"{given!r:.80} is no event: give NewEvent(TYPE, DATA), an instance of a dataclass, or a list of them"
    )
