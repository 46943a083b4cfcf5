"""Metadata and DescribeTopicPartitions, as Kafka 4.3 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Request
from headwater.net.kafka.metadata import metadata
from headwater.wire.kafka.codec import encode_response
from headwater.wire.kafka.schema import request_type

from .fake_node import NO_ID, FakeNode, ask, codes, entity

METADATA, DESCRIBE = 3, 75
NOT_REQUESTED = -(2**31)


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_in_every_version(version: int) -> None:
    node = FakeNode({"broker.rack": "r1"})
    topic = await node.make("orders", 3)
    await node.make("other")
    response = await ask(node, METADATA, version, topics=named("orders"))
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "broker.example", 9092)
    (result,) = response.topics
    assert (result.error_code, result.name) == (ErrorCode.none, "orders")
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in result.partitions] == [
        (index, 1, (1,), (1,)) for index in range(3)
    ]
    if version >= 1:
        assert (broker.rack, response.controller_id, result.is_internal) == ("r1", 1, False)
    if version >= 2:
        assert response.cluster_id == node.cluster_id
    if version >= 7:
        assert result.partitions[0].leader_epoch == 0
    if version >= 8:
        assert result.topic_authorized_operations == NOT_REQUESTED
    if version >= 10:
        assert result.topic_id == topic.id


@pytest.mark.parametrize(
    ("version", "topics", "count"), [(0, [], 2), (1, [], 0), (1, None, 2), (12, [], 0), (12, None, 2)]
)
async def test_all_topics_and_none(version: int, topics: Any, count: int) -> None:
    node = FakeNode()
    await node.make("a")
    await node.make("__consumer_offsets")
    response = await ask(node, METADATA, version, topics=topics)
    assert len(response.topics) == count
    if version and count:
        assert {t.name: t.is_internal for t in response.topics} == {"a": False, "__consumer_offsets": True}


async def test_operations_are_told_when_asked_for() -> None:
    node = FakeNode()
    await node.make("a")
    response = await ask(
        node,
        METADATA,
        8,
        topics=named("a"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert response.cluster_authorized_operations == 8096
    assert response.topics[0].topic_authorized_operations == 3576


async def test_a_topic_is_created_by_being_asked_for() -> None:
    node = FakeNode({"num.partitions": "2"})
    await node.make("x.y")
    names = ("new", "x_y", "b d", "__transaction_state")
    response = await ask(node, METADATA, 12, topics=named(*names), allow_auto_topic_creation=True)
    assert codes(response.topics) == {
        "new": ErrorCode.none,
        "x_y": ErrorCode.invalid_topic_exception,
        "b d": ErrorCode.invalid_topic_exception,
        "__transaction_state": ErrorCode.unknown_topic_or_partition,
    }
    assert len(response.topics[0].partitions) == 2
    assert response.topics[0].topic_id == node.topics.by_name["new"].id


@pytest.mark.parametrize(
    ("version", "fields", "setting", "created"),
    [
        (3, {}, "true", True),
        (3, {}, "false", False),
        (4, {"allow_auto_topic_creation": False}, "true", False),
        (4, {"allow_auto_topic_creation": True}, "true", True),
        (4, {"allow_auto_topic_creation": True}, "false", False),
    ],
)
async def test_who_may_create_by_asking(
    version: int, fields: dict[str, bool], setting: str, created: bool
) -> None:
    node = FakeNode({"auto.create.topics.enable": setting})
    response = await ask(node, METADATA, version, topics=named("new", "b d"), **fields)
    assert codes(response.topics) == {
        "new": ErrorCode.none if created else ErrorCode.unknown_topic_or_partition,
        "b d": ErrorCode.invalid_topic_exception,
    }
    assert ("new" in node.topics.by_name) is created


async def test_a_topic_that_cannot_be_created_is_told() -> None:
    node = FakeNode()
    node.failing = ApiError(ErrorCode.kafka_storage_error, "disk gone")
    response = await ask(node, METADATA, 12, topics=named("a"), allow_auto_topic_creation=True)
    assert codes(response.topics) == {"a": ErrorCode.kafka_storage_error}


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_by_id(version: int) -> None:
    node = FakeNode()
    topic = await node.make("a")
    response = await ask(node, METADATA, version, topics=[{"topic_id": topic.id}, {"topic_id": NO_ID}])
    known, unknown = response.topics
    assert (known.error_code, known.name) == (ErrorCode.none, "a")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.unknown_topic_id, None, NO_ID)


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_before_version_12(version: int) -> None:
    node = FakeNode()
    topic = await node.make("a")
    response = await ask(node, METADATA, version, topics=[{"name": "a", "topic_id": topic.id}])
    assert codes(response.topics) == {"a": ErrorCode.invalid_request}
    assert (response.brokers, response.controller_id) == ((), -1)


async def test_neither_name_nor_id() -> None:
    response = await ask(FakeNode(), METADATA, 12, topics=[{}], allow_auto_topic_creation=True)
    assert codes(response.topics) == {None: ErrorCode.invalid_topic_exception}


async def test_a_name_that_is_asked_for_twice_is_answered_once() -> None:
    node = FakeNode()
    await node.make("a")
    assert len((await ask(node, METADATA, 12, topics=named("a", "a"))).topics) == 1


async def test_ten_thousand_partitions_share_their_lists() -> None:
    node: Any = FakeNode()
    for number in range(1000):
        await node.make(f"t{number}", 10)
    message = entity(request_type(METADATA, 12), {"topics": None})
    answer = await metadata(node, Request(METADATA, 12, None, ""), message)
    assert len({id(topic["partitions"]) for topic in answer["topics"]}) == 1
    assert len(encode_response(METADATA, 12, 1, answer)) > 10_000 * 20


async def describe(
    node: FakeNode, *names: str, limit: int = 100, cursor: tuple[str, int] | None = None
) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return await ask(node, DESCRIBE, 0, topics=named(*names), response_partition_limit=limit, cursor=at)


async def test_described_topics_come_by_name() -> None:
    node = FakeNode()
    await node.make("b", 2)
    await node.make("a")
    response = await describe(node, "nope", "b", "b d", "a")
    assert list(codes(response.topics).items()) == [
        ("a", ErrorCode.none),
        ("b", ErrorCode.none),
        ("b d", ErrorCode.invalid_topic_exception),
        ("nope", ErrorCode.unknown_topic_or_partition),
    ]
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.eligible_leader_replicas, partition.last_known_elr) == (1, (), ())
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.next_cursor is None


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("names", [(), ("a", "b", "c", "d", "nope")])
async def test_pages_put_together_are_everything(limit: int, names: tuple[str, ...]) -> None:
    node = FakeNode()
    for name, partitions in {"a": 3, "b": 1, "c": 2, "d": 5}.items():
        await node.make(name, partitions)
    found: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        response = await describe(node, *names, limit=limit, cursor=cursor)
        page = [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        assert len(page) <= max(1, limit)
        found += page
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert found == [(n, p) for n, count in (("a", 3), ("b", 1), ("c", 2), ("d", 5)) for p in range(count)]


async def test_the_broker_limits_a_page() -> None:
    node = FakeNode({"max.request.partition.size.limit": "2"})
    await node.make("a", 3)
    response = await describe(node, "a", limit=1000)
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("a", 2)


@pytest.mark.parametrize("cursor", [("zz", 0), ("a", -1)])
async def test_a_cursor_that_is_refused(cursor: tuple[str, int]) -> None:
    node = FakeNode()
    await node.make("a")
    response = await describe(node, "a", cursor=cursor)
    assert codes(response.topics) == {"a": ErrorCode.invalid_request}


async def test_a_cursor_past_the_last_partition() -> None:
    node = FakeNode()
    await node.make("a", 2)
    response = await describe(node, "a", cursor=("a", 99))
    assert (response.topics[0].partitions, response.next_cursor) == ((), None)
