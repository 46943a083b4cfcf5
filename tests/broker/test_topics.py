"""The state machine of topics: against a model of dictionaries, and rebuilt by replay at every step."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from headwater.broker.state import StateRecord
from headwater.broker.topics import (
    BrokerConfigChanged,
    ConfigChanged,
    Effect,
    NewTopic,
    PartitionsAdded,
    Topic,
    TopicCreated,
    TopicDeleted,
    Topics,
)
from headwater.core.errors import ApiError, ErrorCode, HeadwaterError

NAMES = st.sampled_from(["a", "b", "x.y", "x_y", "x-y"])
RETENTION = st.sampled_from(["1", "2", "-1"])


def apply(topics: Topics, records: list[StateRecord]) -> list[Effect]:
    return [effect for record in records for effect in topics.replay(record)]


def made(topics: Topics, name: str, partitions: int = 1, **configs: str) -> Topic:
    overrides = {key.replace("_", "."): value for key, value in configs.items()}
    apply(topics, topics.create(NewTopic(name, partitions, configs=overrides))[1])
    return topics.by_name[name]


class TopicsMachine(RuleBasedStateMachine):
    """Every change goes to the machine, to a model, and to a compacted log from which it is rebuilt."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.model: dict[str, tuple[uuid.UUID, int, dict[str, str]]] = {}
        self.broker: dict[str, str] = {}
        self.log: dict[bytes, bytes] = {}

    def commit(self, records: list[StateRecord]) -> list[Effect]:
        for record in records:
            if record.value is None:
                self.log.pop(record.key, None)
            else:
                self.log[record.key] = record.value
        return apply(self.topics, records)

    @rule(name=NAMES, partitions=st.integers(1, 4), retention=st.none() | RETENTION)
    def create(self, name: str, partitions: int, retention: str | None) -> None:
        configs = {} if retention is None else {"retention.ms": retention}
        new = NewTopic(name, partitions, configs=configs)
        taken = {other.replace(".", "_") for other in self.model}
        if name.replace(".", "_") in taken:
            with pytest.raises(ApiError) as refused:
                self.topics.create(new)
            exists = name in self.model
            code = ErrorCode.topic_already_exists if exists else ErrorCode.invalid_topic_exception
            assert refused.value.code is code
            return
        topic, records = self.topics.create(new)
        (effect,) = self.commit(records)
        assert isinstance(effect, TopicCreated)
        assert effect.topic.id == topic.id
        self.model[name] = (topic.id, partitions, configs)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        topic = self.topics.by_name.get(name)
        assert (topic is not None) is (name in self.model)
        if topic is not None:
            assert self.commit(self.topics.delete(topic)) == [TopicDeleted(topic)]
            del self.model[name]

    @rule(name=NAMES, count=st.integers(-1, 6))
    def add_partitions(self, name: str, count: int) -> None:
        if name not in self.model or count <= self.model[name][1]:
            with pytest.raises(ApiError):
                self.topics.add_partitions(name, count)
            return
        topic_id, before, configs = self.model[name]
        (effect,) = self.commit(self.topics.add_partitions(name, count))
        assert isinstance(effect, PartitionsAdded)
        assert (effect.first, effect.topic.partitions) == (before, count)
        self.model[name] = (topic_id, count, configs)

    @rule(name=NAMES, retention=st.none() | RETENTION)
    def alter(self, name: str, retention: str | None) -> None:
        configs = {} if retention is None else {"retention.ms": retention}
        if name not in self.model:
            with pytest.raises(ApiError):
                self.topics.alter_topic(name, configs)
            return
        before = self.topics.by_name[name].settings
        effects = self.commit(self.topics.alter_topic(name, configs))
        assert bool(effects) is (self.topics.by_name[name].settings != before)
        assert all(isinstance(effect, ConfigChanged) for effect in effects)
        self.model[name] = (*self.model[name][:2], configs)

    @rule(retention=st.none() | RETENTION)
    def alter_broker(self, retention: str | None) -> None:
        self.broker = {} if retention is None else {"log.retention.ms": retention}
        self.commit(self.topics.alter_broker("", self.broker))

    @invariant()
    def is_the_model(self) -> None:
        inherited = int(self.broker.get("log.retention.ms", 7 * 24 * 3600 * 1000))
        for topics in (self.topics, self.rebuilt()):
            assert {t.name: (t.id, t.partitions, t.overrides) for t in topics.by_name.values()} == self.model
            assert {topic.id for topic in topics.by_id.values()} == {
                entry[0] for entry in self.model.values()
            }
            assert all(topics.by_id[topic.id] is topic for topic in topics.by_name.values())
            assert topics.partition_count == sum(entry[1] for entry in self.model.values())
            for topic in topics.by_name.values():
                expected = int(topic.overrides.get("retention.ms", inherited))
                assert topic.settings["retention.ms"] == expected

    def rebuilt(self) -> Topics:
        topics = Topics()
        apply(topics, [StateRecord(key, value) for key, value in self.log.items()])
        return topics


