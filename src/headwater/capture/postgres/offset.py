"""How far a database was followed.

A position says up to which place of the log whole transactions are in their topics, and how many changes of the next
one are, for a large one is published in pieces. It also says which tables were read by a snapshot.

The first snapshot is the one that Postgres exports with a new slot: what it shows is exactly what the stream will not
repeat. It dies with its connection, so a table that it had not finished is read anew with another snapshot, and so is
a table that is captured later. Then the stream repeats what that later snapshot shows already. `Visible` says what:
the changes of those transactions are left out for that table. If some rows of the table had been published before,
nothing is left out; what happened in between is then published after the rows that show it already, and the last
record of each key is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from headwater.capture.change import Position
from headwater.capture.source import CaptureError

__all__ = ["Offset", "TableState", "Visible", "lsn_number", "lsn_text"]


def lsn_text(lsn: int) -> str:
    """Return a place in the log as Postgres writes it.

    >>> lsn_text(lsn_number("16/B374D848"))
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Return a place in the log as a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True)
class Visible:
    """The transactions that a snapshot shows: `pg_current_snapshot()`, and the log's end just after it."""

    text: str
    until: int
    """Whatever commits behind this place is not shown."""

    def shows(self, xid: int) -> bool:
        """Tell whether a transaction, by the lower 32 bits of its number, had committed.

        >>> seen = Visible("10:20:12,15", until=0)
        >>> [seen.shows(xid) for xid in (9, 10, 12, 19, 20)]
        [True, True, False, True, False]
        """
        low, high, running = self.text.split(":")
        if _is_before(xid, int(low)):
            return True
        if not _is_before(xid, int(high)):
            return False
        return xid not in {int(one) & 0xFFFFFFFF for one in running.split(",") if one}


def _is_before(xid: int, other: int) -> bool:
    """Compare numbers of transactions, of which the log has the lower 32 bits alone: they run in a circle."""
    return (xid - other) & 0xFFFFFFFF >= 0x80000000


@dataclass(frozen=True)
class TableState:
    """A table that a snapshot has read."""

    oid: int
    visible: Visible | None = None


@dataclass(frozen=True)
class Offset:
    """A position in a database."""

    system: str
    """Postgres' number of the cluster: another one has another log."""
    lsn: int
    """All transactions that committed before this place are done."""
    done: int = 0
    """So many changes of the next one are done, too."""
    tables: dict[str, TableState] = field(default_factory=dict)
    """What was read by a snapshot."""
    reading: str | None = None
    """The table of which a snapshot has published some rows."""

    def read(self, name: str, state: TableState) -> Offset:
        """Return the position once a table was read whole."""
        return replace(self, tables={**self.tables, name: state}, reading=None)

    def reached(self, lsn: int, done: int = 0) -> Offset:
        """Return the position further on in the log; what has no more to be left out is forgotten."""
        if not any(state.visible for state in self.tables.values()):
            return Offset(self.system, lsn, done, self.tables, self.reading)
        tables = {
            name: replace(state, visible=None) if state.visible and state.visible.until <= lsn else state
            for name, state in self.tables.items()
        }
        return Offset(self.system, lsn, done, tables, self.reading)

    def position(self) -> Position:
        """Return it as JSON."""
        out: dict[str, Any] = {"system": self.system, "lsn": lsn_text(self.lsn)}
        if self.done:
            out["done"] = self.done
        out["tables"] = {
            name: [state.oid, *((state.visible.text, lsn_text(state.visible.until)) if state.visible else ())]
            for name, state in self.tables.items()
        }
        if self.reading is not None:
            out["reading"] = self.reading
        return out

    @classmethod
    def parse(cls, position: Position) -> Offset:
        """Return what JSON says."""
        try:
            tables = {
                name: TableState(
                    int(oid), Visible(str(visible[0]), lsn_number(visible[1])) if visible else None
                )
                for name, (oid, *visible) in position["tables"].items()
            }
            return cls(
                str(position["system"]),
                lsn_number(position["lsn"]),
                int(position.get("done", 0)),
                tables,
                position.get("reading"),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CaptureError(
                f"the stored position {dict(position)!r} is not one of a Postgres ({error!r}):"
                " `headwater capture snapshot` starts over"
            ) from None
