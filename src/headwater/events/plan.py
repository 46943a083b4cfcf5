"""What a group of requests comes to, decided before anything is written.

The writer of a partition takes all requests that wait and decides them one after the other: each sees the
events of those before it, though nothing is stored yet. What is accepted is then written in one transaction.
No I/O here: what the store knows comes in as `Known`, the time as a number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from headwater.events.errors import BadEvent
from headwater.events.event import Event, NewEvent, as_new_events, check_name, to_json
from headwater.events.expected import ANY, Expected, check_expected
from headwater.events.fold import Fold
from headwater.events.sealing import check_available
from headwater.events.upcasting import Upcasters

__all__ = [
    "Appended",
    "Head",
    "Known",
    "Plan",
    "Planned",
    "Prepared",
    "Private",
    "Request",
    "State",
    "prepare",
]


class Head(NamedTuple):
    """Where a stream ends."""

    version: int = 0
    time_ms: int = 0


class State(NamedTuple):
    """A stream's state at a version."""

    version: int
    value: Any
    snapshot: int = 0
    """The version of the last snapshot, which it was made from."""
    erasures: int = 0
    """How many erasures there had been when it was made: it may hold what the next one erases."""


class Known(Protocol):
    """What is stored."""

    def head(self, stream: str) -> Head:
        """Return where a stream ends."""

    def command(self, stream: str, command_id: str) -> tuple[Event, ...]:
        """Return the events that a command of this id became; none where there was no such command."""

    def state(self, fold: Fold, stream: str) -> State:
        """Return a stream's state; the caller may change it."""


class Private(NamedTuple):
    """The personal data of an event, as JSON, before they are sealed."""

    subject: str | None
    """None for the stream."""
    fields: tuple[str, ...]
    text: str


class Prepared(NamedTuple):
    """A new event that was found to be storable."""

    type: str
    data: dict[str, Any]
    text: str
    """The data as JSON, without personal ones."""
    id: str
    schema: int
    private: Private | None = None


@dataclass(frozen=True)
class Request:
    """Events to append, or a command that is to become events."""

    stream: str
    events: tuple[Prepared, ...] = ()
    expected: Expected = ANY
    command_id: str | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    metadata_text: str = "{}"
    fold: Fold | None = None
    decide: Callable[[Any], object] | None = None
    """With `fold`: takes the state, and returns events or raises `Refused`."""
    upcasters: Upcasters | None = None


@dataclass(frozen=True)
class Appended:
    """What became of a request that was not refused."""

    stream: str
    version: int
    """The stream's version with these events, or without any where a command came to none."""
    events: tuple[Event, ...] = ()
    repeated: bool = False
    """Whether these are the events of an earlier command with the same id."""


class Planned(NamedTuple):
    """An event to be written, with its data and metadata as JSON."""

    event: Event
    data: str
    metadata: str
    private: Private | None = None
    sealed: str = ""
    """What became of `private`."""


def prepare(given: object, upcasters: Upcasters | None = None) -> tuple[Prepared, ...]:
    """Return new events as they can be stored; raise `BadEvent` where one cannot."""
    return tuple(_prepared(event, upcasters) for event in as_new_events(given))


def _prepared(event: NewEvent, upcasters: Upcasters | None) -> Prepared:
    kind = check_name(event.type, "an event's type")
    data = event.data
    if not isinstance(data, dict):
        try:
            data = dict(data)
        except (TypeError, ValueError):
            raise BadEvent(f"the data of {kind} are a mapping of names to values, not {data!r:.80}") from None
    if not all(isinstance(name, str) for name in data):
        raise BadEvent(f"the data of {kind} have a name that is no text")
    text = to_json(data, f"the data of {kind}")
    data = json.loads(text)  # a tuple is a list from here on, as it will be after a restart
    if event.schema is not None and (not isinstance(event.schema, int) or event.schema < 1):
        raise BadEvent(f"the schema of {kind} is a number from 1 on, not {event.schema!r}")
    schema = event.schema or (1 if upcasters is None else upcasters.newest(kind))
    identity = _random_uuid() if event.id is None else check_name(event.id, "an event's id")
    if not event.personal:
        return Prepared(kind, data, text, identity, schema)
    private = _private(event, kind, data)
    shown = {name: value for name, value in data.items() if name not in private.fields}
    return Prepared(kind, data, to_json(shown, f"the data of {kind}"), identity, schema, private)


