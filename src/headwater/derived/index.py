"""A search index with tantivy: words ranked by BM25, numbers, dates and exact strings beside them.

    DIRECTORY/current           a link to the generation that is live
    DIRECTORY/gen-…/            an index, and `headwater.json`: which of its fields are searched by words
    DIRECTORY/building/         one that is built beside it

Each row is a document: its key, its JSON and its fields. The position is a document too, replaced by the commit that
replaces the rows, and a commit of tantivy's is all or nothing. A search never finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater.app.types import Field
from headwater.core.json_types import Misfit
from headwater.derived.change import Position, Row
from headwater.derived.errors import Behind, DerivedError, Switched, TryAgain
from headwater.derived.index_fields import BUCKET, KEY, POSITION, ROW, build_schema, index_fields
from headwater.derived.locking import locked, sync_directory
from headwater.derived.store import Prepared

__all__ = ["ABOUT", "SearchIndex"]

ABOUT = "headwater.json"
_CURRENT = "current"
_MARK = "position"
_HEAP_BYTES = 64 * 1024 * 1024
_LONGEST_TERM = 1000
_EARLIEST, _LATEST = datetime(1678, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
"""What tantivy holds; a date outside is taken for the nearest, for `9999-12-31` is what some write for "for ever"."""
_BUCKETS = 256
"""In so many pieces all rows are read: what a search finds at once is in memory."""


class SearchIndex:
    """The index of one table, for whoever writes it."""

    gather_seconds = 0.25
    gather_changes = 20_000

    def __init__(
        self,
        name: str,
        directory: Path,
        columns: Sequence[Field],
        text: Sequence[str],
        *,
        building: bool = False,
    ) -> None:
        try:
            import tantivy
        except ModuleNotFoundError:
            raise DerivedError("tantivy is not installed: pip install 'headwater[index]'") from None
        self._tantivy = tantivy
        self.name, self.directory = name, directory
        self._columns, self._text = columns, text
        self._fields = index_fields(name, columns, text)
        self._building = building
        self._index: Any = None
        self._writer: Any = None
        self._opened: Path | None = None
        self._applied: Position | None = None
        kinds = {field.name: field.kind for field in self._fields}
        self.shape = json.dumps({"fields": kinds, "text": list(text)}, sort_keys=True)

    def position(self) -> Position | None:
        """Return how far the index is."""
        self._open()
        self._index.reload()
        searcher = self._index.searcher()
        found = searcher.search(self._term(POSITION, _MARK), 1).hits
        if not found:
            return None
        return Position.decode(bytes(searcher.doc(found[0][1]).get_first(ROW)))

    def take(self, row: Row) -> Any:
        """Return the document of a row; a value that is not of its column's type cannot be searched for."""
        document = self._tantivy.Document()
        document.add_bytes(ROW, row.text.encode())
        for field in self._fields:
            value = row.values.get(field.name)
            if value is None:
                continue
            with suppress(Misfit):
                _add(document, field.name, field.kind, field.convert(value))
        return document

    def apply(self, changes: Prepared, base: Position | None, position: Position) -> None:
        """Replace documents and the position by one commit."""
        self._open()
        if self._target() != self._opened:
            self.close()
            raise Switched(f"the index {self.name} was built anew")
        if self._writer is None:
            self._writer = self._new_writer()
            self._applied = self.position()
        if self._applied != base:
            self.close()
            raise Switched(f"the index {self.name} was moved on by another process")
        try:
            for key, document in changes.items():
                self._writer.delete_documents_by_term(KEY, _identity(key))
                if document is not None:
                    document.add_text(KEY, _identity(key))
                    document.add_integer(BUCKET, zlib.crc32(key.encode()) % _BUCKETS)
                    self._writer.add_document(document)
            mark = self._tantivy.Document()
            mark.add_text(POSITION, _MARK)
            mark.add_bytes(ROW, position.encode().encode())
            self._writer.delete_documents_by_term(POSITION, _MARK)
            self._writer.add_document(mark)
            with locked(self.directory / "lock"):
                self._writer.commit()
            self._applied = position
        except (ValueError, OSError) as error:
            self.close()
            raise TryAgain(f"the index {self.name} was not written: {error}") from error

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield keys and rows, as they are when this begins."""
        self._open()
        self._index.reload()
        searcher = self._index.searcher()
        most = max(1, searcher.num_docs)
        for bucket in range(_BUCKETS):
            for _, address in searcher.search(self._term(BUCKET, bucket), most, count=False).hits:
                document = searcher.doc(address)
                yield document.get_first(KEY), bytes(document.get_first(ROW)).decode()

    def count(self) -> int:
        """Return how many rows there are."""
        has_position = self.position() is not None
        return int(self._index.searcher().num_docs) - int(has_position)

    def beside(self) -> SearchIndex:
        """Return an empty index beside this one."""
        shutil.rmtree(self.directory / "building", ignore_errors=True)
        return SearchIndex(self.name, self.directory, self._columns, self._text, building=True)

    def switch(self, beside: SearchIndex) -> None:
        """Have the link lead to another index."""
        built = beside.position()
        beside.finish()
        with locked(self.directory / "lock"):
            self.close()
            live = self.position()
            self.close()
            if built is None or not built.may_replace(live):
                raise Behind(f"the index {self.name} has moved on")
            generation = self.directory / f"gen-{time.time_ns()}"
            (self.directory / "building").rename(generation)
            _link(self.directory, generation.name)

    def finish(self) -> None:
        """End merging, and let go of the files."""
        if self._writer is not None:
            self._writer.wait_merging_threads()
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        # The lock on the index goes with the writer.
        self._writer = self._index = None
        self._opened = None

    def _target(self) -> Path:
        if self._building:
            return self.directory / "building"
        return self.directory / (self.directory / _CURRENT).readlink()

    def _open(self) -> None:
        if self._index is not None:
            return
        try:
            if not self._building and not (self.directory / _CURRENT).is_symlink():
                (self.directory / f"gen-{time.time_ns()}").mkdir(parents=True)
                [first, *_] = sorted(self.directory.glob("gen-*"))
                _link(self.directory, first.name)
            target = self._target()
            target.mkdir(parents=True, exist_ok=True)
            if self._tantivy.Index.exists(str(target)):
                self._index = self._tantivy.Index.open(str(target))
            else:
                (target / ABOUT).write_text(self.shape)
                self._index = self._tantivy.Index(build_schema(self._fields), path=str(target))
        except (ValueError, OSError) as error:
            raise DerivedError(
                f"the index {self.directory} cannot be opened ({error}): let this user write to it, or delete it and"
                " start again, and it is built anew"
            ) from error
        self._opened = target

    def _new_writer(self) -> Any:
        try:
            writer = self._index.writer(heap_size=_HEAP_BYTES, num_threads=1)
        except ValueError as error:
            self.close()
            raise TryAgain(
                f"another process writes the index {self.name}, or did a moment ago: {error}"
            ) from error
        if not self._building:
            self._clear_older()
        return writer

    def _clear_older(self) -> None:
        """Delete the indexes that this one has replaced; who has them open still reads them."""
        with locked(self.directory / "lock"):  # nobody is about to switch to one of them
            kept = {self._opened, self._target()}
            for path in self.directory.glob("gen-*"):
                if path not in kept:
                    shutil.rmtree(path, ignore_errors=True)

    def _term(self, field: str, value: str | int) -> Any:
        return self._tantivy.Query.term_query(self._index.schema, field, value)


def _identity(key: str) -> str:
    """Return what a document is known by: tantivy leaves out terms that are very long."""
    if len(key) <= _LONGEST_TERM:
        return key
    return key[:100] + "…" + hashlib.sha256(key.encode()).hexdigest()


def _link(directory: Path, name: str) -> None:
    """Have `current` lead to a generation: whoever opens it finds the old one or the new one."""
    temporary = directory / f".current-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name)
    temporary.rename(directory / _CURRENT)
    sync_directory(directory)


def _add(document: Any, name: str, kind: str, value: Any) -> None:
    match kind:
        case "text" | "exact":
            document.add_text(name, value)
        case "integer":
            document.add_integer(name, value)
        case "float":
            document.add_float(name, value)
        case "date":
            document.add_date(name, min(max(value, _EARLIEST), _LATEST))
        case "boolean":
            document.add_boolean(name, value)
