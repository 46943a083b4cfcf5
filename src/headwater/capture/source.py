"""What the package of a database gives: its tables, and their changes from a position on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headwater.capture.change import Batch, Position, TableSchema
from headwater.core.errors import HeadwaterError

__all__ = ["CaptureError", "Source", "TryAgain"]


class CaptureError(HeadwaterError):
    """What stops a capture until somebody does something: says what is wrong, and what to do."""


class TryAgain(CaptureError):
    """What may be over in a moment: a connection that was cut, a server that starts."""


class Source(Protocol):
    """A database that is followed; one thread uses it."""

    def describe(self) -> list[TableSchema]:
        """Return the captured tables as they are now; ask for everything that following them needs."""

    def follow(self, position: Position | None) -> Iterator[Batch]:
        """Yield what happens behind a position; without one, a snapshot first.

        Each batch is small enough for memory, whatever the size of its transaction, and can be gone on from: its
        position says how much of which transaction, or of the snapshot, has been yielded. Where nothing happens a
        batch without changes comes at least every second, so that whoever follows can stop, and acknowledge.
        """

    def acknowledge(self, position: Position) -> None:
        """Let the database forget what is before a position: all of it is in its topics."""

    def close(self) -> None:
        """Let go of the database."""
