"""Frames cut out of a stream, whole and byte by byte, and the header in front of each request."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2

from headwater.wire.kafka.errors import BadFrame, MalformedRequest, UnsupportedRequest
from headwater.wire.kafka.frames import next_frame, parse_header
from headwater.wire.kafka.primitives import MAX_ELEMENTS, encode_uvarint
from headwater.wire.kafka.versions import Api, request_is_flexible

from .messages import EVERY_VERSION, EVERY_VERSION_NAMES, written

LIMIT = 100 * 1024 * 1024


def received(chunks: list[bytes]) -> list[bytes]:
    """Receive chunks the way a connection does: into one buffer, taking whole frames off its front."""
    buffer, start, bodies = bytearray(), 0, []
    for chunk in chunks:
        buffer += chunk
        while (frame := next_frame(buffer, start, len(buffer), LIMIT)) is not None:
            bodies.append(bytes(buffer[frame[0] : frame[1]]))
            start = frame[1]
    return bodies


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
def test_frames_come_out_the_same_however_the_stream_is_cut(bodies: list[bytes], size: int) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    assert received([stream]) == bodies
    assert received([stream[at : at + 1] for at in range(len(stream))]) == bodies
    assert received([stream[at : at + size] for at in range(0, len(stream), size)]) == bodies


def test_a_frame_that_is_not_all_there_is_none_even_if_the_buffer_goes_on() -> None:
    stream = struct.pack(">i", 5) + b"hello"
    for end in range(len(stream)):
        assert next_frame(stream, 0, end, LIMIT) is None
    assert next_frame(stream, 0, len(stream), 5) == (4, 9)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (struct.pack(">i", -1), "size of -1 bytes"),
        (struct.pack(">i", -(2**31)), "size of -2147483648 bytes"),
        (struct.pack(">i", LIMIT + 1), "larger than the limit of 104857600"),
        (struct.pack(">i", 2**31 - 1), "larger than the limit of 104857600"),
        (b"GET / HTTP/1.1", "'GET ': this is a Kafka port, not an HTTP one"),
        (b"POST /topics", "'POST': this is a Kafka port"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake"),
    ],
)
def test_a_size_that_is_none_is_refused_with_its_reason(first: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        next_frame(first, 0, len(first), LIMIT)


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION, ids=EVERY_VERSION_NAMES)
@settings(max_examples=4)
@given(correlation_id=st.integers(-(2**31), 2**31 - 1), client_id=st.none() | st.text(max_size=50))
def test_a_header_that_kio_wrote_parses_to_the_same(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    kind = HeaderV2 if request_is_flexible(api_key, version) else HeaderV1
    head = written(
        kind(
            request_api_key=api_key,  # type: ignore[arg-type]
            request_api_version=version,  # type: ignore[arg-type]
            correlation_id=correlation_id,  # type: ignore[arg-type]
            client_id=client_id,
        )
    )
    buffer = b"size" + head + b"payload"
    header = parse_header(buffer, 4, len(buffer))
    assert header == (api_key, version, correlation_id, client_id, 4 + len(head))
    for cut in range(len(head)):
        with pytest.raises(MalformedRequest):
            parse_header(buffer, 4, 4 + cut)
        with pytest.raises(MalformedRequest):
            parse_header(head[:cut], 0, cut)


def header(api_key: int, version: int, rest: bytes = b"\xff\xff\x00") -> bytes:
    return struct.pack(">hhi", api_key, version, 1) + rest


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (999, 0, "unknown API key 999"),
        (-1, 0, "unknown API key -1"),
        (Api.PRODUCE, 2, "version 2 of PRODUCE .API key 0. is not served: versions 3 to 13 are"),
        (Api.HEARTBEAT, 5, "version 5 of HEARTBEAT"),
        (Api.HEARTBEAT, -1, "version -1 of HEARTBEAT"),
    ],
)
def test_an_api_or_version_that_is_not_served_is_refused(api_key: int, version: int, reason: str) -> None:
    body = header(api_key, version)
    with pytest.raises(UnsupportedRequest, match=reason):
        parse_header(body, 0, len(body))


def test_any_version_of_api_versions_has_a_header() -> None:
    body = header(Api.API_VERSIONS, 99)
    assert parse_header(body, 0, len(body)) == (Api.API_VERSIONS, 99, 1, None, len(body))


def test_tagged_fields_of_a_header_are_skipped_up_to_the_bound() -> None:
    body = header(Api.HEARTBEAT, 4, b"\xff\xff\x02\x01\x01x\x07\x00") + b"payload"
    assert body[parse_header(body, 0, len(body)).payload :] == b"payload"
    many = encode_uvarint(20_000_000) + b"\x01\x00" * (MAX_ELEMENTS + 1)
    body = header(Api.HEARTBEAT, 4, b"\xff\xff" + many)
    with pytest.raises(MalformedRequest, match="tagged fields"):
        parse_header(body, 0, len(body))


def test_a_client_id_of_any_negative_length_is_none() -> None:
    body = header(Api.HEARTBEAT, 4, b"\xff\xfe\x00")
    assert parse_header(body, 0, len(body)).client_id is None
