"""Every API but Produce and Fetch: requests into kio's entities, answers into response frames.

What a version of a message looks like is in kio's schemas (`schema`); the functions that read and
write one are made from it at its first use and kept, so a broker holds only the versions its clients
speak.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from functools import cache, partial
from typing import Any

from headwater.core.errors import ErrorCode
from headwater.wire.kafka.errors import MalformedRequest, UnencodableAnswer
from headwater.wire.kafka.primitives import Buffer
from headwater.wire.kafka.reader import Cursor, Read, reader_of
from headwater.wire.kafka.schema import fields_of, request_type, response_type
from headwater.wire.kafka.versions import SERVED, Api, response_header_is_flexible
from headwater.wire.kafka.writer import Write, make_writer

__all__ = ["decode_request", "encode_error_response", "encode_response"]

_HEAD = struct.Struct(">ii")
_SIZE = struct.Struct(">i")


def decode_request(
    api_key: int, version: int, payload: Buffer, offset: int = 0, end: int | None = None
) -> Any:
    """Decode the request at `payload[offset:end]` into the entity of its API and version.

    Bytes after the last field are ignored, as Kafka ignores them.
    """
    data = payload if isinstance(payload, bytes) and end is None else bytes(payload[offset:end])
    read = _request_reader(api_key, version)
    try:
        return read(Cursor(data, offset if data is payload else 0))
    except (IndexError, struct.error) as error:
        raise MalformedRequest(f"{_name(api_key, version)} ends before its last field") from error
    except MalformedRequest as error:
        raise MalformedRequest(f"{_name(api_key, version)}: {error}") from error


def encode_response(api_key: int, version: int, correlation_id: int, answer: Mapping[str, Any]) -> bytes:
    """Encode a whole response frame from a mapping of field names to values.

    The names are kio's. Fields that this version lacks are left out; milliseconds are ints or
    timedeltas, ids are UUIDs or None.
    """
    return _frame(api_key, version, correlation_id, answer, _response_writer(api_key, version))


def encode_error_response(
    api_key: int, version: int, correlation_id: int, code: ErrorCode, message: str | None = None
) -> bytes:
    """Encode a response that says no more than its top-level error code, everything else empty.

    Raises `UnencodableAnswer` where this version of the response has no such code.
    """
    names = {field.name for field in fields_of(response_type(api_key, version))}
    if "error_code" not in names:
        raise UnencodableAnswer(f"{_name(api_key, version)} has no error code of its own")
    answer: dict[str, Any] = {"error_code": code}
    if "error_message" in names:
        answer["error_message"] = message
    return _frame(api_key, version, correlation_id, answer, _response_writer(api_key, version, blank=True))


def _frame(api_key: int, version: int, correlation_id: int, answer: Mapping[str, Any], write: Write) -> bytes:
    out = bytearray(_HEAD.pack(0, correlation_id))
    if response_header_is_flexible(api_key, version):
        out.append(0)
    try:
        write(out, answer)
    except UnencodableAnswer as error:
        raise UnencodableAnswer(f"{_name(api_key, version)} response: {error}") from error
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


@cache
def _request_reader(api_key: int, version: int) -> Read:
    return reader_of(request_type(api_key, version))


@cache
def _response_writer(api_key: int, version: int, *, blank: bool = False) -> Write:
    return make_writer(response_type(api_key, version), partial(_unknown_names, api_key), blank=blank)


def _unknown_names(api_key: int, path: tuple[str, ...], names: Collection[str]) -> set[str]:
    """Find which names no version of the response has at this path: loads the others only when asked."""
    unknown = set(names)
    versions = SERVED[api_key]
    for version in range(versions.last, versions.first - 1, -1):
        entity: type | None = response_type(api_key, version)
        for step in path:
            fields = {field.name: field.struct for field in fields_of(entity)} if entity else {}
            entity = fields.get(step)
        if entity:
            unknown -= {field.name for field in fields_of(entity)}
        if not unknown:
            break
    return unknown


def _name(api_key: int, version: int) -> str:
    return f"{Api(api_key).name} v{version}"
