"""Fetch by hand, in every version, against kio's writer and reader."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from effort import examples
from headwater.wire.kafka.errors import MalformedRequest
from headwater.wire.kafka.fetch import FetchPartition, FetchTarget, encode_fetch_response, parse_fetch
from headwater.wire.kafka.primitives import MAX_ELEMENTS, encode_uvarint
from headwater.wire.kafka.schema import request_type, response_type
from headwater.wire.kafka.versions import SERVED, Api

from .messages import MILLISECOND, entities, sample, written

VERSIONS = range(SERVED[Api.FETCH].first, SERVED[Api.FETCH].last + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


def topic_of(entity: Any) -> str | bytes:
    if hasattr(entity, "topic"):
        return str(entity.topic)
    return entity.topic_id.bytes if entity.topic_id else bytes(16)


def replica_of(entity: Any) -> int:
    return int(entity.replica_id if hasattr(entity, "replica_id") else entity.replica_state.replica_id)


@every_version
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_a_request_that_kio_wrote_parses_to_the_same(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(request_type(Api.FETCH, version)))
    before, after = data.draw(st.binary(max_size=9)), data.draw(st.binary(max_size=9))
    payload = written(entity)
    buffer = data.draw(st.sampled_from([bytes, bytearray, memoryview]))(before + payload + after)
    request = parse_fetch(buffer, len(before), len(before) + len(payload), version)
    assert request.replica_id == replica_of(entity)
    assert request.max_wait_ms == entity.max_wait // MILLISECOND
    assert (request.min_bytes, request.max_bytes) == (entity.min_bytes, entity.max_bytes)
    assert request.isolation_level == entity.isolation_level
    assert request.session_id == getattr(entity, "session_id", 0)
    assert request.session_epoch == getattr(entity, "session_epoch", -1)
    assert request.rack_id == getattr(entity, "rack_id", "")
    assert request.cluster_id == getattr(entity, "cluster_id", None)
    assert request.targets == [
        FetchTarget(
            topic_of(topic),
            partition.partition,
            getattr(partition, "current_leader_epoch", -1),
            partition.fetch_offset,
            getattr(partition, "last_fetched_epoch", -1),
            getattr(partition, "log_start_offset", -1),
            partition.partition_max_bytes,
        )
        for topic in entity.topics
        for partition in topic.partitions
    ]
    assert request.forgotten == [
        (topic_of(topic), partition)
        for topic in getattr(entity, "forgotten_topics_data", ())
        for partition in topic.partitions
    ]


@every_version
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    payload = written(sample(request_type(Api.FETCH, version), random.Random(version)))
    assert parse_fetch(payload, 0, len(payload), version).targets
    for cut in range(len(payload)):
        with pytest.raises(MalformedRequest):
            parse_fetch(payload[:cut], 0, cut, version)
        with pytest.raises(MalformedRequest):
            parse_fetch(payload, 0, cut, version)


@every_version
@settings(max_examples=examples(50), deadline=None)
@given(junk=st.binary(max_size=150), after=st.binary(max_size=100))
def test_random_bytes_parse_or_are_malformed(version: int, junk: bytes, after: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        parse_fetch(junk + after, 0, len(junk), version)


V4 = struct.pack(">iiiib", -1, 500, 1, 1 << 20, 0)
V12 = V4 + struct.pack(">ii", 0, -1)


@pytest.mark.parametrize("count", [2**31 - 1, 1000, -1, -(2**31)])
def test_counts_that_cannot_be_are_malformed(count: int) -> None:
    claim = struct.pack(">i", count)
    for payload in (V4 + claim, V4 + struct.pack(">ih1s", 1, 1, b"t") + claim):
        with pytest.raises(MalformedRequest):
            parse_fetch(payload + bytes(200), 0, len(payload) + 100, 4)


@pytest.mark.parametrize("count", [0, 1002, 2**31, 2**32 - 1])
def test_compact_counts_that_cannot_be_are_malformed(count: int) -> None:
    claim = encode_uvarint(count)
    for payload in (
        V12 + claim,
        V12 + b"\x02\x02t" + claim,
        V12 + b"\x01" + claim,
        V12 + b"\x01\x01" + claim,
    ):
        with pytest.raises(MalformedRequest):
            parse_fetch(payload + b"\x01" * 200, 0, len(payload) + 100, 12)


def test_more_partitions_or_tagged_fields_than_the_bound_are_refused() -> None:
    count = MAX_ELEMENTS
    payload = V4 + struct.pack(">ih1si", 1, 1, b"t", count) + bytes(16 * count)
    with pytest.raises(MalformedRequest, match="cannot hold 262144 topics or partitions"):
        parse_fetch(payload, 0, len(payload), 4)
    tags = encode_uvarint(count + 1) + b"\x09\x00" * (count + 1)
    payload = V12 + b"\x01\x01\x01" + tags
    with pytest.raises(MalformedRequest, match="cannot hold 262145 tagged fields"):
        parse_fetch(payload, 0, len(payload), 12)


def test_a_replica_state_or_cluster_id_that_does_not_fit_its_tag_is_malformed() -> None:
    empty = V12[4:] + b"\x01\x01\x01"
    for tags in (b"\x01\x01\x04" + bytes(4), b"\x01\x00\x02\x09c"):
        payload = empty + tags
        with pytest.raises(MalformedRequest):
            parse_fetch(payload + bytes(50), 0, len(payload), 15)


@st.composite
def fetched(draw: st.DrawFn, version: int) -> list[tuple[Any, list[FetchPartition]]]:
    topic: st.SearchStrategy[Any] = (
        st.uuids().map(lambda value: value.bytes) if version >= 13 else st.text(max_size=249)
    )
    offset = st.integers(-1, 2**63 - 1)
    partition = st.builds(
        FetchPartition,
        partition=st.integers(0, 2**31 - 1),
        error_code=st.integers(-1, 100),
        high_watermark=offset,
        last_stable_offset=offset,
        log_start_offset=offset,
        aborted=st.none() | st.lists(st.tuples(offset, offset), max_size=3),
        preferred_read_replica=st.integers(-1, 2**31 - 1),
        records=st.binary(max_size=300),
    ).map(lambda made: made._replace(records_length=len(made.records)))
    return draw(st.lists(st.tuples(topic, st.lists(partition, max_size=3)), max_size=3))


@every_version
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_kio_reads_from_the_joined_pieces_what_was_put_in(version: int, data: st.DataObject) -> None:
    topics = data.draw(fetched(version))
    pieces = encode_fetch_response(version, 42, 7, 0, 99, topics)
    records = [partition.records for _, partitions in topics for partition in partitions if partition.records]
    assert len(pieces) == 2 * len(records) + 1
    for piece, given_records in zip(pieces[1::2], records, strict=True):
        assert piece is given_records
    frame = b"".join(pieces)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 42)
    start = 9 if version >= 12 else 8
    response: Any
    response, size = entity_reader(response_type(Api.FETCH, version))(frame, start)
    assert size == len(frame) - start
    assert response.throttle_time == 7 * MILLISECOND
    assert getattr(response, "session_id", 99) == 99
    assert [topic_of(topic) for topic in response.responses] == [topic for topic, _ in topics]
    for topic, (_, partitions) in zip(response.responses, topics, strict=True):
        for got, want in zip(topic.partitions, partitions, strict=True):
            assert (got.partition_index, got.error_code) == (want.partition, want.error_code)
            assert got.high_watermark == want.high_watermark
            assert got.last_stable_offset == want.last_stable_offset
            assert getattr(got, "log_start_offset", want.log_start_offset) == want.log_start_offset
            assert getattr(got, "preferred_read_replica", want.preferred_read_replica) == (
                want.preferred_read_replica
            )
            assert got.records == want.records
            if want.aborted is None:
                assert got.aborted_transactions is None
            else:
                aborted = [(entry.producer_id, entry.first_offset) for entry in got.aborted_transactions]
                assert aborted == list(want.aborted)


def test_records_may_be_anything_that_has_a_length() -> None:
    place = object()
    partition = FetchPartition(0, 0, 10, 10, 0, records_length=1 << 20, records=place)
    pieces = encode_fetch_response(17, 1, 0, 0, 0, [(bytes(16), [partition])])
    assert pieces[1] is place
    (size,) = struct.unpack_from(">i", pieces[0])
    assert size == len(pieces[0]) + len(pieces[2]) + (1 << 20) - 4
