"""aiokafka: its own codecs, its own group membership, its own idempotent producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from .brokers import HOUR_AGO, Broker, unique

pytestmark = pytest.mark.real


@asynccontextmanager
async def producer(broker: Broker, **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **config) as made:
        yield made


@asynccontextmanager
async def consumer(broker: Broker, *topics: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **config}
    async with AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **settings) as made:
        yield made


async def take(made: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    async with asyncio.timeout(20):
        return [await made.getone() for _each in range(count)]


async def assigned(made: AIOKafkaConsumer, count: int) -> set[int]:
    """Wait until a member has that many partitions."""
    async with asyncio.timeout(20):
        while len(made.assignment()) != count:  # noqa: ASYNC110  # it has no event for this
            await asyncio.sleep(0.05)
    return {each.partition for each in made.assignment()}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_as_they_went(broker: Broker, topic: str, codec: str | None) -> None:
    stamp = HOUR_AGO
    async with producer(broker, compression_type=codec, linger_ms=20) as made:
        sent = [
            await made.send(
                topic, b"%d " % each * 50, key=b"k", headers=[("h", b"x"), ("n", None)], timestamp_ms=stamp
            )
            for each in range(50)
        ]
        answers = await asyncio.gather(*sent)
    assert [answer.offset for answer in answers] == list(range(50))
    async with consumer(broker, topic) as reader:
        records = await take(reader, 50)
    assert [record.value for record in records] == [b"%d " % each * 50 for each in range(50)]
    assert {(record.key, record.timestamp, record.headers) for record in records} == {
        (b"k", stamp, (("h", b"x"), ("n", None)))
    }


async def test_null_values_stay_null(broker: Broker, topic: str) -> None:
    async with producer(broker) as made:
        await made.send_and_wait(topic, None, key=b"k")
        await made.send_and_wait(topic, b"", key=None)
    async with consumer(broker, topic) as reader:
        assert [(each.key, each.value) for each in await take(reader, 2)] == [(b"k", None), (None, b"")]


async def test_an_idempotent_producer_writes_every_record_once(broker: Broker, wide_topic: str) -> None:
    async with producer(broker, enable_idempotence=True, max_batch_size=200) as made:
        sent = [await made.send(wide_topic, b"%d" % each, partition=each % 4) for each in range(200)]
        await asyncio.gather(*sent)
    async with consumer(broker, wide_topic) as reader:
        values = [int(each.value or b"") for each in await take(reader, 200)]
    assert sorted(values) == list(range(200))
    for partition in range(4):
        inside = [value for value in values if value % 4 == partition]
        assert inside == sorted(inside)


async def test_two_members_share_and_one_takes_over(broker: Broker, wide_topic: str, group: str) -> None:
    quick = {"group_id": group, "heartbeat_interval_ms": 300, "metadata_max_age_ms": 1000}
    async with consumer(broker, wide_topic, **quick) as first:
        assert await assigned(first, 4) == {0, 1, 2, 3}
        async with consumer(broker, wide_topic, **quick) as second:
            assert await assigned(first, 2) | await assigned(second, 2) == {0, 1, 2, 3}
        assert await assigned(first, 4) == {0, 1, 2, 3}


async def test_a_group_resumes_where_it_committed(broker: Broker, topic: str, group: str) -> None:
    async with producer(broker) as made:
        for each in range(6):
            await made.send_and_wait(topic, b"%d" % each)
    partition = TopicPartition(topic, 0)
    async with consumer(broker, topic, group_id=group) as reader:
        assert await reader.committed(partition) is None
        await take(reader, 2)
        await reader.commit()
        assert await reader.committed(partition) == 2
    async with consumer(broker, topic, group_id=group) as reader:
        assert [each.offset for each in await take(reader, 4)] == [2, 3, 4, 5]


async def test_seeking_and_the_offsets_of_a_partition(broker: Broker, topic: str) -> None:
    stamps = [HOUR_AGO, HOUR_AGO + 1_000, HOUR_AGO + 2_000]
    async with producer(broker) as made:
        for stamp in stamps:
            await made.send_and_wait(topic, b"v", timestamp_ms=stamp)
    partition = TopicPartition(topic, 0)
    async with consumer(broker) as reader:
        reader.assign([partition])
        assert await reader.beginning_offsets([partition]) == {partition: 0}
        assert await reader.end_offsets([partition]) == {partition: 3}
        found = await reader.offsets_for_times({partition: stamps[0] + 1})
        assert found[partition] is not None
        assert (found[partition].offset, found[partition].timestamp) == (1, stamps[1])
        assert await reader.offsets_for_times({partition: stamps[2] + 1}) == {partition: None}
        reader.seek(partition, 2)
        assert [each.offset for each in await take(reader, 1)] == [2]
        await reader.seek_to_beginning(partition)
        assert [each.offset for each in await take(reader, 1)] == [0]
        await reader.seek_to_end(partition)
        assert await reader.position(partition) == 3


async def test_errors_are_kafkas(broker: Broker, topic: str) -> None:
    async with producer(broker, max_request_size=5_000_000) as made:
        with pytest.raises(MessageSizeTooLargeError):
            await made.send_and_wait(topic, b"x" * 1_100_000)
    async with consumer(broker, auto_offset_reset="none") as reader:
        partition = TopicPartition(topic, 0)
        reader.assign([partition])
        reader.seek(partition, 99)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(reader.getone(), 20)


async def test_producing_creates_the_topic(broker: Broker) -> None:
    name = unique("automatic")
    async with producer(broker) as made:
        answer = await made.send_and_wait(name, b"v")
    assert answer.offset == 0
