"""The administrator's side of confluent-kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it names no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from .brokers import HOUR_AGO, Broker, eventually, unique
from .confluent import SECONDS, consumer, produce, take

pytestmark = pytest.mark.real


def result(futures: dict[Any, Any]) -> Any:
    """Wait for the only answer."""
    [future] = futures.values()
    return future.result(SECONDS)


def error_of(futures: dict[Any, Any]) -> int:
    """Wait for the only answer, which must be a refusal, and return its code."""
    with pytest.raises(KafkaException) as refused:
        result(futures)
    return int(refused.value.args[0].code())


def configs(admin: AdminClient, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return found


def listed(admin: AdminClient, **filters: Any) -> set[str]:
    return {each.group_id for each in admin.list_consumer_groups(**filters).result(SECONDS).valid}


def alter(admin: AdminClient, topic: str, name: str, value: str | None, how: AlterConfigOpType) -> None:
    entry = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    result(admin.incremental_alter_configs([resource]))


def test_a_topic_is_created_described_and_deleted(admin: AdminClient) -> None:
    name = unique("made")
    result(admin.create_topics([NewTopic(name, num_partitions=3, config={"retention.ms": "60000"})]))
    described = result(admin.describe_topics(TopicCollection([name])))
    assert [each.id for each in described.partitions] == [0, 1, 2]
    assert {each.leader.id for each in described.partitions} == {1}
    assert {tuple(node.id for node in each.isr) for each in described.partitions} == {(1,)}
    assert not described.is_internal
    assert str(described.topic_id)
    listed = admin.list_topics(timeout=SECONDS)
    assert len(listed.topics[name].partitions) == 3
    assert configs(admin, name)["retention.ms"].value == "60000"
    result(admin.delete_topics([name]))
    eventually(lambda: admin.list_topics(timeout=SECONDS).topics, lambda seen: name not in seen)
    assert error_of(admin.describe_topics(TopicCollection([name]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_under_its_name_is_empty_and_another(broker: Broker, admin: AdminClient) -> None:
    name = unique("again")
    ids = set()
    for _time in range(2):
        result(admin.create_topics([NewTopic(name, num_partitions=1)]))
        assert [each.offset for each in produce(broker, name, [b"a", b"b"])] == [0, 1]
        ids.add(str(result(admin.describe_topics(TopicCollection([name]))).topic_id))
        result(admin.delete_topics([name]))
        eventually(lambda: admin.list_topics(timeout=SECONDS).topics, lambda seen: name not in seen)
    assert len(ids) == 2


def test_creation_can_be_tried_without_doing_it(admin: AdminClient) -> None:
    name = unique("tried")
    result(admin.create_topics([NewTopic(name, num_partitions=1)], validate_only=True))
    assert name not in admin.list_topics(timeout=SECONDS).topics


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewTopic("bad name", num_partitions=1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", num_partitions=1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, num_partitions=1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("three", num_partitions=1, replication_factor=3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("none", num_partitions=0), KafkaError.INVALID_PARTITIONS),
        (NewTopic("odd", num_partitions=1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("odd", num_partitions=1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic("odd", num_partitions=1, config={"retention.ms": "-2"}), KafkaError.INVALID_CONFIG),
        (NewTopic("odd", num_partitions=1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:10] if isinstance(value, NewTopic) else str(value),
)
def test_what_cannot_be_created_says_why(admin: AdminClient, wanted: NewTopic, code: int) -> None:
    assert error_of(admin.create_topics([wanted])) == code


def test_topics_that_exist_or_do_not_are_errors(admin: AdminClient, topic: str) -> None:
    assert error_of(admin.create_topics([NewTopic(topic, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    unknown = unique("unknown")
    assert error_of(admin.delete_topics([unknown])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    partitions = NewPartitions(unknown, 3)
    assert error_of(admin.create_partitions([partitions])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    resource = ConfigResource(ResourceType.TOPIC, unknown)
    assert error_of(admin.describe_configs([resource])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_names_that_differ_only_in_dot_and_underscore_collide(admin: AdminClient) -> None:
    name = unique("dot.ted")
    result(admin.create_topics([NewTopic(name, 1)]))
    other = NewTopic(name.replace(".", "_"), 1)
    assert error_of(admin.create_topics([other])) == KafkaError.TOPIC_EXCEPTION


def test_partitions_are_added_and_never_taken_away(broker: Broker, admin: AdminClient, topic: str) -> None:
    result(admin.create_partitions([NewPartitions(topic, 3)]))
    eventually(
        lambda: len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions),
        lambda seen: seen == 3,
    )
    assert [each.error for each in produce(broker, topic, [b"v"], partition=2)] == [None]
    for count in (2, 3):
        code = error_of(admin.create_partitions([NewPartitions(topic, count)]))
        assert code == KafkaError.INVALID_PARTITIONS


def test_settings_of_a_topic_are_set_and_unset(admin: AdminClient, topic: str) -> None:
    before = configs(admin, topic)["retention.ms"]
    assert (before.value, before.is_default) == ("604800000", True)
    assert before.source == ConfigSource.DEFAULT_CONFIG.value
    alter(admin, topic, "retention.ms", "5000", AlterConfigOpType.SET)
    changed = eventually(lambda: configs(admin, topic)["retention.ms"], lambda seen: seen.value == "5000")
    assert not changed.is_default
    assert changed.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not changed.is_read_only
    assert not changed.is_sensitive
    alter(admin, topic, "retention.ms", None, AlterConfigOpType.DELETE)
    eventually(lambda: configs(admin, topic)["retention.ms"].value, lambda seen: seen == "604800000")


def test_lists_grow_and_shrink(admin: AdminClient, topic: str) -> None:
    alter(admin, topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND)
    eventually(lambda: configs(admin, topic)["cleanup.policy"].value, lambda seen: seen == "delete,compact")
    alter(admin, topic, "cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    eventually(lambda: configs(admin, topic)["cleanup.policy"].value, lambda seen: seen == "compact")


def test_settings_that_make_no_sense_are_refused(admin: AdminClient, topic: str) -> None:
    for name, value in (("no.such.setting", "1"), ("segment.bytes", "many"), ("max.message.bytes", "-1")):
        with pytest.raises(KafkaException) as refused:
            alter(admin, topic, name, value, AlterConfigOpType.SET)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_the_settings_of_the_broker_are_described(admin: AdminClient) -> None:
    found = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert found["auto.create.topics.enable"].value == "true"
    assert found["group.initial.rebalance.delay.ms"].value == "0"
    assert found["num.partitions"].value == "1"
    assert {"log.retention.ms", "message.max.bytes", "log.segment.bytes"} <= set(found)


def test_every_topic_setting_of_kafka_has_kafkas_default(admin: AdminClient, topic: str) -> None:
    found = {name: entry.value for name, entry in configs(admin, topic).items()}
    assert (
        found.items()
        >= {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "delete.retention.ms": "86400000",
            "file.delete.delay.ms": "60000",
            "flush.messages": "9223372036854775807",
            "flush.ms": "9223372036854775807",
            "index.interval.bytes": "4096",
            "max.compaction.lag.ms": "9223372036854775807",
            "max.message.bytes": "1048588",
            "message.timestamp.after.max.ms": "3600000",
            "message.timestamp.before.max.ms": "9223372036854775807",
            "message.timestamp.type": "CreateTime",
            "min.cleanable.dirty.ratio": "0.5",
            "min.compaction.lag.ms": "0",
            "min.insync.replicas": "1",
            "preallocate": "false",
            "retention.bytes": "-1",
            "retention.ms": "604800000",
            "segment.bytes": "1073741824",
            "segment.index.bytes": "10485760",
            "segment.jitter.ms": "0",
            "segment.ms": "604800000",
            "unclean.leader.election.enable": "false",
        }.items()
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_and_deleted(
    broker: Broker, admin: AdminClient, wide_topic: str, group: str, protocol: str
) -> None:
    produce(broker, wide_topic, [b"v"], partition=1)
    with consumer(broker, group, group_protocol=protocol, client_id="me") as made:
        made.subscribe([wide_topic])
        [message] = take(made, 1)
        made.commit(message=message, asynchronous=False)
        described = eventually(
            lambda: result(admin.describe_consumer_groups([group])),
            lambda seen: bool(seen.state == ConsumerGroupState.STABLE),
        )
        assert described.type == ConsumerGroupType[protocol.upper()]
        assert described.partition_assignor == {"classic": "range", "consumer": "uniform"}[protocol]
        assert described.coordinator.id == 1
        [member] = described.members
        assert member.client_id == "me"
        # Kafka's addresses carry the slash of Java's InetAddress.
        assert member.host == "/127.0.0.1"
        held = {(each.topic, each.partition) for each in member.assignment.topic_partitions}
        assert held == {(wide_topic, partition) for partition in range(4)}
        assert error_of(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP
    empty = eventually(
        lambda: result(admin.describe_consumer_groups([group])),
        lambda seen: bool(seen.state == ConsumerGroupState.EMPTY),
    )
    assert empty.members == []
    assert group in listed(admin)
    assert group in listed(admin, states={ConsumerGroupState.EMPTY})
    assert group not in listed(admin, states={ConsumerGroupState.STABLE})
    assert group in listed(admin, types={ConsumerGroupType[protocol.upper()]})
    result(admin.delete_consumer_groups([group]))
    assert group not in listed(admin)
    assert error_of(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND


def test_a_group_that_is_not_there_is_described_as_dead(admin: AdminClient, group: str) -> None:
    assert result(admin.describe_consumer_groups([group])).state == ConsumerGroupState.DEAD


def test_the_offsets_of_a_group_are_altered_and_listed(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    produce(broker, topic, [b"a", b"b"])
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    altered = result(admin.alter_consumer_group_offsets([wanted]))
    assert [each.error for each in altered.topic_partitions] == [None]
    listed = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(each.topic, each.partition, each.offset) for each in listed.topic_partitions] == [(topic, 0, 1)]
    with consumer(broker, group) as made:
        made.subscribe([topic])
        assert [message.value() for message in take(made, 1)] == [b"b"]


def test_offsets_are_listed_by_every_specification(broker: Broker, admin: AdminClient, topic: str) -> None:
    stamps = [HOUR_AGO + 5_000, HOUR_AGO + 9_000, HOUR_AGO + 7_000]
    for stamp in stamps:
        produce(broker, topic, [b"v"], timestamp=stamp)

    spec: Any = OffsetSpec  # its constructors carry no types

    def ask(wanted: Any) -> tuple[int, int]:
        found = result(admin.list_offsets({TopicPartition(topic, 0): wanted}))
        return found.offset, found.timestamp

    assert ask(spec.earliest()) == (0, -1)
    assert ask(spec.latest()) == (3, -1)
    assert ask(spec.max_timestamp()) == (1, stamps[1])
    assert ask(spec.for_timestamp(stamps[0] + 1)) == (1, stamps[1])
    assert ask(spec.for_timestamp(stamps[1] + 1)) == (-1, -1)


def test_records_are_deleted_from_the_front(broker: Broker, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(10)])

    def delete(before: int) -> int:
        return int(result(admin.delete_records([TopicPartition(topic, 0, before)])).low_watermark)

    assert delete(4) == 4
    assert delete(2) == 4
    with consumer(broker, "reader") as made:
        assert made.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (4, 10)
        made.assign([TopicPartition(topic, 0, 0)])
        assert [message.offset() for message in take(made, 6)] == [4, 5, 6, 7, 8, 9]
    futures = admin.delete_records([TopicPartition(topic, 0, 11)])
    assert error_of(futures) == KafkaError.OFFSET_OUT_OF_RANGE
    assert delete(-1) == 10
    assert [each.offset for each in produce(broker, topic, [b"next"])] == [10]


def test_the_cluster_is_one_broker_that_is_its_own_controller(broker: Broker, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(SECONDS)
    assert len(described.cluster_id) == 22
    assert described.controller.id == 1
    assert [(node.id, node.host, node.port) for node in described.nodes] == [(1, broker.host, broker.port)]
    assert admin.list_topics(timeout=SECONDS).cluster_id == described.cluster_id


def test_rules_of_access_are_refused_where_there_is_no_authorizer(admin: AdminClient) -> None:
    rule = (
        *(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL),
        *("User:ada", "*", AclOperation.READ, AclPermissionType.ALLOW),
    )
    assert error_of(admin.create_acls([AclBinding(*rule)])) == KafkaError.SECURITY_DISABLED
    assert error_of(admin.delete_acls([AclBindingFilter(*rule)])) == KafkaError.SECURITY_DISABLED
