"""Follows a server as a runner does, and keeps what its changes lead to; for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from capture.following import Following, Rows, key_of
from headwater.capture.change import Change
from headwater.capture.mysql import open_source
from headwater.capture.source import Source


def rows_of(url: str, tables: Sequence[str]) -> Rows:
    """Return the rows that tables have now, by their keys, as a snapshot reads them."""
    with Follower(url, tables) as reader:
        reader.read_snapshot()
        return reader.rows


class Follower(Following[Source]):
    """The rows that a source's changes lead to; every change has to fit to what is there."""

    def open(self) -> Source:
        """Return a new source."""
        return open_source(self.url, self.tables, name="test")

    @property
    def has_read(self) -> bool:
        """Whether all tables have been read."""
        return self.position is not None and all(
            pieces and pieces[-1][0] is None for pieces in self.position.get("snapshot", {}).values()
        )

    def read_snapshot(self) -> None:
        """Take batches in until all tables have been read."""
        self.until(lambda: self.has_read)

    def settle(self, seconds: float = 30) -> None:
        """Take batches in until nothing more comes."""
        deadline = time.monotonic() + seconds
        self.read_snapshot()
        while self.step().changes:
            assert time.monotonic() < deadline, f"not within {seconds} s"

    def apply(self, change: Change) -> None:
        """Take a change into the rows; the row before has to be the one that is there."""
        rows = self.rows.setdefault(change.table.name, {})
        if change.op == "t":
            rows.clear()
            return
        if change.before is not None:
            known = rows.pop(key_of(change, change.before), None)
            assert known is not None, change
            assert known == change.before or len(known) != len(change.before), (known, change)
        if change.after is not None:
            key = key_of(change, change.after)
            assert key not in rows, change
            rows[key] = change.after
