"""The alerts that are on their way out, kept until they arrive or are given up.

An alert is a view whose name starts with `!`: each row is one message. `take` follows its feed from a
position that is kept in the transaction that makes the deliveries, so none is missed or doubled; and
the feed of an alert is kept until it was taken, however long nobody sends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ALERT", "Delivery", "Outbox"]

ALERT = "!"
"""What the names of alerts' views start with."""


class Delivery(NamedTuple):
    """A message on its way: how often it was tried, when it is next, and what went wrong last."""

    token: int
    key: str
    row: str
    tries: int
    next_at: float
    error: str | None


class Outbox(ABC):
    """Deliveries by the view of their alert; times are in seconds since the epoch."""

    @abstractmethod
    def take(self, view: str, limit: int = 1000) -> int:
        """Turn the next entries of an alert's feed into deliveries, and return how many it read."""

    @abstractmethod
    def waiting(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that are to be tried, soonest first."""

    @abstractmethod
    def dead(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that were given up, newest first."""

    @abstractmethod
    def counts(self, view: str) -> tuple[int, int]:
        """Return how many messages wait, taken or not, and how many were given up."""

    @abstractmethod
    def delivered(self, view: str, tokens: Sequence[int]) -> None:
        """Forget deliveries that arrived."""

    @abstractmethod
    def failed(self, view: str, token: int, *, error: str, next_at: float | None) -> None:
        """Note that a try failed; `next_at` is when to try again, or None to give up."""

    @abstractmethod
    def redrive(self, view: str) -> int:
        """Try those again that were given up, and return how many those are."""
