"""More state of one key, in pages: one of them can change without the others being written again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.pipeline.keyed.cache import Cache, Change

__all__ = ["KeyPages"]


class KeyPages:
    """The pages of one key in a batch, by number.

    They lie beside the states of keys, under the key and their number: a packed key says itself where it ends, so
    that no page is taken for a key.
    """

    def __init__(self, cache: Cache, key: bytes) -> None:
        self._cache = cache
        self._key = key
        self._written: dict[int, bytes | None] = {}

    def read(self, number: int) -> bytes | None:
        """Return a page, or None where there is none."""
        if number in self._written:
            return self._written[number]
        return self._cache.get(self._place(number))

    def write(self, number: int, page: bytes | None) -> None:
        """Write a page; None deletes it."""
        self._written[number] = page

    def changes(self) -> Iterator[Change]:
        """Yield what was written."""
        for number, page in self._written.items():
            yield self._place(number), page, None

    def _place(self, number: int) -> bytes:
        return self._key + b"\xc1" + number.to_bytes(4, "big")
