"""Metadata and offsets, down to the versions and arguments that clients seldom use."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .brokers import HOUR_AGO, Broker, eventually, unique
from .raw import Raw, batch, produce, topic_id

pytestmark = pytest.mark.real

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5


def offset(raw: Raw, topic: str, timestamp: int, version: int = 10, **fields: int) -> Any:
    parts = [{"partition_index": 0, "timestamp": timestamp, **fields}]
    settings: dict[str, Any] = {"isolation_level": 0} if version >= 2 else {}
    if version >= 10:
        settings["timeout"] = 5_000
    topics = [{"name": topic, "partitions": parts}]
    answer = raw.call("list_offsets", version, replica_id=-1, topics=topics, **settings)
    return answer.topics[0].partitions[0]


def metadata(raw: Raw, version: int, topics: list[dict[str, Any]] | None, **fields: Any) -> Any:
    return raw.call("metadata", version, topics=topics, **fields)


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_is_served(raw: Raw, broker: Broker, wide_topic: str, version: int) -> None:
    named = {"name": wide_topic, "topic_id": None} if version >= 10 else {"name": wide_topic}
    answer = metadata(raw, version, [named])
    [node] = answer.brokers
    assert (node.node_id, node.host, node.port) == (1, broker.host, broker.port)
    [found] = answer.topics
    assert (found.error_code, found.name) == (ErrorCode.none, wide_topic)
    assert sorted(each.partition_index for each in found.partitions) == [0, 1, 2, 3]
    assert {(each.leader_id, each.replica_nodes, each.isr_nodes) for each in found.partitions} == {
        (1, (1,), (1,))
    }


def test_null_asks_for_every_topic_and_an_empty_array_for_none(raw: Raw, topic: str) -> None:
    assert topic in {each.name for each in metadata(raw, 12, None).topics}
    assert metadata(raw, 12, []).topics == ()
    # The first version knows no null: there an empty array asks for all.
    assert topic in {each.name for each in metadata(raw, 0, []).topics}


def test_topics_that_are_not_there(raw: Raw) -> None:
    absent = unique("absent")
    asked = [{"name": absent, "topic_id": None}]
    [found] = metadata(raw, 12, asked, allow_auto_topic_creation=False).topics
    assert (found.error_code, found.name) == (ErrorCode.unknown_topic_or_partition, absent)
    nobody = uuid.uuid4()
    [found] = metadata(raw, 12, [{"name": None, "topic_id": nobody}]).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.unknown_topic_id, None, nobody)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250])
def test_names_that_cannot_be(raw: Raw, name: str) -> None:
    asked = [{"name": name, "topic_id": None}]
    [found] = metadata(raw, 12, asked, allow_auto_topic_creation=True).topics
    assert found.error_code == ErrorCode.invalid_topic_exception


def test_a_topic_is_found_by_its_id(raw: Raw, topic: str) -> None:
    [found] = metadata(raw, 12, [{"name": None, "topic_id": topic_id(raw, topic)}]).topics
    assert (found.error_code, found.name) == (ErrorCode.none, topic)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_in_versions_that_may_not_use_them(raw: Raw, topic: str, version: int) -> None:
    asked = [{"name": None, "topic_id": topic_id(raw, topic)}, {"name": topic, "topic_id": None}]
    answer = metadata(raw, version, asked)
    assert [(each.error_code, each.name) for each in answer.topics] == [
        (ErrorCode.invalid_request, ""),
        (ErrorCode.invalid_request, topic),
    ]
    assert (answer.brokers, answer.controller_id) == ((), -1)


def test_an_unknown_kind_of_election_is_refused_for_whatever_it_is_asked(raw: Raw, topic: str) -> None:
    def elected(topics: list[dict[str, Any]] | None) -> Any:
        return raw.call("elect_leaders", 2, election_type=7, topic_partitions=topics, timeout=5_000)

    every = elected(None)
    assert (every.error_code, every.replica_election_results) == (ErrorCode.invalid_request, ())
    assert elected([{"topic": topic, "partitions": [0]}]).error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("name", ["1 ", "1_", "0x1", "x"])
def test_a_broker_is_described_by_its_number(raw: Raw, name: str) -> None:
    resource = {"resource_type": 4, "resource_name": name, "configuration_keys": None}
    [found] = raw.call("describe_configs", 4, resources=[resource]).results
    assert (found.error_code, found.configs) == (ErrorCode.invalid_request, ())


def test_a_number_has_no_underscores(raw: Raw) -> None:
    configs = [{"name": "retention.ms", "value": "1_000"}]
    wanted = {"name": unique("topic"), "num_partitions": 1, "replication_factor": 1, "configs": configs}
    [refused] = raw.call("create_topics", 7, topics=[wanted], timeout=5_000, validate_only=True).topics
    assert refused.error_code == ErrorCode.invalid_config


def test_asking_creates_a_topic_only_where_it_says_so(raw: Raw) -> None:
    asked = [{"name": unique("automatic"), "topic_id": None}]

    def error(*, create: bool) -> ErrorCode:
        return ErrorCode(metadata(raw, 12, asked, allow_auto_topic_creation=create).topics[0].error_code)

    assert error(create=False) == ErrorCode.unknown_topic_or_partition
    eventually(lambda: error(create=True), lambda seen: seen == ErrorCode.none)
    assert error(create=False) == ErrorCode.none


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_lists_offsets(raw: Raw, topic: str, version: int) -> None:
    for each in (2_000, 9_000, 5_000):
        produce(raw, topic, batch(timestamp=HOUR_AGO + each))
    assert offset(raw, topic, EARLIEST, version).offset == 0
    assert offset(raw, topic, LATEST, version).offset == 3
    found = offset(raw, topic, HOUR_AGO + 2_001, version)
    assert (found.error_code, found.offset) == (ErrorCode.none, 1)
    nothing = offset(raw, topic, HOUR_AGO + 9_001, version)
    assert (nothing.error_code, nothing.offset) == (ErrorCode.none, -1)


def test_special_timestamps(raw: Raw, topic: str) -> None:
    assert offset(raw, topic, MAX_TIMESTAMP).offset == -1
    for each in (2_000, 9_000, 5_000):
        produce(raw, topic, batch(2, timestamp=HOUR_AGO + each))
    highest = offset(raw, topic, MAX_TIMESTAMP)
    assert highest.offset == 2
    assert offset(raw, topic, EARLIEST_LOCAL).offset == 0
    assert offset(raw, topic, LATEST_TIERED).offset == -1


def test_offsets_check_the_leaders_epoch(raw: Raw, topic: str) -> None:
    assert offset(raw, topic, LATEST, current_leader_epoch=0).error_code == ErrorCode.none
    ahead = offset(raw, topic, LATEST, current_leader_epoch=5)
    assert (ahead.error_code, ahead.offset) == (ErrorCode.unknown_leader_epoch, -1)


def test_offsets_of_what_is_not_there(raw: Raw) -> None:
    found = offset(raw, unique("absent"), LATEST)
    assert (found.error_code, found.offset) == (ErrorCode.unknown_topic_or_partition, -1)


def test_an_epoch_ends_where_the_next_begins(raw: Raw, topic: str) -> None:
    produce(raw, topic, batch(3))

    def end(epoch: int, current: int = -1) -> tuple[ErrorCode, int, int]:
        parts = [{"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}]
        answer = raw.call("offset_for_leader_epoch", 4, topics=[{"topic": topic, "partitions": parts}])
        found = answer.topics[0].partitions[0]
        return ErrorCode(found.error_code), found.leader_epoch, found.end_offset

    assert end(0) == (ErrorCode.none, 0, 3)
    assert end(5) == (ErrorCode.none, -1, -1)
    assert end(0, current=4) == (ErrorCode.unknown_leader_epoch, -1, -1)


def test_partitions_are_described_in_pages(raw: Raw, wide_topic: str, topic: str) -> None:
    names = [{"name": name} for name in sorted([wide_topic, topic])]
    answer = raw.call("describe_topic_partitions", 0, topics=names, response_partition_limit=3)
    seen = [(each.name, part.partition_index) for each in answer.topics for part in each.partitions]
    while answer.next_cursor is not None:
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
        assert len(seen) < 5
        answer = raw.call(
            "describe_topic_partitions", 0, topics=names, response_partition_limit=3, cursor=cursor
        )
        seen += [(each.name, part.partition_index) for each in answer.topics for part in each.partitions]
    assert sorted(seen) == sorted([(topic, 0)] + [(wide_topic, each) for each in range(4)])


def test_topics_are_created_where_they_are_told_to_be(raw: Raw) -> None:
    def create(*assignments: list[int], **fields: Any) -> ErrorCode:
        plan = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(assignments)]
        wanted = {
            "name": unique("assigned"),
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": plan,
            **fields,
        }
        answer = raw.call("create_topics", 7, topics=[wanted], timeout=5_000)
        return ErrorCode(answer.topics[0].error_code)

    assert create([1], [1]) == ErrorCode.none
    assert create([9]) == ErrorCode.invalid_replica_assignment
    assert create([1, 1]) == ErrorCode.invalid_replica_assignment
    assert create([1], num_partitions=3) == ErrorCode.invalid_request
    assert create() == ErrorCode.none


def test_one_name_twice_in_a_request_is_refused(raw: Raw) -> None:
    name = unique("twice")
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = raw.call("create_topics", 7, topics=[wanted, wanted], timeout=5_000)
    assert [(each.name, each.error_code) for each in answer.topics] == [(name, ErrorCode.invalid_request)]
