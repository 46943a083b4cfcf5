"""Searches in an index, for whoever reads it: commands, the HTTP server, an application.

>>> Search(Path("headwater-data/derived/articles")).find("quick fox year:[2020 TO *]").hits   # doctest: +SKIP
[Hit(key='17', score=4.2, text='{"id":17,"title":"The quick brown fox","year":2024}')]
"""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, cast

from headwater.derived.errors import DerivedError
from headwater.derived.index import ABOUT
from headwater.derived.index_fields import KEY, POSITION, ROW

__all__ = ["BadQuery", "Found", "Hit", "Search"]

MAX_HITS = 1000
_MOST_LETTERS = 10_000
_MOST_PARENTHESES = 500
"""Whoever parses a query goes down a step for each, and the whole process with it where there is no more room."""


class BadQuery(DerivedError):
    """A query that does not read."""


class Hit(NamedTuple):
    """A row that was found; the higher the score, the better it fits."""

    key: str
    score: float
    text: str
    """The row, as JSON."""

    @property
    def row(self) -> dict[str, Any]:
        """Return what the row's columns hold."""
        return cast(dict[str, Any], json.loads(self.text))


class Found(NamedTuple):
    """The best of what was found, and how many there are."""

    hits: list[Hit]
    total: int


class Search:
    """An index that is read; from any thread."""

    def __init__(self, directory: Path) -> None:
        try:
            import tantivy
        except ModuleNotFoundError:
            raise DerivedError("tantivy is not installed: pip install 'headwater[index]'") from None
        self._tantivy = tantivy
        self.directory = directory
        self._lock = Lock()
        self._generation = ""
        self._index: Any = None
        self._text: list[str] = []

    def find(self, query: str, *, limit: int = 10, offset: int = 0) -> Found:
        """Return the rows that a query finds, best first.

        `quick fox` finds rows with one of the words or both, `+quick +fox` both, `"quick fox"` the phrase;
        `city:"New York"` a value; `year:[2020 TO *]` a range; AND, OR, NOT and parentheses combine. `*` is all.
        """
        index, searcher = self._searcher()
        wanted, query_type, occur = self._parse(index, query), self._tantivy.Query, self._tantivy.Occur
        position = query_type.term_query(index.schema, POSITION, "position")
        both = query_type.boolean_query([(occur.Must, wanted), (occur.MustNot, position)])
        found = searcher.search(both, max(1, min(limit, MAX_HITS)), offset=offset)
        hits = []
        for score, address in found.hits if limit else []:
            document = searcher.doc(address)
            text = bytes(document.get_first(ROW)).decode()
            hits.append(Hit(document.get_first(KEY), round(float(score), 4), text))
        return Found(hits, int(found.count))

    def _searcher(self) -> tuple[Any, Any]:
        for is_last in (False, True):
            index = self._open()
            try:
                index.reload()
                return index, index.searcher()
            except ValueError as error:  # its files are gone: the index was built anew this moment
                self._generation = ""
                if is_last:
                    raise DerivedError(f"the index {self.directory} does not read: {error}") from error
        raise AssertionError

    def _parse(self, index: Any, query: str) -> Any:
        if len(query) > _MOST_LETTERS or query.count("(") > _MOST_PARENTHESES:
            raise BadQuery(
                f"a search has at most {_MOST_LETTERS} letters and {_MOST_PARENTHESES} parentheses: this one has"
                f" {len(query)} and {query.count('(')}"
            )
        try:
            return index.parse_query(query.strip() or "*", self._text)
        except ValueError as error:
            raise BadQuery(
                f"{query!r} does not read as a search ({error}): words, COLUMN:VALUE, COLUMN:[FROM TO UNTIL],"
                ' "a phrase", +must, -must-not'
            ) from None

    def _open(self) -> Any:
        with self._lock:
            try:
                generation = str((self.directory / "current").readlink())
                if generation != self._generation:
                    directory = self.directory / generation
                    self._text = json.loads((directory / ABOUT).read_text())["text"]
                    self._index = self._tantivy.Index.open(str(directory))
                    self._generation = generation
            except (OSError, ValueError) as error:
                raise DerivedError(
                    f"there is no index in {self.directory} ({error}): `headwater derived run APP` builds it"
                ) from None
            return self._index