def _private(event: NewEvent, kind: str, data: dict[str, Any]) -> Private:
    check_available()
    fields = tuple(dict.fromkeys(event.personal))
    if isinstance(event.personal, str) or any(name not in data for name in fields):
        raise BadEvent(
            f"the personal data of {kind} are a list of names in its data, not {event.personal!r:.80}"
        )
    if event.subject is not None:
        check_name(event.subject, f"the subject of {kind}")
    personal = {name: data[name] for name in fields}
    return Private(event.subject, fields, to_json(personal, f"the data of {kind}"))


def _random_uuid() -> str:
    """Return what `str(uuid.uuid4())` does, at a third of its cost."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class Plan:
    """The requests of one transaction, in the order in which they came."""

    def __init__(self, known: Known, now_ms: int) -> None:
        self.planned: list[Planned] = []
        self._states: dict[tuple[Fold, str], State] = {}
        self._known = known
        self._now_ms = now_ms
        self._heads: dict[str, Head] = {}
        self._fresh: dict[str, list[Event]] = {}
        self._commands: dict[tuple[str, str], tuple[Event, ...]] = {}

    def add(self, request: Request) -> Appended:
        """Decide one request; raise what speaks against it, and then nothing of it is planned."""
        stream = request.stream
        head = self._head(stream)
        if request.command_id is not None and (first := self._earlier(stream, request.command_id)):
            return Appended(stream, first[-1].version, first, repeated=True)
        check_expected(stream, request.expected, head.version)
        prepared = request.events if request.decide is None else self._decide(request)
        events = tuple(self._events(request, prepared, head))
        for event, new in zip(events, prepared, strict=True):
            private = new.private and new.private._replace(subject=new.private.subject or stream)
            self.planned.append(Planned(event, new.text, request.metadata_text, private))
        if events:
            self._heads[stream] = Head(events[-1].version, events[-1].time_ms)
            self._fresh.setdefault(stream, []).extend(events)
            if request.command_id is not None:
                self._commands[stream, request.command_id] = events
        return Appended(stream, head.version + len(events), events)

    @property
    def heads(self) -> dict[str, Head]:
        """Where the streams of the requests end, once the plan is carried out."""
        return self._heads

    def states(self) -> dict[tuple[Fold, str], State]:
        """Return the states that commands were decided by, as they are once the plan is carried out."""
        return {key: self._advanced(*key, state) for key, state in self._states.items()}

    def _head(self, stream: str) -> Head:
        if stream not in self._heads:
            self._heads[stream] = self._known.head(stream)
        return self._heads[stream]

    def _earlier(self, stream: str, command_id: str) -> tuple[Event, ...]:
        return self._commands.get((stream, command_id)) or self._known.command(stream, command_id)

    def _decide(self, request: Request) -> tuple[Prepared, ...]:
        fold, stream = request.fold, request.stream
        assert fold is not None
        assert request.decide is not None
        # Out of the plan while foreign code has it: what fails half-way may have left it changed.
        state = self._states.pop((fold, stream), None) or self._known.state(fold, stream)
        state = self._advanced(fold, stream, state)
        prepared = prepare(request.decide(state.value), request.upcasters)
        self._states[fold, stream] = state
        return prepared

    def _advanced(self, fold: Fold, stream: str, state: State) -> State:
        version, value = state.version, state.value
        for event in self._fresh.get(stream, ()):
            if event.version > version:
                version, value = event.version, fold.step(value, event)
        return state._replace(version=version, value=value)

    def _events(self, request: Request, prepared: Iterable[Prepared], head: Head) -> Iterable[Event]:
        time_ms = max(self._now_ms, head.time_ms)
        for number, new in enumerate(prepared, start=head.version + 1):
            yield Event(
                request.stream,
                number,
                new.type,
                new.data,
                new.id,
                time_ms,
                new.schema,
                request.command_id,
                request.causation_id,
                request.correlation_id,
                request.metadata,
                personal=() if new.private is None else new.private.fields,
            )
