"""kafka-python: producer, consumer and administrator."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import pytest

from .brokers import HOUR_AGO, Broker, eventually, unique

with warnings.catch_warnings():
    # It reads its schemas, when it is imported, with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, OffsetSpec
    from kafka import TopicPartition as Partition
    from kafka.admin import ConfigResource
    from kafka.errors import (
        InvalidReplicationFactorError,
        InvalidTopicError,
        MessageSizeTooLargeError,
        NoError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")]


@contextmanager
def consumer(broker: Broker, *topics: str, **config: Any) -> Iterator[KafkaConsumer]:
    settings = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "consumer_timeout_ms": 20_000,
        **config,
    }
    with closing(KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **settings)) as made:
        yield made


@pytest.fixture
def administrator(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as made:
        yield made


def produce(broker: Broker, topic: str, count: int, **config: Any) -> list[int]:
    """Produce numbered records, a second apart, to partition 0 and return their offsets."""
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **config)) as made:
        futures = [
            made.send(
                topic,
                key=b"k",
                value=b"%d" % each,
                headers=[("h", b"x")],
                partition=0,
                timestamp_ms=HOUR_AGO + each * 1_000,
            )
            for each in range(count)
        ]
        return [future.get(20).offset for future in futures]


def take(made: KafkaConsumer, count: int) -> list[Any]:
    taken = list(islice(made, count))
    assert len(taken) == count
    return taken


@pytest.mark.parametrize("config", [{}, {"compression_type": "gzip"}, {"enable_idempotence": True}])
def test_records_come_back_as_they_went(broker: Broker, topic: str, config: dict[str, Any]) -> None:
    assert produce(broker, topic, 30, **config) == list(range(30))
    with consumer(broker, topic) as made:
        records = take(made, 30)
    assert [record.value for record in records] == [b"%d" % each for each in range(30)]
    assert [record.timestamp for record in records] == [HOUR_AGO + each * 1_000 for each in range(30)]
    assert {(record.key, tuple(record.headers)) for record in records} == {(b"k", (("h", b"x"),))}


def test_two_members_share_the_partitions(broker: Broker, wide_topic: str, group: str) -> None:
    stop = threading.Event()
    held: dict[str, set[int]] = {"one": set(), "two": set()}

    def member(name: str) -> None:
        with consumer(broker, wide_topic, group_id=group, heartbeat_interval_ms=300) as made:
            while not stop.is_set():
                # With polls of 50 ms this client sometimes receives its assignment and does not take it.
                made.poll(timeout_ms=1_000)
                held[name] = {each.partition for each in made.assignment()}

    threads = [threading.Thread(target=member, args=(name,)) for name in held]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: [len(each) for each in held.values()], lambda seen: seen == [2, 2], seconds=30)
        assert held["one"] | held["two"] == {0, 1, 2, 3}
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_group_resumes_where_it_committed(broker: Broker, topic: str, group: str) -> None:
    produce(broker, topic, 6)
    partition = Partition(topic, 0)
    with consumer(broker, topic, group_id=group) as made:
        assert made.committed(partition) is None
        take(made, 1)
        made.commit({partition: OffsetAndMetadata(2, "note", -1)})
        assert made.committed(partition) == 2
    with consumer(broker, topic, group_id=group) as made:
        assert [record.offset for record in take(made, 4)] == [2, 3, 4, 5]


def test_seeking_and_the_offsets_of_a_partition(broker: Broker, topic: str) -> None:
    produce(broker, topic, 4)
    partition = Partition(topic, 0)
    with consumer(broker) as made:
        made.assign([partition])
        assert made.beginning_offsets([partition]) == {partition: 0}
        assert made.end_offsets([partition]) == {partition: 4}
        found = made.offsets_for_times({partition: HOUR_AGO + 1})[partition]
        assert (found.offset, found.timestamp) == (1, HOUR_AGO + 1_000)
        assert made.offsets_for_times({partition: HOUR_AGO + 9_000}) == {partition: None}
        made.seek(partition, 3)
        assert [record.offset for record in take(made, 1)] == [3]
        made.seek_to_beginning(partition)
        assert [record.offset for record in take(made, 1)] == [0]
        assert made.partitions_for_topic(topic) == {0}


def test_errors_are_kafkas(broker: Broker, topic: str) -> None:
    big = {"bootstrap_servers": broker.bootstrap, "max_request_size": 5_000_000, "batch_size": 1}
    with closing(KafkaProducer(**big)) as made, pytest.raises(MessageSizeTooLargeError):
        made.send(topic, b"x" * 1_100_000).get(20)
    with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([Partition(topic, 0)])
        reader.seek(Partition(topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError):
            next(reader)


def test_topics_are_administered(administrator: KafkaAdminClient, broker: Broker) -> None:
    name = unique("made")
    configs = {"retention.ms": "60000"}
    answer = administrator.create_topics({name: {"num_partitions": 2, "configs": configs}})
    [created] = answer["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (2, 1)
    assert created["configs"]["retention.ms"]["value"] == "60000"
    assert created["configs"]["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"

    # Kafka's controller answers before its broker knows.
    [described] = eventually(
        lambda: administrator.describe_topics([name]), lambda seen: bool(seen[0]["partitions"])
    )
    assert described["topic_id"] == created["topic_id"]
    assert [each["isr_nodes"] for each in described["partitions"]] == [[1], [1]]
    everything = {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"}
    assert set(described["authorized_operations"]) == everything | {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}

    administrator.create_partitions({name: 3})
    eventually(lambda: len(administrator.describe_topics([name])[0]["partitions"]), lambda seen: seen == 3)
    resource = ConfigResource("TOPIC", name, {"retention.ms": "70000"})
    assert administrator.alter_configs([resource]) == {"topic": {name: "OK"}}

    def retention() -> str:
        found = administrator.describe_configs([ConfigResource("TOPIC", name)])
        return str(found["topic"][name]["retention.ms"]["value"])

    eventually(retention, lambda seen: seen == "70000")

    produce(broker, name, 3)
    offsets = administrator.list_partition_offsets(
        {Partition(name, 0): OffsetSpec.LATEST, Partition(name, 1): OffsetSpec.EARLIEST}
    )
    assert {each.partition: found.offset for each, found in offsets.items()} == {0: 3, 1: 0}
    [log] = administrator.describe_log_dirs([name])[0]["log_dirs"]
    sizes = {each["partition_index"]: each["partition_size"] for each in log["topics"][0]["partitions"]}
    assert sizes[1] == sizes[2] == 0
    assert sizes[0] > 100
    deleted = administrator.delete_records({Partition(name, 0): 2})
    assert deleted[Partition(name, 0)]["low_watermark"] == 2
    administrator.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        administrator.delete_topics([name])


def test_what_cannot_be_created_says_why(administrator: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        administrator.create_topics([topic])
    with pytest.raises(InvalidTopicError):
        administrator.create_topics(["not allowed"])
    with pytest.raises(InvalidReplicationFactorError):
        administrator.create_topics({unique("three"): {"num_partitions": 1, "replication_factor": 3}})


def test_groups_are_administered(
    administrator: KafkaAdminClient, broker: Broker, topic: str, group: str
) -> None:
    produce(broker, topic, 3)
    partition = Partition(topic, 0)
    with consumer(broker, topic, group_id=group, client_id="me") as made:
        take(made, 2)
        made.commit()
        described = administrator.describe_groups([group])[group]
        assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
        [member] = described["members"]
        assert (member["client_id"], member["client_host"]) == ("me", "/127.0.0.1")
        [held] = member["member_assignment"]["assigned_partitions"]
        assert held == {"topic": topic, "partitions": [0]}
    [listed] = [each for each in administrator.list_groups() if each["group_id"] == group]
    assert (listed["protocol_type"], listed["group_state"], listed["group_type"]) == (
        "consumer",
        "Empty",
        "classic",
    )
    assert administrator.list_group_offsets([group])[group][partition].offset == 2
    wanted = {partition: OffsetAndMetadata(1, "", -1)}
    assert administrator.alter_group_offsets(group, wanted) == {partition: NoError}
    assert administrator.list_group_offsets([group])[group][partition].offset == 1
    assert administrator.reset_group_offsets(group, {partition: OffsetSpec.LATEST})[partition]["offset"] == 3
    assert administrator.delete_group_offsets(group, [partition]) == {partition: NoError}
    assert administrator.list_group_offsets([group])[group] == {}


def test_the_cluster_is_described(administrator: KafkaAdminClient, broker: Broker) -> None:
    described = administrator.describe_cluster()
    assert described["controller_id"] == 1
    [node] = described["brokers"]
    assert (node["broker_id"], node["host"], node["port"]) == (1, broker.host, broker.port)