TestTopicsMachine = TopicsMachine.TestCase


def test_a_handler_alone_changes_nothing() -> None:
    topics = Topics()
    made(topics, "a")
    topics.create(NewTopic("b"))
    topics.add_partitions("a", 3)
    topics.alter_topic("a", {"retention.ms": "5"})
    topics.alter_broker("", {"max.connections": "5"})
    topics.delete(topics.by_name["a"])
    assert set(topics.by_name) == {"a"}
    assert (topics.by_name["a"].partitions, topics.by_name["a"].overrides) == (1, {})
    assert topics.broker_configs == {}


def test_deleted_and_created_again_in_one_record() -> None:
    topics, other = Topics(), Topics()
    old = made(topics, "a", 2)
    new, records = other.create(NewTopic("a", 3))
    deleted, created = apply(topics, records)
    assert deleted == TopicDeleted(old)
    assert isinstance(created, TopicCreated)
    assert created.topic.id == new.id
    assert list(topics.by_id) == [new.id]
    assert topics.partition_count == 3


def test_partitions_and_settings_that_change_in_one_record() -> None:
    topics = Topics()
    topic = made(topics, "a", 2)
    value = {"version": 1, "id": str(topic.id), "partitions": 4, "configs": {"retention.ms": "5"}}
    record = StateRecord(b"topic/a", json.dumps(value).encode())
    assert [type(effect) for effect in topics.replay(record)] == [PartitionsAdded, ConfigChanged]
    assert topics.replay(record) == ()


def test_settings_of_the_broker_reach_the_topics_without_their_own() -> None:
    topics = Topics(given={"log.retention.hours": "1"})
    made(topics, "a")
    own = made(topics, "b", retention_ms="5")
    changed, config = apply(topics, topics.alter_broker("1", {"log.retention.ms": "7"}))
    assert isinstance(changed, BrokerConfigChanged)
    assert changed.settings["log.retention.ms"] == 7
    assert isinstance(config, ConfigChanged)
    assert config.topic is topics.by_name["a"] is topics.by_id[config.topic.id]
    assert topics.by_name["b"] is own
    apply(topics, topics.alter_broker("1", {}))
    assert topics.by_name["a"].settings["retention.ms"] == 3_600_000
    assert topics.broker_configs == {}


def test_settings_of_another_broker_are_kept_and_do_nothing() -> None:
    topics = Topics()
    assert apply(topics, topics.alter_broker("2", {"log.retention.ms": "7"})) == []
    assert topics.broker_configs == {"2": {"log.retention.ms": "7"}}


def test_the_broker_itself_creates_internal_topics() -> None:
    topics = Topics()
    with pytest.raises(ApiError) as refused:
        topics.create(NewTopic("__consumer_offsets"))
    assert refused.value.code is ErrorCode.invalid_request
    apply(topics, topics.create(NewTopic("__consumer_offsets"), internal=True)[1])
    topic = topics.by_name["__consumer_offsets"]
    assert topic.internal
    with pytest.raises(ApiError):
        topics.delete(topic)
    with pytest.raises(ApiError) as exists:
        topics.create(NewTopic("__consumer_offsets"))
    assert exists.value.code is ErrorCode.topic_already_exists
    with pytest.raises(ApiError):
        topics.create(NewTopic("__cluster_metadata"), internal=True)


def test_a_tombstone_of_nothing_and_a_foreign_key_change_nothing() -> None:
    topics = Topics()
    assert topics.replay(StateRecord(b"topic/a", None)) == ()
    assert topics.replay(StateRecord(b"producer_ids", b"{}")) == ()


def test_a_record_of_a_newer_version_is_not_misread() -> None:
    with pytest.raises(HeadwaterError, match="version 2"):
        Topics().replay(StateRecord(b"topic/a", b'{"version":2}'))
