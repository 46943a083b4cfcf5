"""Where a SQLite file is to be followed from.

`seq` is the last change that was published, and `at` when it was made: a file that was restored from a backup gives the
same number to another change. A table is in `tables` with the key of the last row that its snapshot has
read, or with true once it has read all; one that is not there has not been begun. `install` tells an installation of
the change table from another one, whose numbers begin anew.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any

from headwater.capture.change import Position

__all__ = ["Key", "Offset"]

Key = tuple[Any, ...]
"""The values of a row's key, as SQLite has them."""


@dataclass
class Offset:
    """A position, as it moves."""

    install: str
    seq: int = 0
    done: set[str] = field(default_factory=set)
    """The tables whose snapshot is done."""
    after: dict[str, Key] = field(default_factory=dict)
    """By table, the last key that its snapshot has read."""
    at: int | None = None
    """The time of the last change, as the file has it; None before the first."""

    def position(self) -> Position:
        """Return it as JSON has it."""
        tables: dict[str, Any] = {name: [_encode(value) for value in key] for name, key in self.after.items()}
        tables |= dict.fromkeys(sorted(self.done), True)
        at = {} if self.at is None else {"at": self.at}
        return {"install": self.install, "seq": self.seq, **at, "tables": tables}

    @classmethod
    def of(cls, position: Position) -> Offset:
        """Return what a position says."""
        tables = position["tables"]
        done = {name for name, state in tables.items() if state is True}
        after = {
            name: tuple(_decode(v) for v in state) for name, state in tables.items() if state is not True
        }
        return cls(position["install"], position["seq"], done, after, position.get("at"))

    def reads(self, table: str) -> bool:
        """Tell whether a table's snapshot is not done."""
        return table not in self.done


def _encode(value: Any) -> Any:
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes) else value


def _decode(value: Any) -> Any:
    return b64decode(value["base64"]) if isinstance(value, dict) else value
