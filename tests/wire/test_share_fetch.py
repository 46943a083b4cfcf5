"""The hand-written response of ShareFetch reads as kio reads it."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from headwater.wire.kafka.schema import response_type
from headwater.wire.kafka.share_fetch import SharePart, encode_share_fetch_response
from headwater.wire.kafka.versions import Api

i64 = st.integers(0, 2**63 - 1)
parts = st.builds(
    lambda index, code, ack, text, acquired, data: SharePart(
        index, code, ack, text, acquired, len(data), data
    ),
    st.integers(0, 2**31 - 1),
    st.integers(0, 130),
    st.integers(0, 130),
    st.none() | st.text(max_size=300),
    st.lists(st.tuples(i64, i64, st.integers(1, 2**15 - 1)), max_size=4),
    st.binary(max_size=300),
)


@pytest.mark.parametrize("version", [1, 2])
@given(st.dictionaries(st.uuids(), st.lists(parts, max_size=3), max_size=3), st.integers(0, 2**31 - 1))
def test_a_response_reads_as_it_was_written(
    version: int, topics: dict[UUID, list[SharePart]], number: int
) -> None:
    pieces = encode_share_fetch_response(
        number, 7, 0, 30_000, {topic.bytes: each for topic, each in topics.items()}
    )
    frame = b"".join(pieces)
    assert struct.unpack_from(">iiB", frame) == (len(frame) - 4, number, 0)
    response: Any
    response, size = entity_reader(response_type(Api.SHARE_FETCH, version))(frame, 9)
    assert size == len(frame) - 9
    assert response.acquisition_lock_timeout.total_seconds() == 30
    assert [topic.topic_id for topic in response.responses] == [
        topic if topic.int else None for topic in topics
    ]
    for topic, given_parts in zip(response.responses, topics.values(), strict=True):
        for read, part in zip(topic.partitions, given_parts, strict=True):
            assert (read.partition_index, read.error_code) == (part.partition, part.error_code)
            assert read.acknowledge_error_code == part.ack_error_code
            assert read.acknowledge_error_message == part.ack_error_message
            assert (read.records or b"") == part.records
            acquired = [
                (each.first_offset, each.last_offset, each.delivery_count) for each in read.acquired_records
            ]
            assert acquired == part.acquired
