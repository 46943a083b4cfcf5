"""CreateTopics, DeleteTopics and CreatePartitions, as Kafka 4.3 answers them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headwater.broker.quotas import Alteration
from headwater.core.errors import ApiError, ErrorCode

from .fake_node import NO_ID, FakeNode, ask, codes

CREATE, DELETE, GROW = 19, 20, 37


def wanted(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}


def config(name: str, value: str | None) -> dict[str, Any]:
    return {"name": name, "value": value}


async def create(node: FakeNode, *topics: dict[str, Any], version: int = 7, **fields: Any) -> Any:
    return (await ask(node, CREATE, version, topics=topics, **fields)).topics


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_in_every_version(version: int) -> None:
    node = FakeNode()
    (result,) = await create(node, wanted("orders", num_partitions=3), version=version)
    assert result.error_code is ErrorCode.none
    assert node.topics.by_name["orders"].partitions == 3
    assert node.log("orders", 2).topic == "orders"
    if version == 7:
        assert result.topic_id == node.topics.by_name["orders"].id
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)


async def test_a_new_topic_is_answered_with_its_configs() -> None:
    node = FakeNode()
    topic = wanted("t", configs=[config("retention.ms", "1234")])
    (result,) = await create(node, topic)
    described = {c.name: (c.value, c.config_source) for c in result.configs}
    assert len(described) == 33 + 2, "Kafka's, and two of our own"
    assert described["retention.ms"] == ("1234", 1)
    assert described["segment.bytes"] == ("1073741824", 5)


async def test_what_is_left_open_comes_from_the_broker_settings() -> None:
    node = FakeNode({"num.partitions": "4"})
    (result,) = await create(node, wanted("t", num_partitions=-1, replication_factor=-1))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


ASSIGNED = {"num_partitions": -1, "replication_factor": -1}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("a b"), ErrorCode.invalid_topic_exception),
        (wanted(""), ErrorCode.invalid_topic_exception),
        (wanted(".."), ErrorCode.invalid_topic_exception),
        (wanted("x" * 250), ErrorCode.invalid_topic_exception),
        (wanted("there"), ErrorCode.topic_already_exists),
        (wanted("the_re"), ErrorCode.invalid_topic_exception),
        (wanted("__cluster_metadata"), ErrorCode.invalid_request),
        (wanted("__transaction_state"), ErrorCode.invalid_request),
        (wanted("t", num_partitions=0), ErrorCode.invalid_partitions),
        (wanted("t", num_partitions=-2), ErrorCode.invalid_partitions),
        (wanted("t", num_partitions=2**31 - 1), ErrorCode.policy_violation),
        (wanted("t", num_partitions=10_001), ErrorCode.policy_violation),
        (wanted("t", replication_factor=0), ErrorCode.invalid_replication_factor),
        (wanted("t", replication_factor=2), ErrorCode.invalid_replication_factor),
        (wanted("t", configs=[config("nope", "1")]), ErrorCode.invalid_config),
        (wanted("t", configs=[config("retention.ms", "soon")]), ErrorCode.invalid_config),
        (wanted("t", configs=[config("segment.bytes", "100")]), ErrorCode.invalid_config),
        (wanted("t", configs=[config("retention.ms", None)]), ErrorCode.invalid_config),
        (
            wanted("t", configs=[config("min.compaction.lag.ms", "9"), config("max.compaction.lag.ms", "8")]),
            ErrorCode.invalid_config,
        ),
        (wanted("t", configs=[config("remote.storage.enable", "true")]), ErrorCode.invalid_config),
        (
            wanted("t", **ASSIGNED, assignments=[{"partition_index": 0, "broker_ids": [2]}]),
            ErrorCode.invalid_replica_assignment,
        ),
        (
            wanted("t", **ASSIGNED, assignments=[{"partition_index": 0, "broker_ids": []}]),
            ErrorCode.invalid_replica_assignment,
        ),
        (
            wanted("t", **ASSIGNED, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
            ErrorCode.invalid_replica_assignment,
        ),
        (
            wanted("t", **ASSIGNED, assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2),
            ErrorCode.invalid_replica_assignment,
        ),
        (wanted("t", assignments=[{"partition_index": 0, "broker_ids": [1]}]), ErrorCode.invalid_request),
    ],
)
async def test_a_topic_that_is_refused(topic: dict[str, Any], code: ErrorCode) -> None:
    node = FakeNode()
    await node.make("there")
    await node.make("the.re")
    (result,) = await create(node, topic)
    assert result.error_code is code
    assert result.error_message
    assert not node.commits


async def test_an_assignment_to_this_node_is_taken() -> None:
    node = FakeNode()
    assignments = [{"partition_index": p, "broker_ids": [1]} for p in (1, 0)]
    (result,) = await create(node, wanted("t", **ASSIGNED, assignments=assignments))
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)


async def test_one_that_is_refused_does_not_hold_up_the_others() -> None:
    node = FakeNode()
    results = await create(node, wanted("a"), wanted("b d"), wanted("twice"), wanted("twice"), wanted("c"))
    assert codes(results) == {
        "a": ErrorCode.none,
        "b d": ErrorCode.invalid_topic_exception,
        "twice": ErrorCode.invalid_request,
        "c": ErrorCode.none,
    }
    assert len(results) == 4
    assert set(node.topics.by_name) == {"a", "c"}
    assert len(node.commits) == 1


async def test_validate_only_creates_nothing() -> None:
    node = FakeNode()
    (result,) = await create(node, wanted("t", num_partitions=3), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 3)
    assert not node.topics.by_name


async def test_the_partitions_of_one_request_count_together() -> None:
    node = FakeNode()
    results = await create(node, wanted("a", num_partitions=6000), wanted("b", num_partitions=6000))
    assert codes(results) == {"a": ErrorCode.none, "b": ErrorCode.policy_violation}


async def test_the_broker_holds_no_more_partitions_than_its_setting_says() -> None:
    node = FakeNode({"headwater.max.partitions": "5"})
    await node.make("a", 3)
    results = await create(node, wanted("b", num_partitions=2), wanted("c"))
    assert codes(results) == {"b": ErrorCode.none, "c": ErrorCode.policy_violation}
    (grown,) = (await ask(node, GROW, 3, topics=[{"name": "a", "count": 4}])).results
    assert grown.error_code is ErrorCode.policy_violation
    assert "headwater.max.partitions" in grown.error_message


async def test_a_metadata_log_that_fails_is_answered_for_each_topic() -> None:
    node = FakeNode()
    node.failing = ApiError(ErrorCode.kafka_storage_error, "disk gone")
    results = await create(node, wanted("a"), wanted("b d"))
    assert codes(results) == {"a": ErrorCode.kafka_storage_error, "b d": ErrorCode.invalid_topic_exception}


@pytest.mark.parametrize("version", range(1, 6))
async def test_topics_are_deleted_by_name(version: int) -> None:
    node = FakeNode()
    await node.make("a", 2)
    results = (await ask(node, DELETE, version, topic_names=["a", "nope"])).responses
    assert codes(results) == {"a": ErrorCode.none, "nope": ErrorCode.unknown_topic_or_partition}
    assert not node.topics.by_name
    assert not node.topics.by_id
    assert node.logs.get("a", 0) is None


async def test_topics_are_deleted_by_name_or_id() -> None:
    node = FakeNode()
    a, b, c, d = [await node.make(name) for name in "abcd"]
    await node.make("__consumer_offsets")
    topics = [
        {"name": "a"},
        {"topic_id": b.id},
        {"topic_id": NO_ID},
        {},
        {"name": "a", "topic_id": a.id},
        {"name": "c"},
        {"name": "c"},
        {"name": "d"},
        {"topic_id": d.id},
        {"name": "__consumer_offsets"},
    ]
    results = (await ask(node, DELETE, 6, topics=topics)).responses
    assert {(r.name, r.topic_id, r.error_code) for r in results} == {
        ("a", a.id, ErrorCode.none),
        ("b", b.id, ErrorCode.none),
        (None, NO_ID, ErrorCode.unknown_topic_id),
        (None, None, ErrorCode.invalid_request),
        ("a", a.id, ErrorCode.invalid_request),
        ("c", None, ErrorCode.invalid_request),
        (None, d.id, ErrorCode.invalid_request),
        ("d", d.id, ErrorCode.none),
        ("__consumer_offsets", node.topics.by_name["__consumer_offsets"].id, ErrorCode.invalid_request),
    }
    assert set(node.topics.by_name) == {"c", "__consumer_offsets"}
    assert node.topics.by_id == {topic.id: topic for topic in node.topics.by_name.values()}
    assert c.id in node.topics.by_id


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
)
async def test_deletion_can_be_switched_off(version: int, code: ErrorCode) -> None:
    node = FakeNode({"delete.topic.enable": "false"})
    await node.make("a")
    (result,) = (await ask(node, DELETE, version, topic_names=["a"])).responses
    assert result.error_code is code
    assert "a" in node.topics.by_name


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(version: int) -> None:
    node = FakeNode()
    topic = await node.make("a", 2, retention_ms="5")
    (result,) = (await ask(node, GROW, version, topics=[{"name": "a", "count": 5}])).results
    assert result.error_code is ErrorCode.none
    grown = node.topics.by_name["a"]
    assert (grown.id, grown.partitions, grown.settings) == (topic.id, 5, topic.settings)
    assert node.log("a", 4).partition == 4


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "nope", "count": 2}, ErrorCode.unknown_topic_or_partition),
        ({"name": "a", "count": 2}, ErrorCode.invalid_partitions),
        ({"name": "a", "count": 1}, ErrorCode.invalid_partitions),
        ({"name": "a", "count": -1}, ErrorCode.invalid_partitions),
        ({"name": "a", "count": 2**31 - 1}, ErrorCode.policy_violation),
        (
            {"name": "a", "count": 4, "assignments": [{"broker_ids": [1]}]},
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {"name": "a", "count": 3, "assignments": [{"broker_ids": [9]}]},
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {"name": "a", "count": 3, "assignments": [{"broker_ids": [1, 1]}]},
            ErrorCode.invalid_replica_assignment,
        ),
        ({"name": "__consumer_offsets", "count": 3}, ErrorCode.invalid_request),
    ],
)
async def test_partitions_that_are_refused(topic: dict[str, Any], code: ErrorCode) -> None:
    node = FakeNode()
    await node.make("a", 2)
    await node.make("__consumer_offsets")
    (result,) = (await ask(node, GROW, 3, topics=[topic])).results
    assert result.error_code is code
    assert not node.commits


async def test_a_topic_that_is_named_twice_grows_not_at_all() -> None:
    node = FakeNode()
    await node.make("a")
    topics = [{"name": "a", "count": 3}, {"name": "a", "count": 4}]
    (result,) = (await ask(node, GROW, 3, topics=topics)).results
    assert result.error_code is ErrorCode.invalid_request
    assert node.topics.by_name["a"].partitions == 1


async def test_validate_only_adds_no_partitions() -> None:
    node = FakeNode()
    await node.make("a")
    topics = [{"name": "a", "count": 3, "assignments": [{"broker_ids": [1]}] * 2}]
    (result,) = (await ask(node, GROW, 3, topics=topics, validate_only=True)).results
    assert result.error_code is ErrorCode.none
    assert node.topics.by_name["a"].partitions == 1


async def _limited(rate: float) -> FakeNode:
    node = FakeNode()
    alteration = Alteration([("client-id", "tester")], [("controller_mutation_rate", rate)])
    await node.commit_topics(node.throttle.quotas.alter([alteration])[0])
    return node


async def test_a_client_that_has_made_too_many_partitions_waits() -> None:
    node = await _limited(2)
    topics = [wanted(f"t{each}", num_partitions=15) for each in range(3)]
    first = await ask(node, CREATE, 7, topics=topics)
    # Two a second are worth 22 at once: what is not overdrawn yet may be, by any amount.
    assert [topic.error_code for topic in first.topics] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.throttling_quota_exceeded,
    ]
    assert first.throttle_time == timedelta(seconds=4)
    assert set(node.topics.by_name) == {"t0", "t1"}
    node.clock.advance(3999)
    grown = await ask(node, GROW, 3, topics=[{"name": "t0", "count": 16, "assignments": None}])
    assert grown.results[0].error_code is ErrorCode.throttling_quota_exceeded
    deleted = await ask(node, DELETE, 5, topic_names=["t0"])
    assert deleted.responses[0].error_code is ErrorCode.throttling_quota_exceeded
    node.clock.advance(1)
    deleted = await ask(node, DELETE, 5, topic_names=["t0"])
    assert (deleted.responses[0].error_code, deleted.throttle_time) == (ErrorCode.none, timedelta())
    assert "t0" not in node.topics.by_name


async def test_an_older_client_is_served_and_waits_afterwards() -> None:
    node = await _limited(1)
    for name, seconds in (("t", 9), ("u", 29)):
        answer = await ask(node, CREATE, 5, topics=[wanted(name, num_partitions=20)])
        assert answer.topics[0].error_code is ErrorCode.none
        assert answer.throttle_time == timedelta(seconds=seconds)
    deleted = await ask(node, DELETE, 4, topic_names=["t"])
    assert (deleted.responses[0].error_code, deleted.throttle_time) == (
        ErrorCode.none,
        timedelta(seconds=49),
    )
    grown = await ask(node, GROW, 2, topics=[{"name": "u", "count": 21, "assignments": None}])
    assert (grown.results[0].error_code, grown.throttle_time) == (ErrorCode.none, timedelta(seconds=50))


async def test_what_is_refused_for_another_reason_counts_for_nothing() -> None:
    node = await _limited(1)
    await create(node, wanted("t"))
    answer = await ask(node, CREATE, 7, topics=[wanted("t"), wanted("a b", num_partitions=100)])
    assert answer.throttle_time == timedelta()
    assert (await create(node, wanted("u")))[0].error_code is ErrorCode.none
