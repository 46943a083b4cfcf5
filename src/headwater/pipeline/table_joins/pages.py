"""State of one key in pages, so that one row of many can change without the others being written again.

The rows of a group are a map from a row's key to its values. A small one lies in the key's state itself. A large one
lies in pages, found by linear hashing: rows go to pages by a hash of their keys, and with every `PER_PAGE` rows more
one page is split into two, so that the group grows without ever being laid out anew. A row's change reads and
writes one page, a look at all rows reads each page once.

What the mechanism has to provide for this is no more than bytes by number, within the state of a key
(`keyed.logic.Pages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

from headwater.pipeline.keyed.logic import Pages, pack, unpack

__all__ = ["MemoryPages", "PageMap"]

PER_PAGE: Final = 64
INLINE: Final = 32
"""Up to so many rows are kept in the key's state itself."""

Rows = dict[bytes, list[Any]]


class MemoryPages:
    """Pages in memory, and how much was read and written."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.bytes_read = 0
        self.bytes_written = 0

    def read(self, number: int) -> bytes | None:
        """Return a page."""
        page = self.pages.get(number)
        self.bytes_read += len(page or b"")
        return page

    def write(self, number: int, page: bytes | None) -> None:
        """Keep a page, or drop it."""
        if page is None:
            self.pages.pop(number, None)
        else:
            self.pages[number] = page
            self.bytes_written += len(page)


class PageMap:
    """Rows by key, in the key's state while they are few and in pages when they are many."""

    def __init__(
        self, header: list[Any] | None, pages: Pages, width: int, *, stride: int = 1, offset: int = 0
    ) -> None:
        """Open the map that `flush` gave `header` for; its pages are those with number % stride == offset.

        Rows with fewer than `width` values are from before columns were added: they have nulls there.
        """
        self.count: int
        self._page_count: int
        self.count, self._page_count, inline = header or (0, 0, {})
        self._width = width
        self._inline: Rows | None = None if inline is None else self._widened(inline)
        self._pages, self._stride, self._offset = pages, stride, offset
        self._loaded: dict[int, Rows] = {}
        self._changed: set[int] = set()

    def get(self, key: bytes) -> list[Any] | None:
        """Return a row."""
        return self._rows_with(key)[1].get(key)

    def put(self, key: bytes, row: list[Any]) -> None:
        """Add a row, or replace it."""
        number, rows = self._rows_with(key)
        self.count += key not in rows
        rows[key] = row
        self._changed.add(number)
        if self._inline is not None:
            if self.count > INLINE:
                self._spread(self._inline)
        elif self.count > self._page_count * PER_PAGE:
            self._split()

    def remove(self, key: bytes) -> None:
        """Remove a row, if it is there."""
        number, rows = self._rows_with(key)
        if rows.pop(key, None) is None:
            return
        self.count -= 1
        self._changed.add(number)
        if self._inline is None and self.count <= INLINE // 2:
            self._gather()

    def items(self) -> Iterator[tuple[bytes, list[Any]]]:
        """Return all rows; the map must not be changed meanwhile."""
        if self._inline is not None:
            yield from self._inline.items()
            return
        for number in range(self._page_count):
            loaded = self._loaded.get(number)
            yield from (self._read(number) if loaded is None else loaded).items()

    def flush(self) -> list[Any]:
        """Write the pages that changed, and return what to open the map with."""
        for number in self._changed if self._inline is None else ():
            rows = self._loaded[number]
            self._pages.write(self._number(number), pack(rows) if rows else None)
        self._changed.clear()
        return [self.count, self._page_count, self._inline]

    def _rows_with(self, key: bytes) -> tuple[int, Rows]:
        if self._inline is not None:
            return 0, self._inline
        number = _page_of(key, self._page_count)
        return number, self._load(number)

    def _load(self, number: int) -> Rows:
        if number not in self._loaded:
            self._loaded[number] = self._read(number)
        return self._loaded[number]

    def _read(self, number: int) -> Rows:
        page = self._pages.read(self._number(number))
        return {} if page is None else self._widened(unpack(page))

    def _widened(self, rows: Rows) -> Rows:
        for row in rows.values():
            if len(row) < self._width:
                row += [None] * (self._width - len(row))
        return rows

    def _number(self, number: int) -> int:
        return number * self._stride + self._offset

    def _spread(self, rows: Rows) -> None:
        self._loaded, self._changed = {0: rows}, {0}
        self._inline, self._page_count = None, 1

    def _gather(self) -> None:
        rows = dict(self.items())
        for number in range(self._page_count):
            self._pages.write(self._number(number), None)
        self._loaded, self._changed = {}, set()
        self._inline, self._page_count = rows, 0

    def _split(self) -> None:
        new = self._page_count
        source = new - (1 << (new.bit_length() - 1))
        rows = self._load(source)
        self._page_count += 1
        moved = {key: row for key, row in rows.items() if _page_of(key, self._page_count) == new}
        for key in moved:
            del rows[key]
        self._loaded[new] = moved
        self._changed |= {source, new}


def _page_of(key: bytes, count: int) -> int:
    """Return a key's page of `count`: by as many bits of the hash as there are pages for, or one fewer."""
    bits = 1 << (count.bit_length() - 1)
    number = crc32(key) & (2 * bits - 1)
    return number if number < count else number & (bits - 1)
