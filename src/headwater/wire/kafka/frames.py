"""Requests cut out of a stream of bytes, and the header in front of each.

A frame is a size of four bytes and as many bytes of request (Kafka's protocol guide, "Protocol
Primitives"). Nothing here keeps state or copies: the functions take positions in the connection's
buffer and return positions in it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headwater.wire.kafka.errors import BadFrame, MalformedRequest, UnsupportedRequest
from headwater.wire.kafka.primitives import MAX_ELEMENTS, Buffer, skip_tagged_fields
from headwater.wire.kafka.versions import SERVED, Api

__all__ = ["RequestHeader", "next_frame", "parse_header"]

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")

_STRANGERS = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI "}


class RequestHeader(NamedTuple):
    """A request's header, and where its payload starts in the buffer it was parsed from."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    payload: int


def next_frame(buffer: Buffer, start: int, end: int, limit: int) -> tuple[int, int] | None:
    """Find the frame that starts at `start`; return where its body starts and ends.

    None means that the frame is not all there. A size over `limit` is refused as soon as its four
    bytes are, before anything waits for it.
    """
    body = start + 4
    if body > end:
        return None
    (size,) = _SIZE.unpack_from(buffer, start)
    if not 0 <= size <= limit:
        raise BadFrame(_why(bytes(buffer[start:body]), size, limit))
    return (body, body + size) if body + size <= end else None


def parse_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """Parse the header of the request whose frame's body is `buffer[start:end]`.

    Raises `UnsupportedRequest` for an API or version that is not served, except for versions of
    ApiVersions: a client starts with the newest it knows, and is told which ones there are.
    """
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(buffer, start)
        position = start + 10
        if position > end:
            raise MalformedRequest(f"a request of {end - start} bytes is shorter than its header")
        served = SERVED.get(api_key)
        if served is None:
            raise UnsupportedRequest(f"unknown API key {api_key}")
        if not served.first <= version <= served.last and api_key != Api.API_VERSIONS:
            raise UnsupportedRequest(
                f"version {version} of {Api(api_key).name} (API key {api_key}) is not served: "
                f"versions {served.first} to {served.last} are"
            )
        client_id = None
        if length >= 0:
            client_id = str(buffer[position : position + length], "utf-8", "replace")
            position += length
        if version >= served.flexible_from:
            if buffer[position] == 0:
                position += 1
            else:
                position, _ = skip_tagged_fields(buffer, position, end, MAX_ELEMENTS)
    except (IndexError, struct.error) as error:
        raise MalformedRequest(f"a request of {end - start} bytes is shorter than its header") from error
    if position > end:
        raise MalformedRequest(f"a request of {end - start} bytes is shorter than its header")
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _why(first: bytes, size: int, limit: int) -> str:
    if first in _STRANGERS:
        return f"the connection starts with {first.decode()!r}: this is a Kafka port, not an HTTP one"
    if first[0] == 0x16 and first[1] == 0x03:
        return "the connection starts with a TLS handshake: this port is not encrypted (security.protocol)"
    if size < 0:
        return f"a request cannot have a size of {size} bytes"
    return f"a request of {size} bytes is larger than the limit of {limit} (socket.request.max.bytes)"
