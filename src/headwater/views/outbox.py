"""The alerts that are on their way out, kept until they arrive or are given up.

An alert is a view whose name starts with `!`: each row is one message. `take` follows its feed from a
position that is kept in the transaction that makes the deliveries, so none is missed or doubled; and
the feed of an alert is kept until it was taken, however long nobody sends. What `Pacing` has to remember of an
alert's groups is kept in that transaction too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from headwater.views.pacing import Delivery, Pacing

__all__ = ["ALERT", "AT_ONCE", "KEEP_ROWS", "Delivery", "Outbox", "Pacing"]

ALERT = "!"
"""What the names of alerts' views start with."""

AT_ONCE = Pacing()
"""Each row is a message by itself."""

KEEP_ROWS = 1000
"""How many of an alert's rows stay readable after they were taken."""


class Outbox(ABC):
    """Deliveries by the view of their alert; times are in seconds since the epoch."""

    @abstractmethod
    def take(self, view: str, limit: int = 1000, *, pacing: Pacing = AT_ONCE, now: float = 0.0) -> int:
        """Turn the next entries of an alert's feed, and groups whose quiet time is over, into deliveries.

        Returns how many of both there were: 0 when there is nothing more to do now.
        """

    @abstractmethod
    def quiet_until(self, view: str) -> float | None:
        """Return when the next quiet time of a group ends, if there is one."""

    @abstractmethod
    def waiting(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that are to be tried, soonest first."""

    @abstractmethod
    def dead(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that were given up, newest first."""

    @abstractmethod
    def counts(self, view: str) -> tuple[int, int]:
        """Return how many messages wait, taken or not, and how many were given up.

        Rows that a group holds back are one of those that wait.
        """

    @abstractmethod
    def delivered(self, view: str, tokens: Sequence[int]) -> None:
        """Forget deliveries that arrived."""

    @abstractmethod
    def failed(self, view: str, tokens: Sequence[int], *, error: str, next_at: float | None) -> None:
        """Note that a try failed; `next_at` is when to try again, or None to give up."""

    @abstractmethod
    def redrive(self, view: str) -> int:
        """Try those again that were given up, and return how many those are."""
