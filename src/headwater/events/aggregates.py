"""Aggregates: streams whose state decides over commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headwater.events.event import Event
from headwater.events.fold import Fold
from headwater.events.plan import Appended

if TYPE_CHECKING:
    from headwater.events.store import EventStore

__all__ = ["Aggregates"]


class Aggregates:
    """The streams of a store as one class or function sees them. Thread-safe."""

    def __init__(self, store: EventStore, fold: Fold) -> None:
        self._store = store
        self._fold = fold

    def execute(
        self, stream: str, command: Callable[..., object], *arguments: Any, **options: Any
    ) -> Appended:
        """Run a command on a stream's state, and store the events that it returns.

        `command` takes the state and the arguments, like the method `Account.deposit`; it returns events, or
        raises `Refused`. Options are those of `EventStore.append`, such as `command_id`. Commands of one
        partition run one after the other, in the thread of its writer: none sees a state that is out of date,
        and a slow one keeps the others waiting.
        """
        return self._store.execute(
            self._fold, stream, lambda state: command(state, *arguments), **options
        ).result()

    def state(self, stream: str, *, version: int | None = None, at: datetime | None = None) -> Any:
        """Return a stream's state: now, at a version, or at a time."""
        self._store.freshen(stream)
        if at is not None:
            last = self._store.version(stream, at=at)
            version = last if version is None else min(version, last)
        state = self._store.index.state(self._fold, stream, version)
        return self._store.index.snapshot(self._fold, stream, state).value

    def history(self, stream: str) -> Iterator[tuple[Event, Any]]:
        """Yield each event of a stream with the state after it; a state that is changed in place is one object."""
        value = self._fold.start()
        for event in self._store.read(stream):
            value = self._fold.step(value, event)
            yield event, value
