"""Kafka's primitive types as bytes, for the records of `__consumer_offsets` and `__transaction_state`.

The schemas of these records are internal to Kafka's coordinator and not part of the client
protocol's, so their few primitives are written here: fixed-width big-endian numbers, strings with
a 16-bit length, and in flexible versions "compact" strings and arrays whose length plus one is an
unsigned varint (zero standing for null), each structure closed by its tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from headwater.core.errors import HeadwaterError

T = TypeVar("T")


class CorruptGroupRecord(HeadwaterError):
    """A record of the group coordinator's log that does not read as its schema says."""


class Writer:
    """Appends primitives to a buffer."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def done(self) -> bytes:
        """Return what was written."""
        return bytes(self._buffer)

    def i8(self, value: int) -> None:
        """Write an 8-bit number."""
        self._buffer += struct.pack(">b", value)

    def i16(self, value: int) -> None:
        """Write a 16-bit number."""
        self._buffer += struct.pack(">h", value)

    def i32(self, value: int) -> None:
        """Write a 32-bit number."""
        self._buffer += struct.pack(">i", value)

    def i64(self, value: int) -> None:
        """Write a 64-bit number."""
        self._buffer += struct.pack(">q", value)

    def uvarint(self, value: int) -> None:
        """Write an unsigned varint."""
        while value > 0x7F:
            self._buffer.append(value & 0x7F | 0x80)
            value >>= 7
        self._buffer.append(value)

    def uuid(self, value: UUID) -> None:
        """Write a UUID."""
        self._buffer += value.bytes

    def string(self, value: str | None) -> None:
        """Write a string with a 16-bit length, -1 for null."""
        if value is None:
            self.i16(-1)
        else:
            encoded = value.encode()
            self.i16(len(encoded))
            self._buffer += encoded

    def blob(self, value: bytes) -> None:
        """Write bytes with a 32-bit length."""
        self.i32(len(value))
        self._buffer += value

    def compact_string(self, value: str | None) -> None:
        """Write a compact string, or null."""
        if value is None:
            self.uvarint(0)
        else:
            encoded = value.encode()
            self.uvarint(len(encoded) + 1)
            self._buffer += encoded

    def compact_blob(self, value: bytes) -> None:
        """Write compact bytes."""
        self.uvarint(len(value) + 1)
        self._buffer += value

    def compact_array(self, items: Sequence[T], write: Callable[[T], None]) -> None:
        """Write a compact array, each item with `write`."""
        self.uvarint(len(items) + 1)
        for item in items:
            write(item)

    def rows(self, row: struct.Struct, items: Sequence[tuple[int, ...]]) -> None:
        """Write a compact array of structures of numbers that all have one size, tagged fields included."""
        self.uvarint(len(items) + 1)
        self._buffer += b"".join([row.pack(*item) for item in items])

    def no_tags(self) -> None:
        """Close a structure of a flexible version that has no tagged fields."""
        self.uvarint(0)

    def tags(self, fields: Mapping[int, bytes]) -> None:
        """Close a structure of a flexible version with its tagged fields, in order of their tags."""
        self.uvarint(len(fields))
        for tag in sorted(fields):
            self.uvarint(tag)
            self.uvarint(len(fields[tag]))
            self._buffer += fields[tag]


class Reader:
    """Takes primitives from a buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise CorruptGroupRecord(f"a group record ends at byte {len(self._data)}, {end} were expected")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def i8(self) -> int:
        """Read an 8-bit number."""
        return int.from_bytes(self._take(1), "big", signed=True)

    def i16(self) -> int:
        """Read a 16-bit number."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def i32(self) -> int:
        """Read a 32-bit number."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def i64(self) -> int:
        """Read a 64-bit number."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def uvarint(self) -> int:
        """Read an unsigned varint of at most five bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptGroupRecord("a varint in a group record is longer than five bytes")

    def uuid(self) -> UUID:
        """Read a UUID."""
        return UUID(bytes=self._take(16))

    def nullable_string(self) -> str | None:
        """Read a string with a 16-bit length, or null."""
        size = self.i16()
        return None if size < 0 else self._text(size)

    def string(self) -> str:
        """Read a string with a 16-bit length that is not null."""
        return self._text(self.i16())

    def blob(self) -> bytes:
        """Read bytes with a 32-bit length."""
        return self._take(self.i32())

    def nullable_blob(self) -> bytes | None:
        """Read bytes with a 32-bit length, or null."""
        size = self.i32()
        return None if size < 0 else self._take(size)

    def compact_blob(self) -> bytes:
        """Read compact bytes."""
        return self._take(self.uvarint() - 1)

    def compact_nullable_string(self) -> str | None:
        """Read a compact string, or null."""
        size = self.uvarint()
        return None if size == 0 else self._text(size - 1)

    def compact_string(self) -> str:
        """Read a compact string that is not null."""
        return self._text(self.uvarint() - 1)

    def array(self, read: Callable[[], T]) -> list[T]:
        """Read an array with a 32-bit length, each item with `read`."""
        return self._items(self.i32(), read)

    def compact_array(self, read: Callable[[], T]) -> list[T]:
        """Read a compact array, each item with `read`."""
        return self._items(self.uvarint() - 1, read)

    def rows(self, row: struct.Struct) -> list[tuple[int, ...]]:
        """Read a compact array of structures of numbers that all have one size, tagged fields included."""
        size = self.uvarint() - 1
        return list(row.iter_unpack(self._take(size * row.size)))

    def compact_nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        """Read a compact array, or null."""
        size = self.uvarint()
        return None if size == 0 else self._items(size - 1, read)

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that close a structure."""
        found: dict[int, bytes] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self._take(self.uvarint())
        return found

    def skip_tags(self) -> None:
        """Pass over the tagged fields that close a structure."""
        self.tags()

    def _items(self, size: int, read: Callable[[], T]) -> list[T]:
        # Every item takes a byte at least: a length beyond what is left cannot be honest.
        if not 0 <= size <= len(self._data) - self._position:
            raise CorruptGroupRecord(f"an array of {size} items in a group record does not fit in it")
        return [read() for _ in range(size)]

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptGroupRecord(f"a string in a group record is not UTF-8: {error}") from None
