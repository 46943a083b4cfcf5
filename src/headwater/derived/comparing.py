"""A table and what is derived from it, compared row by row, in a file: memory is bounded whatever their size.

One side is put into a temporary file by key; the rows of the database are then looked up in it, and what is left over
is too much. A database that is written to meanwhile is ahead of what is derived from it. So where a pass finds
differences there are further ones, each a little later, until no more of the differences go away. Only what both sides
have said the same way in every pass is a difference; the rest is still changing.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headwater.derived.decode import parse_object

__all__ = ["Comparison", "Difference", "Report", "Side", "compare", "pieces"]

Kind = Literal["missing", "extra", "different"]

Side = Callable[[], Iterable[list[tuple[str, str | None]]]]
"""Gives the rows of a side in pieces: keys, and rows as JSON objects; None takes a row back."""

_PASSES = 3
_MOST_PASSES = 10
_CHUNK = 400
"""SQLite takes so many parameters, and some more."""


@dataclass(frozen=True)
class Difference:
    """A row that is not the same on both sides."""

    kind: Kind
    key: str
    columns: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Of a different one, the columns that differ: in the database, and in what is derived."""

    def __str__(self) -> str:
        if self.kind != "different":
            return f"{self.kind} {self.key}"
        said = ", ".join(f"{name} is {_shown(a)}, not {_shown(b)}" for name, (a, b) in self.columns.items())
        return f"different {self.key}: {said}"


@dataclass(frozen=True)
class Report:
    """What a comparison has found."""

    rows: int
    """Of the database."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    changing: int = 0
    """Rows that were written to while they were compared, and cannot be judged."""
    first: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return not (self.missing or self.extra or self.different)


def compare(
    source: Side,
    derived: Side,
    *,
    most: int = 20,
    wait_seconds: float = 2.0,
    directory: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Return how a database's rows and derived ones differ; the first `most` differences are told in full."""
    with tempfile.TemporaryDirectory(prefix="headwater-verify-", dir=directory) as place:
        comparison = Comparison(Path(place) / "rows.db")
        try:
            left: list[int] = []
            while True:
                rows = comparison.run(source, derived)
                left.append(comparison.settle(is_first=not left))
                settled = len(left) >= _PASSES and left[-1] == left[-2]
                if not left[-1] or settled or len(left) == _MOST_PASSES:
                    return comparison.report(rows, most)
                sleep(wait_seconds)
        finally:
            comparison.close()


class Comparison:
    """The file that two sides are compared in."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.executescript(
            """
            PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;
            CREATE TABLE derived (key TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID;
            CREATE TABLE found (key TEXT PRIMARY KEY, kind TEXT, source TEXT, derived TEXT) WITHOUT ROWID;
            CREATE TABLE lasting (key TEXT PRIMARY KEY, kind TEXT, source TEXT, derived TEXT) WITHOUT ROWID;
            """
        )

    def run(self, source: Side, derived: Side) -> int:
        """Compare once, and return how many rows the database has."""
        self._file.executescript("DELETE FROM derived; DELETE FROM found")
        for piece in derived():
            self._stage(piece)
        rows = 0
        self._file.execute("BEGIN")
        for piece in source():
            rows += len(piece)
            for start in range(0, len(piece), _CHUNK):
                self._look_up(piece[start : start + _CHUNK])
        self._file.execute("INSERT OR REPLACE INTO found SELECT key, 'extra', '', row FROM derived")
        self._file.execute("COMMIT")
        return rows

    def settle(self, *, is_first: bool) -> int:
        """Return how many differences every pass so far has found in the same way."""
        if is_first:
            self._file.execute("INSERT INTO lasting SELECT * FROM found")
        else:
            same = "SELECT key, kind, source, derived FROM found"
            self._file.execute(f"DELETE FROM lasting WHERE (key, kind, source, derived) NOT IN ({same})")
        return self._count("lasting")

    def _count(self, table: str) -> int:
        [count] = self._file.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def report(self, rows: int, most: int) -> Report:
        """Return what all passes agree on."""
        counts = dict(self._file.execute("SELECT kind, count(*) FROM lasting GROUP BY kind").fetchall())
        told = self._file.execute(
            "SELECT kind, key, source, derived FROM lasting ORDER BY key LIMIT ?", (most,)
        ).fetchall()
        first = tuple(
            Difference(kind, key, _columns(one, other) if kind == "different" else {})
            for kind, key, one, other in told
        )
        return Report(
            rows,
            counts.get("missing", 0),
            counts.get("extra", 0),
            counts.get("different", 0),
            self._count("found") - sum(counts.values()),
            first,
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _stage(self, piece: list[tuple[str, str | None]]) -> None:
        self._file.execute("BEGIN")
        for key, row in piece:
            if row is None:
                self._file.execute("DELETE FROM derived WHERE key = ?", (key,))
            else:
                self._file.execute("INSERT OR REPLACE INTO derived VALUES (?, ?)", (key, row))
        self._file.execute("COMMIT")

    def _look_up(self, piece: list[tuple[str, str | None]]) -> None:
        marks = ", ".join("?" * len(piece))
        keys = [key for key, _ in piece]
        there = dict(self._file.execute(f"SELECT key, row FROM derived WHERE key IN ({marks})", keys))
        wrong: list[tuple[str, Kind, str, str]] = []
        for key, row in piece:
            assert row is not None
            other = there.get(key)
            if other is None:
                wrong.append((key, "missing", row, ""))
            elif row != other and _columns(row, other):
                wrong.append((key, "different", row, other))
        self._file.executemany("DELETE FROM derived WHERE key = ?", [(key,) for key in there])
        self._file.executemany("INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?)", wrong)


def _columns(source: str, derived: str) -> dict[str, tuple[Any, Any]]:
    """Return the columns of the database's row that are others in the derived one; a missing one is null."""
    one, other = parse_object(source), parse_object(derived)
    return {name: (value, other.get(name)) for name, value in one.items() if value != other.get(name)}


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


def pieces(
    rows: Iterable[tuple[str, str | None]], size: int = 5000
) -> Iterator[list[tuple[str, str | None]]]:
    """Yield rows in pieces."""
    piece: list[tuple[str, str | None]] = []
    for each in rows:
        piece.append(each)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece
