"""Responses written from plain mappings, without an entity in between.

A tree of closures, one per field, made once per structure from the schema: each takes its value from
the mapping by the field's name and appends it to the frame. Leaving out a field that has a default is
fine; so is naming one that only other versions have. Any other mistake is an `UnencodableAnswer`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headwater.wire.kafka.errors import UnencodableAnswer
from headwater.wire.kafka.primitives import encode_uvarint
from headwater.wire.kafka.schema import ABSENT, FieldSchema, fields_of, is_flexible

__all__ = ["Write", "make_writer"]

Write = Callable[[bytearray, Any], None]
#: Tells which of some field names no version knows, at a path of field names.
Unknown = Callable[[tuple[str, ...], Collection[str]], Collection[str]]

_MILLISECOND = timedelta(milliseconds=1)
_NO_ID = bytes(16)


def make_writer(entity: type, unknown: Unknown, path: tuple[str, ...] = (), *, blank: bool = False) -> Write:
    """Make the function that writes one structure.

    With `blank`, fields that are left out and have no default are written as zero, empty or null.
    """
    flexible = is_flexible(entity)
    plain: list[tuple[str, Any, Write]] = []
    tagged: list[tuple[str, Any, int, Write]] = []
    for field in fields_of(entity):
        write_field = _field_writer(field, unknown, (*path, field.name), flexible=flexible, blank=blank)
        if field.tag is None:
            plain.append((field.name, _default(field, blank=blank), write_field))
        else:
            tagged.append((field.name, field.default, field.tag, write_field))
    tagged.sort(key=lambda step: step[2])
    allowed = {field.name for field in fields_of(entity)}

    def write(out: bytearray, answer: Mapping[str, Any]) -> None:
        if not allowed.issuperset(answer):
            _refuse_unknown(path, unknown(path, answer.keys() - allowed))
            allowed.update(answer)
        for name, default, write_field in plain:
            value = answer.get(name, default)
            try:
                write_field(out, value)
            except UnencodableAnswer:
                raise
            except Exception as error:
                raise _misfit((*path, name), value) from error
        if flexible:
            if tagged:
                _write_tags(out, answer, tagged, path)
            else:
                out.append(0)

    return write


def _write_tags(
    out: bytearray,
    answer: Mapping[str, Any],
    tagged: list[tuple[str, Any, int, Write]],
    path: tuple[str, ...],
) -> None:
    present: list[bytes] = []
    for name, default, tag, write in tagged:
        value = answer.get(name)
        if value is None or value == default or value in ((), []):
            continue
        field = bytearray()
        try:
            write(field, value)
        except UnencodableAnswer:
            raise
        except Exception as error:
            raise _misfit((*path, name), value) from error
        present.append(encode_uvarint(tag) + encode_uvarint(len(field)) + field)
    out += encode_uvarint(len(present)) + b"".join(present)


def _misfit(path: tuple[str, ...], value: Any) -> UnencodableAnswer:
    where = ".".join(path)
    if value is ABSENT:
        return UnencodableAnswer(f"the answer lacks {where}, which has no default")
    return UnencodableAnswer(f"{value!r:.100} does not fit {where}")


def _refuse_unknown(path: tuple[str, ...], names: Collection[str]) -> None:
    if names:
        where = ".".join(path) or "the response"
        raise UnencodableAnswer(f"no version of {where} has a field named {', '.join(sorted(names))}")


def _default(field: FieldSchema, *, blank: bool) -> Any:
    if field.default is not ABSENT:
        return field.default
    if field.name == "throttle_time":  # the answers of a broker that does not throttle leave it out
        return 0
    if not blank:
        return ABSENT
    if field.is_nullable:
        return None
    if field.is_array:
        return ()
    return {"struct": {}, "string": "", "bytes": b""}.get(field.kind, 0)


def _field_writer(
    field: FieldSchema, unknown: Unknown, path: tuple[str, ...], *, flexible: bool, blank: bool
) -> Write:
    if field.is_array:
        return _array_writer(field, unknown, path, flexible=flexible, blank=blank)
    if field.struct is not None:
        write = make_writer(field.struct, unknown, path, blank=blank)
        return _nullable_struct_writer(write) if field.is_nullable and field.tag is None else write
    if field.kind == "uuid":
        return _write_uuid
    if field.kind in _FIXED:
        return _fixed_writer(*_FIXED[field.kind])
    return _sized_writer(field, flexible=flexible)


def _nullable_struct_writer(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"  # KIP-893
        else:
            out += b"\x01"
            write(out, value)

    return write_nullable


def _array_writer(
    field: FieldSchema, unknown: Unknown, path: tuple[str, ...], *, flexible: bool, blank: bool
) -> Write:
    element = FieldSchema(field.name, field.kind, field.struct, False, False, None, ABSENT)
    write = _field_writer(element, unknown, path, flexible=flexible, blank=blank)
    write_length = _length_writer("i", flexible=flexible)
    null = _null(field, "i", flexible=flexible)
    form = _FIXED[field.kind][0] if field.kind in ("int8", "int16", "int32", "int64") else None

    def write_array(out: bytearray, values: Any) -> None:
        if values is None and null is not None:
            out += null
            return
        write_length(out, len(values))
        if form:
            out += struct.pack(f">{len(values)}{form}", *values)
        else:
            for value in values:
                write(out, value)

    return write_array


def _sized_writer(field: FieldSchema, *, flexible: bool) -> Write:
    text = field.kind == "string"
    form = "h" if text else "i"
    write_length = _length_writer(form, flexible=flexible)
    null = _null(field, form, flexible=flexible)

    def write_sized(out: bytearray, value: Any) -> None:
        if value is None and null is not None:
            out += null
            return
        data = value.encode() if text else value
        write_length(out, len(data))
        out += data

    return write_sized


def _null(field: FieldSchema, form: str, *, flexible: bool) -> bytes | None:
    if not field.is_nullable:
        return None
    return b"\0" if flexible else struct.pack(">" + form, -1)


def _length_writer(form: str, *, flexible: bool) -> Write:
    if not flexible:
        return _fixed_writer(form, None)

    def write_length(out: bytearray, length: int) -> None:
        if length < 0x7F:
            out.append(length + 1)
        else:
            out += encode_uvarint(length + 1)

    return write_length


def _fixed_writer(form: str, convert: Callable[[Any], int] | None) -> Write:
    pack = struct.Struct(">" + form).pack

    def write_fixed(out: bytearray, value: Any) -> None:
        out += pack(value)

    def write_converted(out: bytearray, value: Any) -> None:
        out += pack(value if value.__class__ is int or convert is None else convert(value))

    return write_converted if convert else write_fixed


def _write_uuid(out: bytearray, value: UUID | bytes | None) -> None:
    data = _NO_ID if value is None else value.bytes if isinstance(value, UUID) else value
    if len(data) != 16:
        raise ValueError("an id has 16 bytes")
    out += data


def _milliseconds(value: Any) -> int:
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def _epoch_milliseconds(value: Any) -> int:
    if value is None:
        return -1
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


_FIXED: dict[str, tuple[str, Callable[[Any], int] | None]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint16": ("H", None),
    "uint32": ("I", None),
    "float64": ("d", None),
    "error_code": ("h", None),
    "timedelta_i32": ("i", _milliseconds),
    "timedelta_i64": ("q", _milliseconds),
    "datetime_i64": ("q", _epoch_milliseconds),
}
