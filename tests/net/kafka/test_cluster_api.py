"""What belongs to the cluster as a whole, as Kafka 4.3 answers it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import ErrorCode

from .fake_node import FakeNode, ask

PRODUCER, ACLS, CREATE_ACLS, DELETE_ACLS = 22, 29, 30, 31
LOG_DIRS, ELECT, REASSIGN, REASSIGNMENTS, CLUSTER = 35, 43, 45, 46, 60


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_this_node(version: int) -> None:
    node = FakeNode()
    response = await ask(node, CLUSTER, version, include_cluster_authorized_operations=True)
    assert response.error_code is ErrorCode.none
    assert (response.cluster_id, response.controller_id) == (node.cluster_id, 1)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "broker.example", 9092, None)
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoints", "code"), [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)]
)
async def test_endpoints_that_are_not_brokers(endpoints: int, code: ErrorCode) -> None:
    response = await ask(FakeNode(), CLUSTER, 2, endpoint_type=endpoints)
    assert (response.error_code, response.brokers, response.controller_id) == (code, (), -1)
    assert response.error_message


@pytest.mark.parametrize("version", range(1, 6))
async def test_log_directories(version: int) -> None:
    node = FakeNode()
    await node.make("t", 2)
    await node.make("u")
    node.log("t", 1).append(1, 2)
    asked = [{"topic": "t", "partitions": [1, 7, 1]}, {"topic": "nope", "partitions": [0]}]
    (directory,) = (await ask(node, LOG_DIRS, version, topics=asked)).results
    (topic,) = directory.topics
    assert topic.name == "t"
    assert [(p.partition_index, p.partition_size, p.offset_lag) for p in topic.partitions] == [(1, 140, 0)]
    (everything,) = (await ask(node, LOG_DIRS, version, topics=None)).results
    assert {t.name: len(t.partitions) for t in everything.topics} == {"t": 2, "u": 1}
    if version >= 4:
        assert directory.total_bytes >= directory.usable_bytes > 0


@pytest.mark.parametrize("version", range(3))
async def test_no_election_is_needed(version: int) -> None:
    node = FakeNode()
    await node.make("t")
    asked = [{"topic": "t", "partitions": [0, 9]}, {"topic": "nope", "partitions": [0]}]
    response = await ask(node, ELECT, version, topic_partitions=asked)
    found = {
        (topic.topic, p.partition_id): p.error_code
        for topic in response.replica_election_results
        for p in topic.partition_result
    }
    assert found == {
        ("t", 0): ErrorCode.election_not_needed,
        ("t", 9): ErrorCode.unknown_topic_or_partition,
        ("nope", 0): ErrorCode.unknown_topic_or_partition,
    }
    everything = await ask(node, ELECT, version, topic_partitions=None)
    assert [(t.topic, t.partition_result) for t in everything.replica_election_results] == [("t", ())]


async def test_an_unknown_kind_of_election() -> None:
    node = FakeNode()
    await node.make("t")
    asked = [{"topic": "t", "partitions": [0]}]
    response = await ask(node, ELECT, 2, election_type=7, topic_partitions=asked)
    assert response.error_code is ErrorCode.invalid_request
    assert response.replica_election_results[0].partition_result[0].error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("t", 0, [1], ErrorCode.none),
        ("t", 0, [2], ErrorCode.invalid_replica_assignment),
        ("t", 0, [], ErrorCode.invalid_replica_assignment),
        ("t", 0, [1, 1], ErrorCode.invalid_replica_assignment),
        ("t", 0, None, ErrorCode.no_reassignment_in_progress),
        ("t", 9, [1], ErrorCode.unknown_topic_or_partition),
        ("nope", 0, [1], ErrorCode.unknown_topic_or_partition),
    ],
)
async def test_reassignments(
    version: int, topic: str, partition: int, replicas: Any, code: ErrorCode
) -> None:
    node = FakeNode()
    await node.make("t")
    wanted = {"partition_index": partition, "replicas": replicas}
    response = await ask(node, REASSIGN, version, topics=[{"name": topic, "partitions": [wanted]}])
    assert response.error_code is ErrorCode.none
    assert response.responses[0].partitions[0].error_code is code


async def test_no_reassignment_is_under_way() -> None:
    response = await ask(FakeNode(), REASSIGNMENTS, 0, topics=None)
    assert (response.error_code, response.topics) == (ErrorCode.none, ())


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_there_is_no_authorizer(version: int) -> None:
    response = await ask(FakeNode(), ACLS, version)
    assert (response.error_code, response.resources) == (ErrorCode.security_disabled, ())

    rule = {"principal": "User:ada", "host": "*", "operation": 3, "permission_type": 3}
    created = await ask(
        FakeNode(), CREATE_ACLS, version, creations=[{"resource_type": 2, "resource_name": "t", **rule}] * 2
    )
    assert [result.error_code for result in created.results] == [ErrorCode.security_disabled] * 2
    deleted = await ask(
        FakeNode(),
        DELETE_ACLS,
        version,
        filters=[{"resource_type_filter": 2, "operation": 3, "permission_type": 3}],
    )
    (refused,) = deleted.filter_results
    assert (refused.error_code, refused.matching_acls) == (ErrorCode.security_disabled, ())


@pytest.mark.parametrize("version", range(6))
async def test_producers_get_ids_of_their_own(version: int) -> None:
    node = FakeNode()
    responses = [await ask(node, PRODUCER, version) for _ in range(3)]
    assert [(r.error_code, r.producer_id, r.producer_epoch) for r in responses] == [
        (ErrorCode.none, number, 0) for number in range(3)
    ]
    assert len(node.commits) == 1


async def test_a_producer_that_comes_back_gets_a_new_id() -> None:
    node = FakeNode()
    await ask(node, PRODUCER, 4)
    again = await ask(node, PRODUCER, 4, producer_id=0, producer_epoch=3)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.none, 1, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 5, "producer_epoch": -1}, ErrorCode.invalid_request),
        ({"producer_id": -1, "producer_epoch": 5}, ErrorCode.invalid_request),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
    ],
)
async def test_producers_that_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    node = FakeNode()
    response = await ask(node, PRODUCER, 4, **fields)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
    assert not code.retriable
    assert not node.commits
