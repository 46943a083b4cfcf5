"""What an operator with keyed state is: a pure function of a key's state, its new rows and the watermark."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgpack

__all__ = ["Logic", "PagedLogic", "Pages", "Step", "pack", "unpack"]


class Step(NamedTuple):
    """What became of a key in one batch."""

    state: bytes | None
    """What to remember; None forgets the key."""
    out: list[tuple[Any, ...]]
    """The results, in order."""
    due: int | None = None
    """When, in µs, the key wants to be looked at again without new rows: once the watermark has passed that."""


class Logic(Protocol):
    """The logic of one operator; it travels to Spark's workers, so it can be pickled."""

    paged: ClassVar[Literal[False]] = False

    def step(
        self, key: tuple[Any, ...], state: bytes | None, rows: list[tuple[Any, ...]], watermark: int
    ) -> Step:
        """Take a key's new rows, in the order in which they came, and return what becomes of it."""


class Pages(Protocol):
    """More state of one key: bytes by number."""

    def read(self, number: int) -> bytes | None:
        """Return a page, or None where there is none."""

    def write(self, number: int, page: bytes | None) -> None:
        """Write a page; None deletes it."""


class PagedLogic(Protocol):
    """A `Logic` whose keys have pages beside their state, so that one of them can change by itself."""

    paged: ClassVar[Literal[True]] = True

    def step(
        self,
        key: tuple[Any, ...],
        state: bytes | None,
        rows: list[tuple[Any, ...]],
        watermark: int,
        pages: Pages,
    ) -> Step:
        """Do as `Logic.step` does; a step that returns no state leaves no page either."""


def pack(state: Any) -> bytes:
    """Return plain values (numbers, text, bytes, lists, dicts) as bytes."""
    packed: bytes = msgpack.packb(state, use_bin_type=True)
    return packed


def unpack(state: bytes) -> Any:
    """Return the values that `pack` was given; tuples come back as lists."""
    return msgpack.unpackb(state, raw=False, strict_map_key=False)
