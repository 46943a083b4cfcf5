"""Topics and configurations: a state machine replayed from the metadata log.

The log has one key per topic, `topic/<name>`, and one per set of dynamic broker settings, `broker/<id>`, where
the empty id stands for all brokers. A value is the whole of it in JSON, with a version; a tombstone deletes.
A topic that is deleted and created again keeps its key and gets a new id, so after compaction one record
may stand for both: `replay` then returns both effects.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from headwater.broker.archive_settings import check_archive
from headwater.broker.broker_settings import BROKER_SETTINGS
from headwater.broker.state import StateRecord
from headwater.broker.topic_names import INTERNAL, METADATA_TOPIC, collision_key, problem_with
from headwater.broker.topic_settings import resolve_topic, topic_defaults
from headwater.core.errors import ApiError, ErrorCode, HeadwaterError, SettingError
from headwater.core.settings import Value

__all__ = [
    "BrokerConfigChanged",
    "ConfigChanged",
    "Effect",
    "NewTopic",
    "PartitionsAdded",
    "Topic",
    "TopicCreated",
    "TopicDeleted",
    "Topics",
]

_TOPIC: Final = b"topic/"
_BROKER: Final = b"broker/"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Topic:
    """A topic as it is now; a change of it makes another."""

    name: str
    id: uuid.UUID
    partitions: int
    overrides: Mapping[str, str]
    settings: Mapping[str, Value]
    internal: bool


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that someone wants; -1 leaves partitions or replication to the broker's settings."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic exists that did not."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is gone."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic has partitions from `first` on that it did not have."""

    topic: Topic
    first: int


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A topic's settings are others now."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """The broker's settings are others now."""

    settings: Mapping[str, Value]


Effect = TopicCreated | TopicDeleted | PartitionsAdded | ConfigChanged | BrokerConfigChanged


class Topics:
    """Every topic, and the broker's dynamic settings.

    `given` are the settings that the broker was started with, as text.
    """

    def __init__(
        self,
        node_id: int = 1,
        given: Mapping[str, str] | None = None,
        *,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.node_id = node_id
        self.given = dict(given or {})
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.broker_settings: dict[str, Value] = {}
        self.partition_count = 0
        self._defaults: dict[str, Value] = {}
        self._collisions: dict[str, set[str]] = {}
        self._new_id = new_id
        self._resolve_broker()

    # -- handlers: they look, and return the records that would change something ---------------------

    def create(
        self, new: NewTopic, *, pending: int = 0, internal: bool = False
    ) -> tuple[Topic, list[StateRecord]]:
        """Return a new topic and the record that makes it, or raise `ApiError`.

        `pending` partitions are about to be created by the same request. Only the broker itself passes
        `internal`, for topics whose names clients may not create.
        """
        if new.name == METADATA_TOPIC or (
            new.name in INTERNAL and not internal and new.name not in self.by_name
        ):
            raise ApiError(ErrorCode.invalid_request, f"Creation of internal topic {new.name} is prohibited.")
        self._check_name(new.name)
        overrides = _without_null(new.configs or {})
        settings = self._resolve(overrides)
        partitions = self._partitions_of(new)
        self._check_room(partitions, pending)
        topic = Topic(new.name, self._new_id(), partitions, overrides, settings, new.name in INTERNAL)
        return topic, [_topic_record(topic)]

    def delete(self, topic: Topic) -> list[StateRecord]:
        """Return the record that deletes a topic, or raise `ApiError`."""
        if topic.internal:
            raise ApiError(
                ErrorCode.invalid_request, f"Deletion of internal topic {topic.name} is prohibited."
            )
        return [StateRecord(_TOPIC + topic.name.encode(), None)]

    def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, pending: int = 0
    ) -> list[StateRecord]:
        """Return the record that gives a topic `count` partitions in all, or raise `ApiError`."""
        topic = self.by_name.get(name)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        if topic.internal:
            raise ApiError(ErrorCode.invalid_request, f"The partitions of internal topic {name} are fixed.")
        if count == topic.partitions:
            raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {count} partition(s).")
        if count < topic.partitions:
            raise ApiError(
                ErrorCode.invalid_partitions,
                f"The topic {name} currently has {topic.partitions} partition(s); "
                f"{count} would not be an increase.",
            )
        added = count - topic.partitions
        if assignments is not None:
            if len(assignments) != added:
                raise ApiError(
                    ErrorCode.invalid_replica_assignment,
                    f"Attempted to add {added} additional partition(s), "
                    f"but only {len(assignments)} assignment(s) were specified.",
                )
            for replicas in assignments:
                self.check_replicas(replicas)
        self._check_room(added, pending)
        return [_topic_record(replace(topic, partitions=count))]

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> list[StateRecord]:
        """Return the record that makes these a topic's own settings, all of them, or raise `ApiError`."""
        if not name:
            raise ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        problem = problem_with(name)
        if problem is not None:
            raise ApiError(ErrorCode.invalid_topic_exception, problem)
        topic = self.by_name.get(name)
        settings = self._resolve(overrides, topic)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
        if overrides == topic.overrides:
            return []
        return [_topic_record(replace(topic, overrides=dict(overrides), settings=settings))]

    def alter_broker(self, broker: str, configs: Mapping[str, str]) -> list[StateRecord]:
        """Return the record that makes these a broker's dynamic settings, all of them, or raise `ApiError`."""
        try:
            for name, text in configs.items():
                BROKER_SETTINGS[name].parse(text)
        except SettingError as error:
            raise ApiError(ErrorCode.invalid_request, str(error)) from error
        key = _BROKER + broker.encode()
        return [StateRecord(key, _json({"configs": dict(configs)}) if configs else None)]

    def check_replicas(self, replicas: Sequence[int]) -> None:
        """Raise `ApiError` unless a partition may be assigned to these brokers: to this node, once."""
        if not replicas:
            problem = "an empty replica list."
        elif any(broker != self.node_id for broker in replicas):
            stranger = next(broker for broker in replicas if broker != self.node_id)
            problem = f"broker {stranger}, but no such broker is registered."
        elif len(replicas) > 1:
            problem = f"the broker {self.node_id} more than once."
        else:
            return
        raise ApiError(
            ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {problem}"
        )

    # -- replay: the only thing that changes anything -------------------------------------------------

    def replay(self, record: StateRecord) -> tuple[Effect, ...]:
        """Apply a record, and return what changed by it."""
        if record.key.startswith(_TOPIC):
            name = record.key[len(_TOPIC) :].decode()
            return self._replay_topic(name, None if record.value is None else _load(record.value))
        if record.key.startswith(_BROKER):
            broker = record.key[len(_BROKER) :].decode()
            return self._replay_broker(broker, {} if record.value is None else _load(record.value)["configs"])
        return ()

    def _replay_topic(self, name: str, value: dict[str, Any] | None) -> tuple[Effect, ...]:
        old = self.by_name.get(name)
        if value is None:
            return () if old is None else (self._forget(old),)
        overrides = value["configs"]
        new = Topic(
            name,
            uuid.UUID(value["id"]),
            value["partitions"],
            overrides,
            resolve_topic(overrides, self._defaults),
            name in INTERNAL,
        )
        effects: list[Effect] = []
        if old is not None and old.id != new.id:
            effects.append(self._forget(old))
            old = None
        self._remember(new)
        if old is None:
            return (*effects, TopicCreated(new))
        self.partition_count -= old.partitions
        if new.partitions > old.partitions:
            effects.append(PartitionsAdded(new, old.partitions))
        if new.settings != old.settings:
            effects.append(ConfigChanged(new))
        return tuple(effects)

    def _remember(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic
        self._collisions.setdefault(collision_key(topic.name), set()).add(topic.name)
        self.partition_count += topic.partitions

    def _forget(self, topic: Topic) -> TopicDeleted:
        del self.by_name[topic.name]
        del self.by_id[topic.id]
        key = collision_key(topic.name)
        self._collisions[key].discard(topic.name)
        if not self._collisions[key]:
            del self._collisions[key]
        self.partition_count -= topic.partitions
        return TopicDeleted(topic)

    def _replay_broker(self, broker: str, configs: dict[str, str]) -> tuple[Effect, ...]:
        if configs:
            self.broker_configs[broker] = configs
        else:
            self.broker_configs.pop(broker, None)
        before = self.broker_settings
        self._resolve_broker()
        if self.broker_settings == before:
            return ()
        return (BrokerConfigChanged(self.broker_settings), *self._renew_topics())

    def _resolve_broker(self) -> None:
        merged = {name: text for name, text in self.given.items() if name in BROKER_SETTINGS}
        for broker in ("", str(self.node_id)):
            merged.update(self.broker_configs.get(broker, {}))
        self.broker_settings = BROKER_SETTINGS.resolve(merged)
        self._defaults = topic_defaults(self.broker_settings)

    def _renew_topics(self) -> list[Effect]:
        effects: list[Effect] = []
        for name, topic in self.by_name.items():
            settings = resolve_topic(topic.overrides, self._defaults)
            if settings != topic.settings:
                new = replace(topic, settings=settings)
                self.by_name[name] = self.by_id[topic.id] = new
                effects.append(ConfigChanged(new))
        return effects

    # -- checks -------------------------------------------------------------------------------------

    def _check_name(self, name: str) -> None:
        if name in self.by_name:
            raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        problem = problem_with(name)
        if problem is not None:
            raise ApiError(ErrorCode.invalid_topic_exception, problem)
        others = self._collisions.get(collision_key(name))
        if others:
            raise ApiError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {min(others)}",
            )

    def _resolve(self, overrides: Mapping[str, str], topic: Topic | None = None) -> dict[str, Value]:
        try:
            settings = resolve_topic(overrides, self._defaults)
            check_archive(
                settings,
                None if topic is None else topic.settings,
                has_archive=self.broker_settings["headwater.archive.dir"] is not None,
            )
        except SettingError as error:
            raise ApiError(ErrorCode.invalid_config, str(error)) from error
        least, most = (cast(int, settings[f"{end}.compaction.lag.ms"]) for end in ("min", "max"))
        if least > most:
            raise ApiError(
                ErrorCode.invalid_config,
                f"min.compaction.lag.ms={least} does not fit: max.compaction.lag.ms is {most}",
            )
        return settings

    def _partitions_of(self, new: NewTopic) -> int:
        if new.assignments:
            return self._assigned(new, new.assignments)
        if new.replication_factor == 0 or new.replication_factor < -1:
            raise ApiError(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if new.partitions == 0 or new.partitions < -1:
            raise ApiError(
                ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
            )
        if new.replication_factor > 1:
            raise ApiError(
                ErrorCode.invalid_replication_factor,
                f"Unable to replicate the partition {new.replication_factor} time(s): The target replication "
                f"factor of {new.replication_factor} cannot be reached because only 1 broker(s) are registered.",
            )
        if new.partitions == -1:
            return self._limit("num.partitions")
        return new.partitions

    def _assigned(self, new: NewTopic, assignments: Mapping[int, Sequence[int]]) -> int:
        for given, name in (
            (new.replication_factor, "replication factor"),
            (new.partitions, "numPartitions"),
        ):
            if given != -1:
                raise ApiError(
                    ErrorCode.invalid_request,
                    f"A manual partition assignment was specified, but {name} was not set to -1.",
                )
        for replicas in assignments.values():
            self.check_replicas(replicas)
        if set(assignments) != set(range(len(assignments))):
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return len(assignments)

    def _check_room(self, added: int, pending: int) -> None:
        if pending + added > self._limit("headwater.max.partitions.per.request"):
            raise ApiError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
        limit = self._limit("headwater.max.partitions")
        if self.partition_count + pending + added > limit:
            raise ApiError(
                ErrorCode.policy_violation,
                f"The broker has {self.partition_count} partition(s); {added} more would be past the "
                f"{limit} of headwater.max.partitions.",
            )

    def _limit(self, name: str) -> int:
        value = self.broker_settings[name]
        assert isinstance(value, int)
        return value


def _without_null(configs: Mapping[str, str | None]) -> dict[str, str]:
    null = [name for name, value in configs.items() if value is None]
    if null:
        raise ApiError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(null)}"
        )
    return {name: value for name, value in configs.items() if value is not None}


def _topic_record(topic: Topic) -> StateRecord:
    value = {"id": str(topic.id), "partitions": topic.partitions, "configs": dict(topic.overrides)}
    return StateRecord(_TOPIC + topic.name.encode(), _json(value))


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps({"version": _VERSION, **value}, separators=(",", ":")).encode()


def _load(value: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(value)
    if loaded["version"] != _VERSION:
        raise HeadwaterError(
            f"the metadata log has a record of version {loaded['version']}, and this broker reads {_VERSION}: "
            "start the version that wrote it"
        )
    return loaded
