"""The general codec, for every API and version that is served, against kio's writers and readers."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from effort import examples
from headwater.core.errors import ErrorCode
from headwater.wire.kafka.codec import decode_request, encode_error_response, encode_response
from headwater.wire.kafka.errors import MalformedRequest, UnencodableAnswer
from headwater.wire.kafka.primitives import MAX_ELEMENTS, encode_uvarint
from headwater.wire.kafka.schema import fields_of, request_type, response_type
from headwater.wire.kafka.versions import Api, response_header_is_flexible

from .messages import EVERY_VERSION, EVERY_VERSION_NAMES, answer_of, entities, sample, written

every_version = pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION, ids=EVERY_VERSION_NAMES)

HEARTBEAT_V4 = b"\x02g" + struct.pack(">i", 7) + b"\x02m" + b"\x00"


def body_of(frame: bytes, api_key: int, version: int, correlation_id: int) -> bytes:
    size, correlation = struct.unpack_from(">ii", frame)
    assert size == len(frame) - 4
    assert correlation == correlation_id
    if response_header_is_flexible(api_key, version):
        assert frame[8] == 0
        return frame[9:]
    return frame[8:]


@every_version
@settings(max_examples=examples(6), deadline=None)
@given(st.data())
def test_a_request_that_kio_wrote_decodes_to_the_same_entity(
    api_key: int, version: int, data: st.DataObject
) -> None:
    entity = data.draw(entities(request_type(api_key, version)))
    payload = written(entity)
    assert decode_request(api_key, version, payload) == entity
    shifted = bytearray(b"head" + payload + b"tail")
    assert decode_request(api_key, version, memoryview(shifted), 4, 4 + len(payload)) == entity


@every_version
@settings(max_examples=examples(6), deadline=None)
@given(st.data())
def test_kio_reads_from_a_frame_what_the_answer_said(api_key: int, version: int, data: st.DataObject) -> None:
    expected: Any = response_type(api_key, version)
    entity = data.draw(entities(expected))
    frame = encode_response(api_key, version, 77, answer_of(entity))
    body = body_of(frame, api_key, version, 77)
    got, size = entity_reader(expected)(body, 0)
    assert (got, size) == (entity, len(body))


@every_version
def test_a_request_cut_at_any_byte_is_malformed(api_key: int, version: int) -> None:
    payload = written(sample(request_type(api_key, version), random.Random(version)))
    for cut in range(len(payload)):
        with pytest.raises(MalformedRequest):
            decode_request(api_key, version, payload[:cut])
        with pytest.raises(MalformedRequest):
            decode_request(api_key, version, payload, 0, cut)


@every_version
@settings(max_examples=examples(5), deadline=None)
@given(junk=st.binary(max_size=200))
def test_random_bytes_decode_or_are_malformed(api_key: int, version: int, junk: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        decode_request(api_key, version, junk)


@pytest.mark.parametrize(
    ("api_key", "version", "payload"),
    [
        (Api.METADATA, 8, struct.pack(">i", 2**31 - 1)),
        (Api.METADATA, 12, encode_uvarint(2**31 - 1)),
        (Api.METADATA, 12, encode_uvarint(2**32 - 1)),
        (Api.METADATA, 0, struct.pack(">i", -1)),
        (Api.HEARTBEAT, 0, struct.pack(">h", -1)),
        (Api.HEARTBEAT, 0, struct.pack(">h", -(2**15))),
        (Api.SYNC_GROUP, 0, struct.pack(">hihihi", 0, 0, 0, 1, 0, -2)),
        (Api.HEARTBEAT, 4, HEARTBEAT_V4 + encode_uvarint(20_000_000)),
        (Api.HEARTBEAT, 4, HEARTBEAT_V4 + b"\x01\x05" + encode_uvarint(2**32 - 1)),
        (Api.HEARTBEAT, 4, b"\x80" * 6),
    ],
)
def test_a_length_that_cannot_be_is_malformed_and_costs_nothing(
    api_key: int, version: int, payload: bytes
) -> None:
    payload += bytes(1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest):
            decode_request(api_key, version, payload)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_more_elements_than_the_bound_are_refused_wherever_they_stand() -> None:
    names = MAX_ELEMENTS + 1
    with pytest.raises(MalformedRequest, match="cannot hold 262145 elements in topics"):
        decode_request(Api.METADATA, 1, struct.pack(">i", names) + bytes(2 * names))
    tags = encode_uvarint(names) + b"\x05\x00" * names
    with pytest.raises(MalformedRequest, match="cannot hold 262145 tagged fields"):
        decode_request(Api.HEARTBEAT, 4, HEARTBEAT_V4 + tags)
    # Two topics, each within the bound, are together over it.
    half = struct.pack(">hi", 0, names // 2 + 1) + bytes(4 * (names // 2 + 1))
    with pytest.raises(MalformedRequest, match="partition_indexes"):
        decode_request(Api.OFFSET_FETCH, 1, struct.pack(">hi", 0, 2) + half + half)


def test_tagged_fields_that_nobody_knows_and_trailing_bytes_are_ignored() -> None:
    message = decode_request(Api.HEARTBEAT, 4, HEARTBEAT_V4 + b"\x02\x05\x01x\x63\x00" + b"trailing")
    assert (message.group_id, message.generation_id, message.member_id) == ("g", 7, "m")


def test_a_known_tagged_field_may_not_be_longer_than_it_says() -> None:
    fetch = written(sample(request_type(Api.FETCH, 15), random.Random(1)))
    head = fetch[: fetch.rindex(b"\x01\x0d")]  # replica state: tag 1, 13 bytes
    assert decode_request(Api.FETCH, 15, head + b"\x01\x0d" + bytes(13)).replica_state.replica_id == 0
    with pytest.raises(MalformedRequest, match="longer than its 12 bytes"):
        decode_request(Api.FETCH, 15, head + b"\x01\x0c" + bytes(13))


def test_what_is_not_utf8_is_replaced_as_java_does() -> None:
    assert decode_request(Api.HEARTBEAT, 4, b"\x03\xff." + HEARTBEAT_V4[2:] + b"\0").group_id == "\ufffd."


def test_a_time_longer_than_a_timedelta_is_clamped() -> None:
    def retention(milliseconds: int) -> timedelta:
        payload = struct.pack(">hihqi", 0, 0, 0, milliseconds, 0)
        got: timedelta = decode_request(Api.OFFSET_COMMIT, 2, payload).retention_time
        return got

    assert timedelta.max - retention(2**63 - 1) < timedelta(milliseconds=1)
    assert retention(-(2**63)) == timedelta.min
    assert retention(-1) == timedelta(milliseconds=-1)


@every_version
def test_an_error_alone_is_a_whole_response_where_there_is_a_code(api_key: int, version: int) -> None:
    expected: Any = response_type(api_key, version)
    code = ErrorCode.coordinator_not_available
    if "error_code" not in {field.name for field in fields_of(expected)}:
        with pytest.raises(UnencodableAnswer, match="no error code of its own"):
            encode_error_response(api_key, version, 5, code)
        return
    body = body_of(encode_error_response(api_key, version, 5, code, "later"), api_key, version, 5)
    got, size = entity_reader(expected)(body, 0)
    assert (got.error_code, size) == (code, len(body))
    assert getattr(got, "error_message", "later") == "later"


def heartbeat(**fields: Any) -> dict[str, Any]:
    return {"error_code": ErrorCode.none, **fields}


def test_throttle_time_may_be_left_out_a_number_or_a_timedelta() -> None:
    zero = encode_response(Api.HEARTBEAT, 4, 1, heartbeat())
    assert zero == encode_response(Api.HEARTBEAT, 4, 1, heartbeat(throttle_time=0))
    number = encode_response(Api.HEARTBEAT, 4, 1, heartbeat(throttle_time=1500))
    delta = encode_response(Api.HEARTBEAT, 4, 1, heartbeat(throttle_time=timedelta(seconds=1.5)))
    assert number == delta != zero


def test_fields_that_only_other_versions_have_are_dropped() -> None:
    assert encode_response(Api.HEARTBEAT, 0, 1, heartbeat(throttle_time=9)) == struct.pack(">iih", 6, 1, 0)
    topic = {"name": "t", "topic_id": UUID(int=1), "error_code": 0, "partitions": []}
    answer = {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": [topic]}
    for _ in range(2):
        frame = encode_response(Api.METADATA, 0, 1, answer)
        assert frame[4:] == struct.pack(">iiihh1si", 1, 0, 1, 0, 1, b"t", 0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (heartbeat(eror_message=None), "no version of the response has a field named eror_message"),
        ({}, "lacks error_code, which has no default"),
        (heartbeat(error_code=1 << 20), "1048576 does not fit error_code"),
        (heartbeat(throttle_time="soon"), "'soon' does not fit throttle_time"),
    ],
)
def test_a_mistaken_answer_is_refused_by_name(answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnencodableAnswer, match=reason) as caught:
        encode_response(Api.HEARTBEAT, 4, 1, answer)
    assert "HEARTBEAT v4" in str(caught.value)


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        ({"leader": 1}, "no version of topics.partitions has a field named leader"),
        ({"leader_id": None}, "None does not fit topics.partitions.leader_id"),
        (
            {"leader_id": 1, "replica_nodes": [1], "isr_nodes": None},
            "None does not fit topics.partitions.isr_nodes",
        ),
        ({}, "lacks topics.partitions.leader_id"),
    ],
)
def test_a_mistake_deep_in_an_answer_is_named_with_its_path(partition: dict[str, Any], reason: str) -> None:
    topic = {
        "error_code": 0,
        "name": "t",
        "topic_id": None,
        "partitions": [{"error_code": 0, "partition_index": 0, **partition}],
    }
    answer = {"brokers": [], "cluster_id": "c", "topics": [topic]}
    with pytest.raises(UnencodableAnswer, match=reason):
        encode_response(Api.METADATA, 12, 1, answer)
