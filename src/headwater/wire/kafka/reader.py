"""Requests read from bytes into kio's entities, safe against any bytes.

kio has a reader of its own, ten times faster, that believes what it reads: an array's length of
2³¹−1 makes it reserve 17 GB, which ends the process. This one holds every length and count against
the bytes that are left, and all elements together against `MAX_ELEMENTS`. It is a tree of closures,
one per field, made once per structure from the schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from headwater.wire.kafka.errors import MalformedRequest
from headwater.wire.kafka.primitives import MAX_ELEMENTS, read_uvarint, skip_tagged_fields, too_many
from headwater.wire.kafka.schema import FieldSchema, fields_of, is_flexible

__all__ = ["Cursor", "reader_of"]


class Cursor:
    """Where a reader stands in a message, and how many elements the message may still hold."""

    __slots__ = ("data", "position", "room")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.room = MAX_ELEMENTS


Read = Callable[[Cursor], Any]

_LEAST_DELTA_MS = timedelta.min // timedelta(milliseconds=1)
_LARGEST_DELTA_MS = timedelta.max // timedelta(milliseconds=1)
_NO_ID = bytes(16)


@cache
def reader_of(entity: type) -> Read:
    """Make the function that reads one structure.

    Where the bytes run out it raises `IndexError` or `struct.error`, which the caller translates.
    """
    flexible = is_flexible(entity)
    new: Callable[[type], Any] = object.__new__
    # The entities are frozen: their slots are set directly, as `__init__` would in three times the time.
    plain: list[tuple[Callable[[Any, Any], None], Read]] = []
    tagged: dict[int, tuple[Callable[[Any, Any], None], Read]] = {}
    tag_defaults: list[tuple[Callable[[Any, Any], None], Any]] = []
    for field in fields_of(entity):
        put = getattr(entity, field.name).__set__
        if field.tag is None:
            plain.append((put, _field_reader(field, flexible)))
        else:
            tagged[field.tag] = (put, _field_reader(field, flexible))
            tag_defaults.append((put, field.default))

    def read(cursor: Cursor) -> Any:
        made = new(entity)
        for put, read_field in plain:
            put(made, read_field(cursor))
        if flexible:
            for put, default in tag_defaults:
                put(made, default)
            if cursor.data[cursor.position] == 0:
                cursor.position += 1
            else:
                _read_tags(cursor, made, tagged)
        return made

    return read


def _read_tags(cursor: Cursor, made: Any, tagged: dict[int, tuple[Callable[[Any, Any], None], Read]]) -> None:
    data = cursor.data
    start = cursor.position
    after, cursor.room = skip_tagged_fields(data, start, len(data), cursor.room)
    if tagged:
        count, position = read_uvarint(data, start)
        for _ in range(count):
            tag, position = read_uvarint(data, position)
            size, position = read_uvarint(data, position)
            if tag in tagged:
                put, read_field = tagged[tag]
                cursor.position = position
                put(made, read_field(cursor))
                if cursor.position > position + size:
                    raise MalformedRequest(f"tagged field {tag} is longer than its {size} bytes")
            position += size
    cursor.position = after


def _field_reader(field: FieldSchema, flexible: bool) -> Read:
    if field.is_array:
        return _array_reader(field, flexible)
    if field.struct is not None:
        read = reader_of(field.struct)
        return _nullable_struct_reader(read) if field.is_nullable else read
    if field.kind in _FIXED:
        return _fixed_reader(*_FIXED[field.kind])
    return _sized_reader(field, flexible)


def _nullable_struct_reader(read: Read) -> Read:
    marker = _fixed_reader("b", None)

    def read_nullable(cursor: Cursor) -> Any:
        return read(cursor) if marker(cursor) >= 0 else None

    return read_nullable


def _array_reader(field: FieldSchema, flexible: bool) -> Read:
    read_length = _length_reader("i", flexible)
    nullable = field.is_nullable
    element = FieldSchema(field.name, field.kind, field.struct, False, False, None, None)
    read = _field_reader(element, flexible)

    def read_array(cursor: Cursor) -> Any:
        count = read_length(cursor)
        if count < 0 and nullable:
            return None
        if not 0 <= count <= len(cursor.data) - cursor.position or count > cursor.room:
            raise too_many(f"elements in {field.name}", count)
        cursor.room -= count
        return tuple([read(cursor) for _ in range(count)])

    return read_array


def _length_reader(form: str, flexible: bool) -> Read:
    if not flexible:
        return _fixed_reader(form, None)

    def read_length(cursor: Cursor) -> Any:
        length, cursor.position = read_uvarint(cursor.data, cursor.position)
        return length - 1

    return read_length


def _sized_reader(field: FieldSchema, flexible: bool) -> Read:
    text = field.kind == "string"
    nullable = field.is_nullable
    read_length = _length_reader("h" if text else "i", flexible)

    def read_sized(cursor: Cursor) -> Any:
        length = read_length(cursor)
        start = cursor.position
        end = start + length
        if length < 0 and nullable:
            return None
        if length < 0 or end > len(cursor.data):
            raise MalformedRequest(f"a {field.name} of {length} bytes")
        cursor.position = end
        # Like Java, replace what is not UTF-8 rather than refuse it.
        return cursor.data[start:end].decode("utf-8", "replace") if text else cursor.data[start:end]

    return read_sized


def _fixed_reader(form: str, convert: Callable[[Any], Any] | None) -> Read:
    layout = struct.Struct(">" + form)
    unpack, size = layout.unpack_from, layout.size

    def read_fixed(cursor: Cursor) -> Any:
        position = cursor.position
        (value,) = unpack(cursor.data, position)
        cursor.position = position + size
        return value

    return _converted(read_fixed, convert) if convert else read_fixed


def _converted(read: Read, convert: Callable[[Any], Any]) -> Read:
    return lambda cursor: convert(read(cursor))


def _delta(milliseconds: int) -> timedelta:
    # A client may ask for 2⁶³−1 ms, "for ever", which is more than a timedelta holds.
    return timedelta(milliseconds=max(_LEAST_DELTA_MS, min(milliseconds, _LARGEST_DELTA_MS)))


def _moment(milliseconds: int) -> datetime | None:
    try:
        return None if milliseconds < 0 else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise MalformedRequest(f"a time of {milliseconds} ms") from error


def _id(value: bytes) -> UUID | None:
    return None if value == _NO_ID else UUID(bytes=value)


_FIXED: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint16": ("H", None),
    "uint32": ("I", None),
    "float64": ("d", None),
    "error_code": ("h", None),
    "timedelta_i32": ("i", _delta),
    "timedelta_i64": ("q", _delta),
    "datetime_i64": ("q", _moment),
    "uuid": ("16s", _id),
}
