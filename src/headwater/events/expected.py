"""What an append may expect of its stream before it is let in."""

from __future__ import annotations

from enum import Enum

from headwater.events.errors import BadEvent, WrongVersion

__all__ = ["ANY", "NO_STREAM", "STREAM_EXISTS", "Expected", "check_expected"]


class _State(Enum):
    ANY = "any version"
    NO_STREAM = "no events"
    STREAM_EXISTS = "at least one event"


Expected = int | _State
"""An exact version, 0 for none yet, or `ANY`, `NO_STREAM`, `STREAM_EXISTS`."""

ANY = _State.ANY
"""Append whatever the stream holds."""
NO_STREAM = _State.NO_STREAM
"""Append the first events of a stream; the same as version 0."""
STREAM_EXISTS = _State.STREAM_EXISTS
"""Append to a stream that has events."""


def check_expected(stream: str, expected: Expected, actual: int) -> None:
    """Raise `WrongVersion` where a stream's version is not what an append expects.

    >>> check_expected("ann", 3, 5)
    Traceback (most recent call last):
    headwater.events.errors.WrongVersion: the stream ann is at version 5, and version 3 was expected: ...
    """
    match expected:
        case _State.ANY:
            fits = True
        case _State.NO_STREAM:
            fits = actual == 0
        case _State.STREAM_EXISTS:
            fits = actual > 0
        case bool():
            raise BadEvent(
                f"an expected version is a number or ANY, NO_STREAM, STREAM_EXISTS, not {expected}"
            )
        case int():
            fits = actual == expected
    if not fits:
        said = expected.value if isinstance(expected, _State) else f"version {expected}"
        raise WrongVersion(stream, said, actual)
