"""Messages that wait for their time: how each is stored, and in which order they fall due.

    value   flags (1: persistent), due in milliseconds since 1970 (8), vhost and exchange (a length byte and
            bytes each), then the message as queues store it: its address and its content frames

In memory a message that waits is one number, 48 bytes with its place in the heap; the message itself is read
back from the log when it is due.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headwater.record.amqp.message import Message

__all__ = ["MAX_DELAY_MS", "Delayed", "Timetable", "decode_delayed", "due_of", "encode_delayed"]

MAX_DELAY_MS = 100 * 365 * 24 * 3_600_000
_FIXED = struct.Struct(">Bq")
_PERSISTENT = 1
_OFFSET_BITS = 48
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class Delayed(NamedTuple):
    """A message that waits, and the exchange that it is routed from when its time has come."""

    due_ms: int
    vhost: str
    exchange: str
    message: bytes


def encode_delayed(due_ms: int, vhost: str, exchange: str, message: Message) -> bytes:
    """Return what is stored of a message."""
    names = [name.encode("utf-8", "surrogateescape") for name in (vhost, exchange)]
    return b"".join(
        (
            _FIXED.pack(_PERSISTENT if message.facts.persistent else 0, due_ms),
            *(bytes((len(name),)) + name for name in names),
            message.address,
            message.frames,
        )
    )


def due_of(value: bytes) -> tuple[int, bool]:
    """Return when a stored message is due, and whether it is persistent."""
    flags, due_ms = _FIXED.unpack_from(value)
    return due_ms, bool(flags & _PERSISTENT)


def decode_delayed(value: bytes) -> Delayed:
    """Return a stored message."""
    position = _FIXED.size
    names = []
    for _ in range(2):
        end = position + 1 + value[position]
        names.append(value[position + 1 : end].decode("utf-8", "surrogateescape"))
        position = end
    return Delayed(due_of(value)[0], names[0], names[1], value[position:])


class Timetable:
    """The offsets of messages that wait, by when they are due; equals in the order in which they came."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ms: int, offset: int) -> None:
        """Have a message wait."""
        heappush(self._heap, due_ms << _OFFSET_BITS | offset)

    def keep(self, waits: Callable[[int], bool]) -> None:
        """Drop the messages that wait no more."""
        self._heap = [entry for entry in self._heap if waits(entry & _OFFSET_MASK)]
        heapify(self._heap)

    def next_due(self) -> int | None:
        """Return when the next message is due."""
        return self._heap[0] >> _OFFSET_BITS if self._heap else None

    def take(self, now_ms: int, most: int) -> list[tuple[int, int]]:
        """Take out what is due, `most` at most, as (due, offset)."""
        heap = self._heap
        taken: list[tuple[int, int]] = []
        while heap and len(taken) < most and heap[0] >> _OFFSET_BITS <= now_ms:
            entry = heappop(heap)
            taken.append((entry >> _OFFSET_BITS, entry & _OFFSET_MASK))
        return taken
