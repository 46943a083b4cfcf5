"""What a derived store gives, whatever it is.

A store holds rows by key and one position, and `apply` changes both at once: whoever looks sees both or neither,
and so does a process that starts after the last one was killed. Nothing is repeated and nothing left out.

`apply` is told the position that the rows follow. Where the store is at another one, it changes nothing and raises
`Switched`: two processes that follow the same table do no harm, and neither does one that goes on after the store
was built anew. Building anew happens beside the live store: `beside` gives an empty one, `switch` puts it in the live
one's place, at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from headwater.derived.change import Position, Row

__all__ = ["Prepared", "Store"]

Prepared = Mapping[str, Any]
"""By key, what `take` made of a row; None for a deleted one."""


class Store(Protocol):
    """A search index, a cache or a warehouse; one thread uses it."""

    gather_seconds: float
    """How long changes are gathered before they are applied."""
    gather_changes: int
    """How many changes are applied at once at most."""
    shape: str
    """What the store is declared with, as far as another declaration needs another store."""

    def position(self) -> Position | None:
        """Return how far the store is; None for an empty one."""

    def take(self, row: Row) -> Any:
        """Return a row in the form that `apply` wants; raise `Unreadable` for one that the store cannot hold."""

    def apply(self, changes: Prepared, base: Position | None, position: Position) -> None:
        """Change rows and position at once; raise `Switched` where the store is not at `base`."""

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Yield all keys and rows, a row as JSON text or as a list of values."""

    def count(self) -> int:
        """Return how many rows there are."""

    def beside(self) -> Store:
        """Return an empty store that readers do not see; what was left of an earlier one goes."""

    def switch(self, beside: Any) -> None:
        """Put a store that was built beside in this one's place; raise `Behind` where it has read less."""

    def close(self) -> None:
        """Let go of files and connections."""
