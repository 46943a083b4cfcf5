"""What an event store refuses, and why.

EventError               the root of this package's tree
├── WrongVersion         an append whose expected version is not the stream's: read it again and decide anew
├── Refused              a command that the aggregate's state does not allow; commands raise it themselves
├── BadEvent             an event, a command or a name that cannot be stored
├── UpcastError          an event that this application's upcasters cannot bring up to date
├── WriterFenced         another process writes this partition now; nothing of the append was stored
├── Unavailable          the broker cannot be reached; nothing of the append was stored
├── OutcomeUnknown       the broker went away before it said whether the events are stored
└── StaleIndex           an index that does not fit its topic, or is in use
"""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = [
    "BadEvent",
    "EventError",
    "OutcomeUnknown",
    "Refused",
    "StaleIndex",
    "Unavailable",
    "UpcastError",
    "WriterFenced",
    "WrongVersion",
]


class EventError(HeadwaterError):
    """Something that an event store refuses or cannot do."""

    is_passing = False
    """Whether the same request may succeed in a moment."""


class WrongVersion(EventError):
    """An append that expects another version than the stream has."""

    def __init__(self, stream: str, expected: str, actual: int) -> None:
        self.stream = stream
        self.actual = actual
        """The version that the stream has; 0 where it has no events."""
        found = f"is at version {actual}" if actual else "has no events"
        super().__init__(
            f"the stream {stream} {found}, and {expected} was expected: read it again, then decide anew"
        )


class Refused(EventError):
    """A command that the state of its aggregate does not allow.

    >>> raise Refused("the balance of 5 does not cover 10")
    Traceback (most recent call last):
    headwater.events.errors.Refused: the balance of 5 does not cover 10
    """


class BadEvent(EventError):
    """An event, a command or a name that cannot be stored."""


class UpcastError(EventError):
    """An event that cannot be brought up to date."""


class WriterFenced(EventError):
    """Another process has taken over the partition; nothing of the append was stored."""


class Unavailable(EventError):
    """The broker cannot be reached; nothing of the append was stored."""

    is_passing = True


class OutcomeUnknown(EventError):
    """The broker went away before it said whether the events are stored."""

    is_passing = True


class StaleIndex(EventError):
    """An index file that does not fit its topic, or that somebody else is using."""
