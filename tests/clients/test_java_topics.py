"""Kafka's own tools for topics, settings, offsets and the cluster.

A virtual machine takes a second to start, so each test follows one topic through several tools.
"""

from __future__ import annotations

import json

import pytest

from .brokers import HOUR_AGO, Broker, eventually, unique
from .confluent import produce
from .tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    DELETE_RECORDS,
    GET_OFFSETS,
    LOG_DIRS,
    TOPICS,
    Tools,
)

pytestmark = pytest.mark.real


def test_kafka_topics_creates_lists_describes_alters_and_deletes(tools: Tools) -> None:
    name = unique("made")
    created = tools.run(
        TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=60000"
    )
    assert created.lines == [f"Created topic {name}."]
    again = tools.try_(TOPICS, "--create", "--topic", name)
    assert again.status == 1
    assert f"Topic '{name}' already exists." in again.output

    tools.run(TOPICS, "--alter", "--topic", name, "--partitions", "3")
    assert name in tools.run(TOPICS, "--list").lines
    head, *partitions = tools.run(TOPICS, "--describe", "--topic", name).lines
    assert "PartitionCount: 3\tReplicationFactor: 1" in head
    assert "retention.ms=60000" in head
    assert [line.split("\t")[1:6] for line in partitions] == [
        [f"Topic: {name}", f"Partition: {each}", "Leader: 1", "Replicas: 1", "Isr: 1"] for each in range(3)
    ]

    tools.run(TOPICS, "--delete", "--topic", name)
    gone = tools.try_(TOPICS, "--describe", "--topic", name)
    assert gone.status == 1
    assert f"Topic '{name}' does not exist as expected" in gone.output


def test_kafka_topics_says_what_is_wrong(tools: Tools) -> None:
    refused = tools.try_(TOPICS, "--create", "--topic", unique("three"), "--replication-factor", "3")
    assert refused.status == 1
    assert "InvalidReplicationFactorException" in refused.errors


def test_kafka_configs_describes_and_alters_a_topic(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    wanted = "max.message.bytes=2000,cleanup.policy=[compact,delete]"
    altered = tools.run(CONFIGS, "--alter", *entity, "--add-config", wanted)
    assert altered.lines == [f"Completed updating config for topic {topic}."]

    def described() -> list[str]:
        return tools.run(CONFIGS, "--describe", *entity).lines

    head, *settings = eventually(described, lambda seen: len(seen) == 3)
    assert head == f"Dynamic configs for topic {topic} are:"
    assert settings == [
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy="
        "compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}",
    ]
    tools.run(CONFIGS, "--alter", *entity, "--delete-config", "max.message.bytes")
    eventually(described, lambda seen: len(seen) == 2)
    refused = tools.try_(CONFIGS, "--alter", *entity, "--add-config", "no.such.setting=1")
    assert refused.status == 1
    assert "Unknown topic config name: no.such.setting" in refused.errors


def test_kafka_configs_describes_the_broker(tools: Tools) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    lines = tools.run(CONFIGS, "--describe", "--all", *entity).lines
    assert lines[0] == "All configs for broker 1 are:"
    names = {line.strip().split("=")[0] for line in lines[1:]}
    assert {"auto.create.topics.enable", "log.retention.ms", "message.max.bytes", "num.partitions"} <= names


def test_kafka_get_offsets_answers_every_specification(tools: Tools, broker: Broker, wide_topic: str) -> None:
    for each in range(3):
        produce(broker, wide_topic, [b"v"], partition=1, timestamp=HOUR_AGO + (5_000, 9_000, 7_000)[each])

    def offsets(*arguments: str) -> list[str]:
        return [line.removeprefix(f"{wide_topic}:") for line in tools.run(GET_OFFSETS, *arguments).lines]

    assert offsets("--topic", wide_topic) == ["0:0", "1:3", "2:0", "3:0"]
    assert offsets("--topic", wide_topic, "--time", "earliest") == ["0:0", "1:0", "2:0", "3:0"]
    only = ("--topic-partitions", f"{wide_topic}:1")
    assert offsets(*only, "--time", "max-timestamp") == ["1:1"]
    assert offsets(*only, "--time", str(HOUR_AGO + 5_001)) == ["1:1"]
    # A partition without such a record is left out.
    assert offsets(*only, "--time", str(HOUR_AGO + 9_001)) == []


def test_kafka_delete_records_moves_the_start(tools: Tools, broker: Broker, topic: str) -> None:
    produce(broker, topic, [b"%d" % each for each in range(5)])
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}
    file = tools.scratch / "plan.json"
    file.write_text(json.dumps(plan))
    deleted = tools.run(DELETE_RECORDS, "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 3" in deleted.lines
    assert tools.run(GET_OFFSETS, "--topic", topic, "--time", "earliest").lines == [f"{topic}:0:3"]


def test_kafka_log_dirs_and_cluster_describe_the_broker(tools: Tools, broker: Broker, topic: str) -> None:
    produce(broker, topic, [b"v"])
    dirs = json.loads(tools.run(LOG_DIRS, "--describe", "--topic-list", topic).lines[-1])
    [described] = dirs["brokers"]
    [log] = described["logDirs"]
    [partition] = log["partitions"]
    assert (described["broker"], log["error"]) == (1, None)
    assert (partition["partition"], partition["offsetLag"]) == (f"{topic}-0", 0)
    assert partition["size"] > 60

    [line] = tools.run(CLUSTER, "cluster-id").lines
    assert line.startswith("Cluster ID: ")
    assert len(line.removeprefix("Cluster ID: ")) == 22
    [endpoint] = tools.run(CLUSTER, "list-endpoints").rows()
    assert (endpoint["ID"], endpoint["HOST"], endpoint["PORT"]) == ("1", broker.host, str(broker.port))
    assert (endpoint["STATE"], endpoint["ENDPOINT_TYPE"]) == ("unfenced", "broker")


def test_the_versions_of_every_api_a_log_broker_needs_are_kafkas(tools: Tools) -> None:
    output = tools.run(API_VERSIONS).output
    for api in (
        "Produce(0): 0 to 13",
        "Fetch(1): 4 to 1",
        "ListOffsets(2): 1 to 1",
        "Metadata(3): 0 to 13",
        "OffsetCommit(8): 2 to 10",
        "OffsetFetch(9): 1 to 10",
        "FindCoordinator(10): 0 to 6",
        "JoinGroup(11): 0 to 9",
        "Heartbeat(12): 0 to 4",
        "LeaveGroup(13): 0 to 5",
        "SyncGroup(14): 0 to 5",
        "DescribeGroups(15): 0 to 6",
        "ListGroups(16): 0 to 5",
        "ApiVersions(18): 0 to 4",
        "CreateTopics(19): 2 to 7",
        "DeleteTopics(20): 1 to 6",
        "DeleteRecords(21): 0 to 2",
        "InitProducerId(22): 0 to 5",
        "OffsetForLeaderEpoch(23): 2 to 4",
        "DescribeConfigs(32): 1 to 4",
        "AlterConfigs(33): 0 to 2",
        "DescribeLogDirs(35): 1 to ",
        "CreatePartitions(37): 0 to 3",
        "DeleteGroups(42): 0 to 2",
        "IncrementalAlterConfigs(44): 0 to 1",
        "OffsetDelete(47): 0",
        "DescribeCluster(60): 0 to 2",
        "ConsumerGroupHeartbeat(68): 0 to 1",
        "ConsumerGroupDescribe(69): 0 to 1",
        "DescribeTopicPartitions(75): 0",
    ):
        assert f"\t{api}" in output
