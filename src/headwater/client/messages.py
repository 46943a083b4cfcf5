"""Requests written and responses read: the client's side of the codecs in `wire.kafka`.

The schemas are the same data that the broker is made from, so a request is a plain mapping of kio's
field names and a response one of kio's entities.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from headwater.client.errors import BadAnswer
from headwater.wire.kafka.errors import MalformedRequest
from headwater.wire.kafka.reader import Cursor, Read, reader_of
from headwater.wire.kafka.schema import request_type, response_type
from headwater.wire.kafka.versions import Api, request_is_flexible, response_header_is_flexible
from headwater.wire.kafka.writer import Write, make_writer

__all__ = ["decode_response", "encode_request", "request_head", "response_start"]

_HEAD = struct.Struct(">ihhih")
_SIZE = struct.Struct(">i")


def request_head(api_key: int, version: int, correlation_id: int, client_id: bytes) -> bytearray:
    """Return the start of a request's frame; its size is zero until the frame is whole."""
    out = bytearray(_HEAD.pack(0, api_key, version, correlation_id, len(client_id)))
    out += client_id
    if request_is_flexible(api_key, version):
        out.append(0)
    return out


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: bytes, body: Mapping[str, Any]
) -> bytearray:
    """Encode a whole request frame from a mapping of kio's field names to values."""
    out = request_head(api_key, version, correlation_id, client_id)
    _request_writer(api_key, version)(out, body)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def response_start(api_key: int, version: int) -> int:
    """Return where the body of a response starts, after its size has been taken off."""
    return 5 if response_header_is_flexible(api_key, version) else 4


def decode_response(api_key: int, version: int, payload: bytes) -> Any:
    """Decode a response, without its size, into the entity of its API and version."""
    try:
        return _response_reader(api_key, version)(Cursor(payload, response_start(api_key, version)))
    except (IndexError, struct.error, MalformedRequest) as error:
        raise BadAnswer(f"the answer to {Api(api_key).name} v{version} does not read: {error}") from error


@cache
def _request_writer(api_key: int, version: int) -> Write:
    return make_writer(request_type(api_key, version), _every_name_unknown)


@cache
def _response_reader(api_key: int, version: int) -> Read:
    return reader_of(response_type(api_key, version))


def _every_name_unknown(path: tuple[str, ...], names: Collection[str]) -> Collection[str]:
    # A client writes one version of each request, so a name that this version lacks is a mistake.
    return names
