"""Produce by hand, in every version, against kio's writer and reader."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from effort import examples
from headwater.wire.kafka.errors import MalformedRequest
from headwater.wire.kafka.primitives import MAX_ELEMENTS, encode_uvarint
from headwater.wire.kafka.produce import PartitionResult, Refusal, encode_produce_response, parse_produce
from headwater.wire.kafka.schema import request_type, response_type
from headwater.wire.kafka.versions import SERVED, Api

from .messages import MILLISECOND, entities, sample, written

VERSIONS = range(SERVED[Api.PRODUCE].first, SERVED[Api.PRODUCE].last + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

HEADS = {
    3: struct.pack(">hhi", -1, -1, 1000),
    9: struct.pack(">Bhi", 0, -1, 1000),
    13: struct.pack(">Bhi", 0, -1, 1000),
}


def topic_of(entity: Any) -> str | bytes:
    if hasattr(entity, "name"):
        return str(entity.name)
    return entity.topic_id.bytes if entity.topic_id else bytes(16)


@every_version
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_a_request_that_kio_wrote_parses_to_the_same(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(request_type(Api.PRODUCE, version)))
    before, after = data.draw(st.binary(max_size=9)), data.draw(st.binary(max_size=9))
    payload = written(entity)
    buffer = data.draw(st.sampled_from([bytes, bytearray, memoryview]))(before + payload + after)
    request = parse_produce(buffer, len(before), len(before) + len(payload), version)
    assert request.transactional_id == entity.transactional_id
    assert (request.acks, request.timeout_ms) == (entity.acks, entity.timeout // MILLISECOND)
    got = [
        (topic, partition, None if start < 0 else bytes(buffer[start:end]))
        for topic, partition, start, end in request.partitions
    ]
    assert got == [
        (topic_of(topic), partition.index, partition.records)
        for topic in entity.topic_data
        for partition in topic.partition_data
    ]


@every_version
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    payload = written(sample(request_type(Api.PRODUCE, version), random.Random(version)))
    assert parse_produce(payload, 0, len(payload), version).partitions
    for cut in range(len(payload)):
        with pytest.raises(MalformedRequest):
            parse_produce(payload[:cut], 0, cut, version)
        with pytest.raises(MalformedRequest):
            parse_produce(payload, 0, cut, version)


@every_version
@settings(max_examples=examples(50), deadline=None)
@given(junk=st.binary(max_size=100), after=st.binary(max_size=100))
def test_random_bytes_parse_inside_their_bounds_or_are_malformed(
    version: int, junk: bytes, after: bytes
) -> None:
    try:
        request = parse_produce(junk + after, 0, len(junk), version)
    except MalformedRequest:
        return
    for _, _, start, end in request.partitions:
        assert (start, end) == (-1, -1) or 0 <= start <= end <= len(junk)


@pytest.mark.parametrize("count", [2**31 - 1, 1000, -1, -(2**31)])
def test_counts_and_lengths_that_cannot_be_are_malformed(count: int) -> None:
    one_topic = HEADS[3] + struct.pack(">ih1s", 1, 1, b"t")
    for payload in (
        HEADS[3] + struct.pack(">i", count),
        one_topic + struct.pack(">i", count),
        *([one_topic + struct.pack(">iii", 1, 0, count)] if count > 0 else []),
    ):
        buffer = payload + bytes(200)
        with pytest.raises(MalformedRequest):
            parse_produce(buffer, 0, len(payload) + 100, 3)


@pytest.mark.parametrize("count", [0, 1002, 2**31, 2**32 - 1])
def test_compact_counts_and_lengths_that_cannot_be_are_malformed(count: int) -> None:
    claim = encode_uvarint(count)
    payloads = [HEADS[9] + claim, HEADS[9] + b"\x02\x02t" + claim, HEADS[9] + b"\x02" + claim]
    if count:
        payloads.append(HEADS[9] + b"\x02\x02t\x02" + bytes(4) + claim)
        payloads.append(claim + HEADS[9][1:])
    for payload in payloads:
        buffer = payload + b"\x01" * 200
        with pytest.raises(MalformedRequest):
            parse_produce(buffer, 0, len(payload) + 100, 9)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_more_partitions_than_the_bound_are_refused(version: int) -> None:
    count = MAX_ELEMENTS
    if version == 3:
        topic, partitions = struct.pack(">ih1si", 1, 1, b"t", count), bytes(8 * count)
    else:
        name = b"\x02" + (b"\x02t" if version < 13 else bytes(16))
        topic, partitions = name + encode_uvarint(count + 1), bytes(6 * count)
    payload = HEADS[version] + topic + partitions + b"\0\0"
    with pytest.raises(MalformedRequest, match="cannot hold 262144 partitions"):
        parse_produce(payload, 0, len(payload), version)


def test_tagged_fields_are_skipped_up_to_the_bound_over_the_whole_request() -> None:
    def request(tags: int) -> bytes:
        section = encode_uvarint(tags) + b"\x09\x00" * tags
        partition = struct.pack(">iB", 3, 0) + section
        return HEADS[9] + b"\x02\x02t\x03" + partition * 2 + section + section

    few = request(5)
    assert parse_produce(few, 0, len(few), 9).partitions == [("t", 3, -1, -1)] * 2
    many = request(MAX_ELEMENTS // 3)
    with pytest.raises(MalformedRequest, match="tagged fields"):
        parse_produce(many, 0, len(many), 9)


refusals = st.builds(
    Refusal,
    st.text(max_size=300),
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.text(max_size=200)), max_size=200).map(tuple),
)


@st.composite
def results(draw: st.DrawFn, version: int) -> list[PartitionResult]:
    topics: list[Any] = draw(
        st.lists(st.uuids().map(lambda value: value.bytes), max_size=3, unique=True)
        if version >= 13
        else st.lists(st.text(max_size=249), max_size=3, unique=True)
    )
    offsets = st.integers(-1, 2**63 - 1)
    seconds = st.none() | st.integers(0, 2**32)
    return [
        (
            topic,
            draw(st.integers(0, 2**31 - 1)),
            draw(st.integers(-1, 100)),
            draw(offsets),
            -1 if (moment := draw(seconds)) is None else moment * 1000,
            draw(offsets),
            draw(st.none() | st.text(max_size=300) | refusals),
        )
        for topic in topics
        for _ in range(draw(st.integers(1, 3)))
    ]


@every_version
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_kio_reads_from_a_response_what_was_put_in(version: int, data: st.DataObject) -> None:
    given_results = data.draw(results(version))
    frame = encode_produce_response(version, 42, given_results, 7)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 42)
    start = 9 if version >= 9 else 8
    response: Any
    response, size = entity_reader(response_type(Api.PRODUCE, version))(frame, start)
    assert size == len(frame) - start
    assert response.throttle_time == 7 * MILLISECOND
    expected = [(topic, list(group)) for topic, group in groupby(given_results, key=lambda result: result[0])]
    assert [topic_of(topic) for topic in response.responses] == [topic for topic, _ in expected]
    for topic, (_, group) in zip(response.responses, expected, strict=True):
        for got, want in zip(topic.partition_responses, group, strict=True):
            _, index, code, base, appended, log_start, told = want
            message, faults = (told, ()) if isinstance(told, str | None) else told
            assert (got.index, got.error_code, got.base_offset) == (index, code, base)
            moment = None if appended < 0 else datetime.fromtimestamp(appended / 1000, UTC)
            assert got.log_append_time == moment
            assert getattr(got, "log_start_offset", log_start) == log_start
            assert getattr(got, "error_message", message) == message
            errors = [
                (each.batch_index, each.batch_index_error_message)
                for each in getattr(got, "record_errors", ())
            ]
            assert errors == (list(faults) if version >= 8 else [])


def test_a_topic_id_stands_in_the_response_as_it_came() -> None:
    topic = UUID(int=99).bytes
    frame = encode_produce_response(13, 1, [(topic, 0, 0, 5, -1, 0, None)])
    assert frame[10:26] == topic
