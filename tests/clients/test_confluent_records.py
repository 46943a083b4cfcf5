"""What confluent-kafka produces is what it consumes."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .brokers import HOUR_AGO, Broker, unique
from .confluent import SECONDS, consumer, produce, read, take

pytestmark = pytest.mark.real


def timed(broker: Broker, topic: str, stamps: list[int]) -> None:
    for stamp in stamps:
        produce(broker, topic, [str(stamp).encode()], timestamp=stamp)


def offset_at(made: Consumer, topic: str, when: int) -> int:
    [found] = made.offsets_for_times([TopicPartition(topic, 0, when)], timeout=SECONDS)
    assert found.error is None
    return found.offset


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_carries_keys_headers_and_timestamps(broker: Broker, topic: str, codec: str) -> None:
    values = [b"%d " % number * 50 for number in range(100)]
    deliveries = produce(
        broker,
        topic,
        values,
        config={"compression.type": codec, "linger.ms": 50},
        key=b"key",
        headers=[("h", b"1"), ("h", b"2"), ("empty", b""), ("null", None)],
        timestamp=HOUR_AGO,
    )
    assert [delivery.offset for delivery in deliveries] == list(range(100))
    messages = read(broker, topic, 100)
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(100))
    assert {message.key() for message in messages} == {b"key"}
    assert {message.timestamp() for message in messages} == {(TIMESTAMP_CREATE_TIME, HOUR_AGO)}
    assert messages[0].headers() == [("h", b"1"), ("h", b"2"), ("empty", b""), ("null", None)]
    assert {message.leader_epoch() for message in messages} == {0}


def test_null_and_empty_keys_and_values_stay_apart(broker: Broker, topic: str) -> None:
    produce(broker, topic, [None, b""], key=b"")
    produce(broker, topic, [None, b""])
    seen = [(message.key(), message.value()) for message in read(broker, topic, 4)]
    assert seen == [(b"", None), (b"", b""), (None, None), (None, b"")]


def test_an_idempotent_producer_keeps_order_over_many_batches(broker: Broker, wide_topic: str) -> None:
    config = {"enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1}
    values = [b"%d" % number for number in range(500)]
    deliveries = produce(broker, wide_topic, values, config=config, partition=2)
    assert {delivery.partition for delivery in deliveries} == {2}
    assert [message.value() for message in read(broker, wide_topic, 500, partition=2)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores_the_record(broker: Broker, topic: str, acks: str) -> None:
    produce(broker, topic, [b"one"], config={"acks": acks})
    assert [message.value() for message in read(broker, topic, 1)] == [b"one"]


def test_keys_spread_over_partitions_and_stay_in_theirs(broker: Broker, wide_topic: str) -> None:
    for _round in range(2):
        for number in range(20):
            produce(broker, wide_topic, [b"v"], key=b"%d" % number)
    with consumer(broker, "reader") as made:
        made.assign([TopicPartition(wide_topic, partition, 0) for partition in range(4)])
        homes: dict[bytes, set[int]] = {}
        for message in take(made, 40):
            key, partition = message.key(), message.partition()
            assert isinstance(key, bytes)
            assert partition is not None
            homes.setdefault(key, set()).add(partition)
    assert {len(partitions) for partitions in homes.values()} == {1}
    assert len(set().union(*homes.values())) == 4


def test_a_large_record_comes_back_whole(broker: Broker, topic: str) -> None:
    value = bytes(range(256)) * 3_500
    produce(broker, topic, [value])
    [message] = read(broker, topic, 1)
    assert message.value() == value


def test_seek_goes_back_and_forth(broker: Broker, topic: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(10)])
    with consumer(broker, "reader") as made:
        made.assign([TopicPartition(topic, 0, 0)])
        assert len(take(made, 10)) == 10
        made.seek(TopicPartition(topic, 0, 3))
        assert [message.offset() for message in take(made, 2)] == [3, 4]
        made.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        assert [message.offset() for message in take(made, 1)] == [0]


def test_a_paused_partition_gives_nothing_until_resumed(broker: Broker, wide_topic: str) -> None:
    paused, other = TopicPartition(wide_topic, 0, 0), TopicPartition(wide_topic, 1, 0)
    produce(broker, wide_topic, [b"0"], partition=0)
    produce(broker, wide_topic, [b"1"], partition=1)
    with consumer(broker, "reader") as made:
        made.assign([paused, other])
        made.pause([paused])
        assert [message.partition() for message in take(made, 1)] == [1]
        assert made.poll(0.5) is None
        made.resume([paused])
        assert [message.partition() for message in take(made, 1)] == [0]


def test_the_end_waits_for_what_comes_next(broker: Broker, topic: str) -> None:
    produce(broker, topic, [b"before"])
    with consumer(broker, "reader") as made:
        made.assign([TopicPartition(topic, 0, OFFSET_END)])
        assert made.poll(1.0) is None
        produce(broker, topic, [b"after"])
        [message] = take(made, 1)
    assert (message.value(), message.offset()) == (b"after", 1)


def test_offsets_are_found_by_time(broker: Broker, topic: str) -> None:
    timed(broker, topic, [HOUR_AGO, HOUR_AGO + 1_000, HOUR_AGO + 3_000])
    with consumer(broker, "reader") as made:
        assert offset_at(made, topic, HOUR_AGO - 5_000) == 0
        assert offset_at(made, topic, HOUR_AGO) == 0
        assert offset_at(made, topic, HOUR_AGO + 1) == 1
        assert offset_at(made, topic, HOUR_AGO + 3_000) == 2
        assert offset_at(made, topic, HOUR_AGO + 3_001) == OFFSET_END


def test_the_first_record_not_earlier_is_found_when_times_go_back(broker: Broker, topic: str) -> None:
    timed(broker, topic, [HOUR_AGO + 2_000, HOUR_AGO, HOUR_AGO + 5_000, HOUR_AGO + 1_000])
    with consumer(broker, "reader") as made:
        assert offset_at(made, topic, HOUR_AGO) == 0
        assert offset_at(made, topic, HOUR_AGO + 2_001) == 2
        assert offset_at(made, topic, HOUR_AGO + 5_001) == OFFSET_END


def test_watermarks_follow_the_log(broker: Broker, topic: str) -> None:
    with consumer(broker, "reader") as made:
        partition = TopicPartition(topic, 0)
        assert made.get_watermark_offsets(partition, timeout=SECONDS) == (0, 0)
        produce(broker, topic, [b"a", b"b"])
        assert made.get_watermark_offsets(partition, timeout=SECONDS) == (0, 2)


def test_the_broker_stamps_records_where_the_topic_says_so(broker: Broker, admin: AdminClient) -> None:
    name = unique("stamped")
    wanted = NewTopic(name, num_partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([wanted])[name].result(SECONDS)
    produce(broker, name, [b"v"], timestamp=HOUR_AGO)
    [message] = read(broker, name, 1)
    kind, stamp = message.timestamp()
    assert kind == 2
    assert stamp > HOUR_AGO
