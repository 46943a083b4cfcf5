"""What snapshots have read already of the changes in the log.

The log is followed from the place of the first snapshot. Rows that were read later, because a snapshot was interrupted
or a table was added, hold the changes up to there, which are therefore left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.capture.change import Op, Row
from headwater.capture.mysql.keys import KeyOrder
from headwater.capture.mysql.offset import Offset, Piece, Place
from headwater.capture.mysql.tables import Table
from headwater.capture.source import CaptureError

__all__ = ["Seen"]


class Seen:
    """Tells which changes are news."""

    def __init__(self, snapshot: Mapping[str, tuple[Piece, ...]] | None, order: KeyOrder) -> None:
        self.snapshot = snapshot
        self._order = order

    def settle(self, place: Place) -> None:
        """Forget everything once the log is behind it."""
        if self.snapshot is not None:
            here = Offset.order(place)
            if all(
                Offset.order(piece.place) <= here for pieces in self.snapshot.values() for piece in pieces
            ):
                self.snapshot = None

    def is_all(self, table: str, place: Place) -> bool:
        """Tell whether all of a table was read behind a place."""
        pieces = (self.snapshot or {}).get(table)
        return bool(pieces) and all(_holds(piece, place) for piece in pieces or ())

    def check_whole(self, table: Table, place: Place) -> None:
        """Raise an error where a change of a whole table is news for some of its rows only."""
        pieces = (self.snapshot or {}).get(str(table), ())
        if any(_holds(piece, place) for piece in pieces):
            raise CaptureError(
                f"{table} was truncated while its snapshot was interrupted: `headwater capture snapshot` takes a new"
                " one"
            )

    def news(
        self, table: Table, op: Op, before: Row | None, after: Row | None, place: Place
    ) -> tuple[Op, Row | None, Row | None] | None:
        """Return what of a change is news, if anything: of an update that moved a row, that may be a half."""
        pieces = (self.snapshot or {}).get(str(table))
        if not pieces:
            return op, before, after
        old = before if before is not None and self._is_news(table, before, pieces, place) else None
        new = after if after is not None and self._is_news(table, after, pieces, place) else None
        if old is None and new is None:
            return None
        if before is None or after is None or (old is not None and new is not None):
            return op, old, new
        return ("d", old, None) if new is None else ("c", None, new)

    def _is_news(self, table: Table, row: Row, pieces: tuple[Piece, ...], place: Place) -> bool:
        for piece in pieces:
            if piece.until is None or self._order.is_until(table, row, piece.until):
                return not _holds(piece, place)
        return True


def _holds(piece: Piece, place: Place) -> bool:
    """Tell whether what was read holds a transaction that begins at a place."""
    return Offset.order(place) < Offset.order(piece.place)
