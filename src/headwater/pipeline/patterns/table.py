"""The automaton as a table: what becomes of a partial match with a row is looked up by the row's symbols.

It serves patterns in which rows alone decide: no condition looks at earlier rows, and time alone completes nothing.
The partial matches from one start are then a list of threads in order of preference, and of two at the same place
the less preferred one can be dropped. Such lists are the table's states, made when they first come up. Which row
was taken for which symbol is not part of them: `path` finds that again, for the rows of a match alone.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.pipeline.patterns.automaton import ACCEPT, Automaton, Gap, Take, Thread
from headwater.pipeline.patterns.values import Row

__all__ = ["Move", "State", "Table", "unwound"]

_MOST_STATES: Final = 10_000
_MOST_MOVES: Final = 200_000

Threads = tuple[Thread, ...]


class State:
    """A list of threads, and where it leads with each mask that was seen."""

    __slots__ = ("moves", "threads")

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.moves: dict[int, Move] = {}


Move = tuple[State | None, bool, bool]
"""The next state (None: nothing is left), whether a match ends with the row, and whether the row was taken."""


class Table:
    """States and moves of one automaton, made as needed and thrown away if they become too many."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._states: dict[Threads, State] = {}
        self._moves = 0
        self.start = State(automaton.start)
        self.has_gaps = automaton.has_gaps

    def state(self, threads: Threads) -> State:
        """Return the state of a list of threads."""
        found = self._states.get(threads)
        if found is None:
            if len(self._states) >= _MOST_STATES:
                self._states.clear()
            found = self._states[threads] = State(threads)
        return found

    def move(self, state: State, mask: int) -> Move:
        """Work out where a row leads; the answer is also kept in the state."""
        threads, accepted, bound = self._advance(dict.fromkeys(state.threads), mask, None)
        move = (self.state(tuple(threads)) if threads else None, accepted is not None, bound)
        if self._moves >= _MOST_MOVES:
            for each in [self.start, *self._states.values()]:
                each.moves.clear()
            self._moves = 0
        self._moves += 1
        state.moves[mask] = move
        return move

    def path(self, rows: list[Row], first: int) -> list[tuple[int, int]]:
        """Return the preferred match over exactly these rows, as numbers of rows, from `first` on, and symbols."""
        _, node = self.replay(list(enumerate(rows, first)))
        return unwound(node)

    def replay(self, rows: list[tuple[int, Row]]) -> tuple[dict[Thread, Any], Any]:
        """Return the threads from one start after numbered rows, and its best match, each as a chain of rows."""
        threads: dict[Thread, Any] = dict.fromkeys(self._automaton.start)
        node: Any = None
        for number, row in rows:
            threads, accepted, _ = self._advance(threads, row[3], number)
            if accepted is not None:
                node = accepted
        return threads, node

    def _advance(
        self, threads: dict[Thread, Any], mask: int, number: int | None
    ) -> tuple[dict[Thread, Any], Any, bool]:
        """Return the threads after a row, the match that ends with it, if any, and whether it was taken."""
        new: dict[Thread, Any] = {}
        bound = False
        after = self._automaton.after
        for thread, node in threads.items():
            place = self._automaton.places[thread[0]]
            if mask & thread[1]:
                continue
            if isinstance(place, Take):
                options: Threads = (thread,)
            elif isinstance(place, Gap) and not mask & place.never:
                options = after[place.then]
            else:
                continue
            took = False
            for at, never in options:
                take = self._automaton.places[at]
                if mask & never or not isinstance(take, Take) or not mask >> take.symbol & 1:
                    continue
                took = bound = True
                taken = (number, take.symbol, node)
                for following in after[take.then]:
                    if following[0] == ACCEPT:
                        return new, taken, True
                    new.setdefault(following, taken)
            if isinstance(place, Gap) and (place.any or not (took or self._leaves(place, mask))):
                new.setdefault((thread[0], 0), node)
        return new, None, bound

    def _leaves(self, gap: Gap, mask: int) -> bool:
        """Tell whether a row that a round would leave out fits what comes after the repetition."""
        for at, never in self._automaton.leaving.get(gap.leave, ()):
            take = self._automaton.places[at]
            if isinstance(take, Take) and mask >> take.symbol & 1 and not mask & never:
                return True
        return False


def unwound(node: Any) -> list[tuple[int, int]]:
    """Return a chain as rows' numbers and symbols, the first row first."""
    path = []
    while node is not None:
        number, symbol, node = node
        path.append((number, symbol))
    path.reverse()
    return path
