"""What an operator with keyed state is: a pure function of a key's state, its new rows and the watermark."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgpack

__all__ = ["Logic", "Step", "pack", "unpack"]


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

    def step(
        self, key: tuple[Any, ...], state: bytes | None, rows: list[tuple[Any, ...]], watermark: int
    ) -> Step:
        """Take a key's new rows, in the order in which they came, and return what becomes of it."""


def pack(state: Any) -> bytes:
    """Return plain values (numbers, text, bytes, lists, dicts) as bytes."""
    packed: bytes = msgpack.packb(state, use_bin_type=True)
    return packed


def unpack(state: bytes) -> Any:
    """Return the values that `pack` was given; tuples come back as lists."""
    return msgpack.unpackb(state, raw=False, strict_map_key=False)
