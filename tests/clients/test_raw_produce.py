"""Produce requests that a careful client would not send, and what idempotence makes of repeats."""

from __future__ import annotations

import struct
import time
import uuid
import zlib
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from headwater.record.batch import checksum
from headwater.record.codecs import Codec
from headwater.record.records import Record, encode_batch

from .brokers import Broker, eventually, unique
from .confluent import read
from .raw import Closed, Raw, batch, end_offsets, new_producer, produce, request, topic_id

pytestmark = pytest.mark.real


def rewritten(data: bytes, place: int, form: str, value: int) -> bytes:
    """Change a field behind the checksum, and make the checksum right again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, place, value)
    struct.pack_into(">I", changed, 17, checksum(changed, 0, len(changed)))
    return bytes(changed)


def old_message(magic: int) -> bytes:
    """Make a message of the formats before record batches."""
    stamp = struct.pack(">q", 0) if magic else b""
    body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(batch()[:-1] + b"X", ErrorCode.corrupt_message, id="wrong checksum"),
        pytest.param(batch() + batch(), ErrorCode.invalid_record, id="two batches"),
        pytest.param(b"", ErrorCode.invalid_record, id="no batch"),
        pytest.param(old_message(1), ErrorCode.invalid_record, id="magic 1"),
        pytest.param(old_message(0), ErrorCode.invalid_record, id="magic 0"),
        pytest.param(rewritten(batch(), 16, ">b", 3), ErrorCode.corrupt_message, id="magic 3"),
        pytest.param(batch()[:-2], ErrorCode.invalid_record, id="batch cut off"),
        pytest.param(batch()[:40], ErrorCode.invalid_record, id="header cut off"),
        pytest.param(rewritten(batch(), 8, ">i", 5), ErrorCode.corrupt_message, id="length too small"),
        pytest.param(rewritten(batch(3), 23, ">i", 1), ErrorCode.invalid_record, id="fewer offsets"),
        pytest.param(rewritten(batch(3), 23, ">i", 7), ErrorCode.invalid_record, id="more offsets"),
        pytest.param(rewritten(batch(), 57, ">i", -1), ErrorCode.invalid_record, id="negative count"),
        pytest.param(rewritten(batch(), 57, ">i", 0), ErrorCode.invalid_record, id="no records"),
        pytest.param(batch(attributes=0x20), ErrorCode.invalid_record, id="control batch"),
    ],
)
def test_a_batch_that_is_not_in_order_is_refused_and_leaves_no_trace(
    raw: Raw, topic: str, records: bytes, error: ErrorCode
) -> None:
    refused = produce(raw, topic, records)
    assert (refused.error_code, refused.base_offset) == (error, -1)
    accepted = produce(raw, topic, batch())
    assert (accepted.error_code, accepted.base_offset) == (ErrorCode.none, 0)


def test_an_accepted_batch_is_answered_with_its_place(raw: Raw, topic: str) -> None:
    first, second = produce(raw, topic, batch(3)), produce(raw, topic, batch(2))
    assert (first.base_offset, second.base_offset) == (0, 3)
    assert (second.log_append_time, second.log_start_offset) == (None, 0)
    assert (second.record_errors, second.error_message) == ((), None)


def keyed(*records: tuple[bytes | None, int], codec: Codec = Codec.NONE) -> bytes:
    """Make a batch of records with these keys and timestamps."""
    made = [Record(offset=at, timestamp=ms, key=key, value=b"v") for at, (key, ms) in enumerate(records)]
    return bytes(encode_batch(made, codec=codec))


@pytest.mark.parametrize("version", [7, 8, 9, 12])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_refused_batch_names_the_records_at_fault(
    raw: Raw, admin: AdminClient, version: int, codec: Codec
) -> None:
    name, now = unique("compacted"), int(time.time() * 1000)
    made = NewTopic(name, num_partitions=1, config={"cleanup.policy": "compact"})
    admin.create_topics([made])[name].result(20)
    eventually(lambda: end_offsets(raw, name), lambda seen: seen == [0])

    def refused(*records: tuple[bytes | None, int]) -> Any:
        data = [{"name": name, "partition_data": [{"index": 0, "records": keyed(*records, codec=codec)}]}]
        [found] = raw.call("produce", version, acks=-1, timeout=10_000, topic_data=data).responses
        return found.partition_responses[0]

    def told(answer: Any) -> list[tuple[int, str]]:
        return [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors]

    keyless = refused((b"k", now), (None, now), (b"k", now), (None, now))
    late = now + 10 * 3_600_000
    both = refused((b"k", late), (None, now), (None, late))
    assert keyless.error_code == ErrorCode.invalid_record
    assert both.error_code == ErrorCode.invalid_timestamp
    if version < 8:
        return
    no_key = f"Compacted topic cannot accept message without key in topic partition {name}-0"
    assert told(keyless) == [(1, no_key), (3, no_key)]
    assert keyless.error_message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{no_key}'), "
        f"RecordError(batchIndex=3, message='{no_key}')]"
    )
    [(first, problem), *others] = told(both)
    assert first == 0
    assert problem.startswith(
        f"Timestamp {late} of message with offset 0 is out of range. The timestamp should be"
    )
    assert others == [(1, no_key), (2, no_key)]
    assert both.error_message == "One or more records have been rejected due to invalid timestamp"


@pytest.mark.parametrize("rest", [b"\0" * 5, batch()[:40], batch()[:-1]], ids=["few", "half", "almost"])
def test_less_than_a_batch_after_the_batch_is_dropped(
    broker: Broker, raw: Raw, topic: str, rest: bytes
) -> None:
    assert [produce(raw, topic, batch(2) + rest).base_offset for _each in range(2)] == [0, 2]
    assert [message.offset() for message in read(broker, topic, 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_acknowledged_can_be_read_at_once(raw: Raw, topic: str, acks: int) -> None:
    for each in range(100):
        assert produce(raw, topic, batch(), acks=acks).base_offset == each
        assert end_offsets(raw, topic) == [each + 1]


@pytest.mark.parametrize("acks", [2, 7, -2])
def test_other_acknowledgements_are_refused(raw: Raw, topic: str, acks: int) -> None:
    refused = produce(raw, topic, batch(), acks=acks)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.invalid_required_acks, -1)
    assert end_offsets(raw, topic) == [0]


def unacknowledged(topic: str, records: bytes) -> bytes:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return request("produce", 9, acks=0, timeout=1_000, topic_data=data)


def test_without_acknowledgement_there_is_no_answer(raw: Raw, topic: str) -> None:
    raw.send(unacknowledged(topic, batch()))
    assert raw.call("metadata", 1).brokers
    assert eventually(lambda: end_offsets(raw, topic), lambda seen: seen != [0]) == [1]


def test_an_error_without_acknowledgement_closes_the_connection(raw: Raw, topic: str) -> None:
    raw.send(unacknowledged(topic, batch() + batch()))
    with pytest.raises(Closed):
        raw.receive()


def test_topics_and_partitions_that_are_not_there_are_unknown(raw: Raw, topic: str) -> None:
    assert produce(raw, unique("absent"), batch()).error_code == ErrorCode.unknown_topic_or_partition
    for partition in (1, -1):
        refused = produce(raw, topic, batch(), partition=partition)
        assert refused.error_code == ErrorCode.unknown_topic_or_partition


def test_a_topic_id_that_nobody_has_is_unknown(raw: Raw) -> None:
    data = [{"topic_id": uuid.uuid4(), "partition_data": [{"index": 0, "records": batch()}]}]
    answer = raw.call("produce", 13, acks=-1, timeout=1_000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.unknown_topic_id


def test_one_bad_partition_does_not_spoil_the_others(raw: Raw, wide_topic: str) -> None:
    partitions = [
        {"index": 0, "records": batch()},
        {"index": 1, "records": batch() + batch()},
        {"index": 2, "records": batch(2)},
        {"index": 9, "records": batch()},
    ]
    data = [{"name": wide_topic, "partition_data": partitions}]
    answer = raw.call("produce", 9, acks=-1, timeout=1_000, topic_data=data)
    found = {
        part.index: (part.error_code, part.base_offset)
        for response in answer.responses
        for part in response.partition_responses
    }
    assert found == {
        0: (ErrorCode.none, 0),
        1: (ErrorCode.invalid_record, -1),
        2: (ErrorCode.none, 0),
        9: (ErrorCode.unknown_topic_or_partition, -1),
    }


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_served(broker: Broker, raw: Raw, topic: str, version: int) -> None:
    named: dict[str, Any] = {"topic_id": topic_id(raw, topic)} if version >= 13 else {"name": topic}
    data = [{**named, "partition_data": [{"index": 0, "records": batch(2)}]}]
    answer = raw.call("produce", version, acks=-1, timeout=1_000, topic_data=data)
    part = answer.responses[0].partition_responses[0]
    assert (part.error_code, part.base_offset) == (ErrorCode.none, 0)
    assert [message.value() for message in read(broker, topic, 2)] == [b"v", b"v"]


def test_a_record_too_far_in_the_future_is_refused(raw: Raw, topic: str) -> None:
    tomorrow = int(time.time() * 1_000) + 24 * 3_600_000
    refused = produce(raw, topic, batch(2, timestamp=tomorrow))
    assert refused.error_code == ErrorCode.invalid_timestamp


def test_a_repeated_batch_is_acknowledged_and_stored_once(raw: Raw, topic: str) -> None:
    producer = new_producer(raw)
    batches = [batch(2, producer=(producer, 0, sequence)) for sequence in range(0, 12, 2)]
    assert [produce(raw, topic, each).base_offset for each in batches] == [0, 2, 4, 6, 8, 10]
    # The last five batches are remembered.
    for place, each in enumerate(batches[1:], 1):
        again = produce(raw, topic, each)
        assert (again.error_code, again.base_offset) == (ErrorCode.none, place * 2)
    assert end_offsets(raw, topic) == [12]


def test_a_batch_older_than_the_last_five_is_out_of_order(raw: Raw, topic: str) -> None:
    producer = new_producer(raw)
    batches = [batch(producer=(producer, 0, sequence)) for sequence in range(7)]
    for each in batches:
        produce(raw, topic, each)
    assert produce(raw, topic, batches[0]).error_code == ErrorCode.out_of_order_sequence_number
    assert end_offsets(raw, topic) == [7]


def test_a_gap_in_the_sequence_is_refused(raw: Raw, topic: str) -> None:
    producer = new_producer(raw)
    assert produce(raw, topic, batch(2, producer=(producer, 0, 0))).base_offset == 0
    refused = produce(raw, topic, batch(producer=(producer, 0, 3)))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.out_of_order_sequence_number, -1)
    assert produce(raw, topic, batch(producer=(producer, 0, 2))).base_offset == 2


def test_a_part_of_a_batch_is_no_repetition(raw: Raw, topic: str) -> None:
    producer = new_producer(raw)
    produce(raw, topic, batch(3, producer=(producer, 0, 0)))
    refused = produce(raw, topic, batch(2, producer=(producer, 0, 0)))
    assert refused.error_code == ErrorCode.out_of_order_sequence_number


def test_a_new_epoch_starts_over_and_fences_the_old_one(raw: Raw, topic: str) -> None:
    producer = new_producer(raw)
    produce(raw, topic, batch(producer=(producer, 0, 0)))
    refused = produce(raw, topic, batch(producer=(producer, 1, 1)))
    assert refused.error_code == ErrorCode.out_of_order_sequence_number
    assert produce(raw, topic, batch(producer=(producer, 1, 0))).base_offset == 1
    stale = produce(raw, topic, batch(producer=(producer, 0, 1)))
    assert (stale.error_code, stale.base_offset) == (ErrorCode.invalid_producer_epoch, -1)


def test_a_producer_that_the_partition_does_not_know_starts_anywhere(raw: Raw, topic: str) -> None:
    """The partition may have forgotten it: retention deletes what a producer wrote long ago."""
    assert produce(raw, topic, batch(producer=(new_producer(raw), 0, 42))).error_code == ErrorCode.none


def test_sequences_are_kept_per_partition_and_producer(raw: Raw, wide_topic: str) -> None:
    one, other = new_producer(raw), new_producer(raw)
    assert one != other
    for producer, partition in ((one, 0), (one, 1), (other, 0)):
        answer = produce(raw, wide_topic, batch(producer=(producer, 0, 0)), partition=partition)
        assert answer.error_code == ErrorCode.none
