"""What a partition's writer keeps in memory between transactions: where streams end, and states of aggregates.

Only the writer changes its streams, so what it holds is brought up to date by the events since. Each query of
the index would let go of the interpreter lock and queue for it again, behind every caller that waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from headwater.events.event import Event
from headwater.events.fold import Fold
from headwater.events.index import Index
from headwater.events.plan import Head, State

__all__ = ["States"]

_MOST = 10_000


class States:
    """What is stored, with the states that were needed last."""

    def __init__(self, index: Index, most: int = _MOST) -> None:
        self._index = index
        self._most = most
        self._states: OrderedDict[tuple[str, Fold], State] = OrderedDict()
        self._heads: OrderedDict[str, Head] = OrderedDict()

    def head(self, stream: str) -> Head:
        """Return where a stream ends."""
        return self._heads.get(stream) or self._index.head(stream)

    def command(self, stream: str, command_id: str) -> tuple[Event, ...]:
        """Return the events that a command became."""
        return self._index.command(stream, command_id)

    def state(self, fold: Fold, stream: str) -> State:
        """Return a stream's state, and forget it: a plan hands it back when it was carried out."""
        held = self._states.pop((stream, fold), None)
        if held is None:
            return self._index.state(fold, stream)
        version, value = held.version, held.value
        if version == self.head(stream).version:
            return held
        for event in self._index.events(stream, after=version):
            version, value = event.version, fold.step(value, event)
        return held._replace(version=version, value=value)

    def note(self, heads: Mapping[str, Head]) -> None:
        """Hold where streams end now."""
        self._heads.update(heads)
        for stream in heads:
            self._heads.move_to_end(stream)
        while len(self._heads) > self._most:
            self._heads.popitem(last=False)

    def keep(self, states: Mapping[tuple[Fold, str], State]) -> None:
        """Hold states for the next commands, and a snapshot of those whose turn it is."""
        for (fold, stream), state in states.items():
            self._states[stream, fold] = self._index.snapshot(fold, stream, state)
            self._states.move_to_end((stream, fold))
        while len(self._states) > self._most:
            self._states.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: somebody else may have written."""
        self._states.clear()
        self._heads.clear()
