"""The event store: streams of immutable events with expected versions, straight on the log."""

from __future__ import annotations

from headwater.events.aggregates import Aggregates
from headwater.events.errors import (
    BadEvent,
    EventError,
    OutcomeUnknown,
    Refused,
    StaleIndex,
    Unavailable,
    UpcastError,
    WriterFenced,
    WrongVersion,
)
from headwater.events.event import Event, NewEvent
from headwater.events.expected import ANY, NO_STREAM, STREAM_EXISTS, Expected
from headwater.events.plan import Appended
from headwater.events.projection import Projection, StaleProjection
from headwater.events.store import EventStore
from headwater.events.upcasting import Upcasters

__all__ = [
    "ANY",
    "NO_STREAM",
    "STREAM_EXISTS",
    "Aggregates",
    "Appended",
    "BadEvent",
    "Event",
    "EventError",
    "EventStore",
    "Expected",
    "NewEvent",
    "OutcomeUnknown",
    "Projection",
    "Refused",
    "StaleIndex",
    "StaleProjection",
    "Unavailable",
    "UpcastError",
    "Upcasters",
    "WriterFenced",
    "WrongVersion",
]
