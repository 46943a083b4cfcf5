"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, as Kafka 4.3 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import ErrorCode
from headwater.log.config import LogConfig
from headwater.log.errors import DamagedRange

from .fake_node import FakeNode, ask

LIST, DELETE, EPOCH = 2, 21, 23
UNKNOWN = (ErrorCode.none, -1, -1)


async def three_records() -> FakeNode:
    node = FakeNode()
    await node.make("t", 2)
    node.log("t").append(1000, 3000, 2000)
    return node


async def list_one(
    node: FakeNode, timestamp: int, version: int = 11, *, topic: str = "t", partition: int = 0, **fields: int
) -> Any:
    wanted = {"partition_index": partition, "timestamp": timestamp, **fields}
    response = await ask(node, LIST, version, topics=[{"name": topic, "partitions": [wanted]}])
    (result,) = response.topics[0].partitions
    return result


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp", "since", "found"),
    [
        (-1, 1, (ErrorCode.none, -1, 3)),
        (-2, 1, (ErrorCode.none, -1, 0)),
        (-3, 7, (ErrorCode.none, 3000, 1)),
        (-4, 8, (ErrorCode.none, -1, 0)),
        (-5, 9, UNKNOWN),
        (-6, 11, UNKNOWN),
        (-7, 99, UNKNOWN),
        (0, 1, (ErrorCode.none, 1000, 0)),
        (1500, 1, (ErrorCode.none, 3000, 1)),
        (99_999, 1, UNKNOWN),
    ],
)
async def test_offsets_by_time(
    version: int, timestamp: int, since: int, found: tuple[ErrorCode, int, int]
) -> None:
    result = await list_one(await three_records(), timestamp, version)
    if version < since:
        found = (ErrorCode.unsupported_version, -1, -1)
    assert (result.error_code, result.timestamp, result.offset) == found
    if version >= 4:
        assert result.leader_epoch == (0 if found[2] >= 0 else -1)


@pytest.mark.parametrize(
    ("archived_to", "found"),
    [(None, {-2: 0, -4: 0, -5: -1, -6: 0}), (2, {-2: 0, -4: 2, -5: 1, -6: 2}), (3, {-4: 3, -5: 2, -6: -1})],
)
async def test_where_the_archive_ends(archived_to: int | None, found: dict[int, int]) -> None:
    node = await three_records()
    log = node.log("t")
    log.archived_to, log.config = archived_to, LogConfig(archived=True)
    assert {wanted: (await list_one(node, wanted)).offset for wanted in found} == found


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 0), (-2, 0), (-3, -1), (5, -1)])
async def test_an_empty_partition(timestamp: int, offset: int) -> None:
    result = await list_one(await three_records(), timestamp, partition=1)
    assert (result.error_code, result.offset) == (ErrorCode.none, offset)


async def test_only_what_consumers_may_read_is_found() -> None:
    node = await three_records()
    node.log("t").high_watermark = 1
    assert (await list_one(node, -1)).offset == 1
    assert (await list_one(node, 1500)).offset == -1
    assert (await list_one(node, -3)).offset == -1


async def test_read_committed_ends_at_the_last_stable_offset() -> None:
    node = await three_records()
    node.log("t").last_stable_offset = 2
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    for level, offset in ((0, 3), (1, 2)):
        response = await ask(node, LIST, 11, isolation_level=level, topics=topics)
        assert response.topics[0].partitions[0].offset == offset


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nope"}, ErrorCode.unknown_topic_or_partition),
        ({"partition": 9}, ErrorCode.unknown_topic_or_partition),
        ({"partition": -1}, ErrorCode.unknown_topic_or_partition),
        ({"current_leader_epoch": 5}, ErrorCode.unknown_leader_epoch),
        ({"current_leader_epoch": -2}, ErrorCode.fenced_leader_epoch),
        ({"current_leader_epoch": 0}, ErrorCode.none),
    ],
)
async def test_partitions_that_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    assert (await list_one(await three_records(), -1, **fields)).error_code is code


async def test_a_partition_that_is_asked_for_twice() -> None:
    node = await three_records()
    partitions = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    response = await ask(node, LIST, 11, topics=[{"name": "t", "partitions": partitions}])
    (result,) = response.topics[0].partitions
    assert result.error_code is ErrorCode.invalid_request


async def test_a_damaged_range_is_told() -> None:
    node = await three_records()
    node.log("t").damage = DamagedRange("flipped bit")
    assert (await list_one(node, 1500)).error_code is ErrorCode.corrupt_message
    assert (await list_one(node, -1)).error_code is ErrorCode.none


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("topic", "partition", "current", "epoch", "expected"),
    [
        ("t", 0, -1, 0, (ErrorCode.none, 0, 3)),
        ("t", 0, 0, 0, (ErrorCode.none, 0, 3)),
        ("t", 1, -1, 0, (ErrorCode.none, 0, 0)),
        ("t", 0, -1, 5, (ErrorCode.none, -1, -1)),
        ("t", 0, -1, -1, (ErrorCode.none, -1, -1)),
        ("t", 0, 1, 0, (ErrorCode.unknown_leader_epoch, -1, -1)),
        ("nope", 0, -1, 0, (ErrorCode.unknown_topic_or_partition, -1, -1)),
        ("t", 7, -1, 0, (ErrorCode.unknown_topic_or_partition, -1, -1)),
    ],
)
async def test_where_an_epoch_ends(
    version: int, topic: str, partition: int, current: int, epoch: int, expected: tuple[ErrorCode, int, int]
) -> None:
    wanted = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    node = await three_records()
    response = await ask(node, EPOCH, version, topics=[{"topic": topic, "partitions": [wanted]}])
    (result,) = response.topics[0].partitions
    assert (result.error_code, result.leader_epoch, result.end_offset) == expected


async def delete(node: FakeNode, offset: int, topic: str = "t", partition: int = 0, version: int = 2) -> Any:
    wanted = {"partition_index": partition, "offset": offset}
    response = await ask(node, DELETE, version, topics=[{"name": topic, "partitions": [wanted]}])
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_are_deleted_before_an_offset(version: int) -> None:
    node = await three_records()
    assert await delete(node, 1, version=version) == (ErrorCode.none, 1)
    assert await delete(node, 0, version=version) == (ErrorCode.none, 1)
    assert (await list_one(node, -2)).offset == 1
    assert await delete(node, -1, version=version) == (ErrorCode.none, 3)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code"),
    [
        ("t", 0, 99, ErrorCode.offset_out_of_range),
        ("t", 0, -2, ErrorCode.offset_out_of_range),
        ("t", 9, 1, ErrorCode.unknown_topic_or_partition),
        ("nope", 0, 1, ErrorCode.unknown_topic_or_partition),
        ("__consumer_offsets", 0, 0, ErrorCode.invalid_topic_exception),
        ("compacted", 0, 0, ErrorCode.policy_violation),
        ("both", 0, 0, ErrorCode.none),
        ("failed", 0, 0, ErrorCode.kafka_storage_error),
    ],
)
async def test_deletions_that_are_refused(topic: str, partition: int, offset: int, code: ErrorCode) -> None:
    node = await three_records()
    await node.make("__consumer_offsets")
    await node.make("compacted", cleanup_policy="compact")
    await node.make("both", cleanup_policy="compact,delete")
    await node.make("failed")
    node.log("failed").error = "fsync failed"
    low_watermark = 0 if code is ErrorCode.none else -1
    assert await delete(node, offset, topic, partition) == (code, low_watermark)
