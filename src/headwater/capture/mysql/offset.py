"""Where a server is followed from: a place in its binary log, and what is known of the tables there.

    {"file": "binlog.000003", "pos": 1234, "gtid": "0-1-45", "tables": "…",
     "transaction": "0-1-46", "event": 2, "row": 100,                  in the middle of one
     "snapshot": {"shop.users": [[["7"], "binlog.000003", 900]]}}     while there is one, see `Piece`

`file`, `pos` and `gtid` are where a transaction has ended, so that all of the next one can be asked for; `event` and
`row` are how many of its events with rows, and of the rows of the event after these, have been yielded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from headwater.capture.change import Position
from headwater.capture.source import CaptureError

__all__ = ["Gtids", "Offset", "Piece", "Place"]

Place = tuple[str, int]
"""A file and a position in it; ordered by `Offset.order`."""


@dataclass(frozen=True)
class Piece:
    """Rows of a table that a snapshot read at one place: those up to a key, the last one's included."""

    until: tuple[str, ...] | None
    """The key, as JSON texts; None where it is all the rest of the table."""
    place: Place


class Gtids:
    """The transactions that have been seen, by their GTIDs.

    MariaDB's state is the last one of each domain, MySQL's a set of intervals for each server.

    >>> str(Gtids("0-1-45").add("0-1-46"))
    '0-1-46'
    >>> str(Gtids("a:1-3").add("a:5").add("a:4"))
    'a:1-5'
    """

    def __init__(self, text: str) -> None:
        self._domains: dict[str, str] = {}
        self._servers: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, re.split(r"[,\s]+", text)):
            server, *intervals = part.split(":")
            if not intervals:
                self._domains[part.partition("-")[0]] = part
            for interval in intervals:
                first, _, last = interval.partition("-")
                if not first.isdigit():
                    raise CaptureError(
                        f"the GTID {part} has a tag, which is not known here: leave the tags out"
                    )
                self._include(server.lower(), int(first), int(last or first))

    def add(self, gtid: str) -> Self:
        """Include one more."""
        server, colon, number = gtid.partition(":")
        if colon:
            self._include(server, int(number), int(number))
        else:
            self._domains[gtid.partition("-")[0]] = gtid
        return self

    @property
    def is_mariadb(self) -> bool:
        """Whether there are some of MariaDB's form."""
        return bool(self._domains)

    @property
    def servers(self) -> frozenset[str]:
        """The names of the servers of MySQL that they are from."""
        return frozenset(self._servers)

    def __str__(self) -> str:
        parts = [self._domains[domain] for domain in sorted(self._domains, key=int)]
        for server in sorted(self._servers):
            texts = (
                f"{first}-{last}" if last > first else f"{first}" for first, last in self._servers[server]
            )
            parts.append(":".join((server, *texts)))
        return ",".join(parts)

    def _include(self, server: str, first: int, last: int) -> None:
        intervals = self._servers.setdefault(server, [])
        if intervals and intervals[-1][1] + 1 == first:  # as nearly all come
            intervals[-1] = (intervals[-1][0], last)
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*intervals, (first, last)]):
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._servers[server] = merged


@dataclass(frozen=True)
class Offset:
    """A position, taken apart."""

    file: str
    pos: int
    gtid: str | None
    tables: str
    """What `dump_tables` wrote: the tables as they were there."""
    transaction: str | None = None
    """The one of which some has been yielded: its GTID, or where it begins."""
    event: int = 0
    row: int = 0
    snapshot: Mapping[str, tuple[Piece, ...]] | None = None
    """What has been read of each table; None once changes are all that comes."""

    @classmethod
    def parse(cls, position: Position) -> Self:
        """Read what `position` wrote."""
        try:
            snapshot = position.get("snapshot")
            return cls(
                position["file"],
                position["pos"],
                position.get("gtid"),
                position["tables"],
                position.get("transaction"),
                position.get("event", 0),
                position.get("row", 0),
                None if snapshot is None else {name: _pieces(found) for name, found in snapshot.items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CaptureError(
                f"{dict(position)} is no position in a binary log: start again with a new snapshot"
            ) from None

    @property
    def position(self) -> dict[str, Any]:
        """As it is stored."""
        found: dict[str, Any] = {"file": self.file, "pos": self.pos, "tables": self.tables}
        if self.gtid is not None:
            found["gtid"] = self.gtid
        if self.transaction is not None:
            found |= {"transaction": self.transaction, "event": self.event, "row": self.row}
        if self.snapshot is not None:
            found["snapshot"] = {
                name: [[None if piece.until is None else list(piece.until), *piece.place] for piece in pieces]
                for name, pieces in self.snapshot.items()
            }
        return found

    @property
    def place(self) -> Place:
        """Where in the log it is."""
        return self.file, self.pos

    @staticmethod
    def order(place: Place) -> tuple[int, int]:
        """Return what places of one log are ordered by: the file's number, and the position."""
        number = place[0].rpartition(".")[2]
        return int(number) if number.isdigit() else 0, place[1]

    def settled(self) -> Offset:
        """Return the same without what a snapshot read, where the log is behind all of that."""
        if self.snapshot is None:
            return self
        here = self.order(self.place)
        for pieces in self.snapshot.values():
            if not pieces or pieces[-1].until is not None:
                return self
            if any(self.order(piece.place) > here for piece in pieces):
                return self
        return replace(self, snapshot=None)


def _pieces(found: Any) -> tuple[Piece, ...]:
    return tuple(Piece(None if until is None else tuple(until), (file, pos)) for until, file, pos in found)
