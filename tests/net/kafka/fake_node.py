"""A node without disk or sockets, and a way to ask its handlers as a client of any version would."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.serial import entity_reader

from headwater.broker.broker_settings import BROKER_SETTINGS
from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.broker.producer_ids import ProducerIds
from headwater.broker.rates import Window
from headwater.broker.state import StateRecord
from headwater.broker.topics import NewTopic, PartitionsAdded, Topic, TopicCreated, TopicDeleted, Topics
from headwater.broker.transactions.settings import TRANSACTION_SETTINGS
from headwater.core.errors import ApiError, ErrorCode
from headwater.core.settings import Settings, Value
from headwater.log.config import LogConfig
from headwater.net.kafka import cluster, configs, metadata, offsets, topics, transactions
from headwater.net.kafka.api import Request
from headwater.net.kafka.throttle import Throttle
from headwater.testing.clock import ManualClock
from headwater.wire.kafka.schema import FieldSchema, fields_of, request_type, response_type
from headwater.wire.kafka.writer import make_writer

HANDLERS = {
    key: handler
    for module in (cluster, configs, metadata, offsets, topics, transactions)
    for key, handler in module.HANDLERS.items()
}
NOWHERE = Path(tempfile.gettempdir())  # only its free space is asked for


class FakeLog:
    """A partition with (offset, timestamp) for records."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.records: list[tuple[int, int]] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.last_stable_offset = 0
        self.leader_epoch = 0
        self.error: str | None = None
        self.damage: Exception | None = None
        self.archived_to: int | None = None
        self.config = LogConfig()

    def append(self, *timestamps: int) -> None:
        for timestamp in timestamps:
            self.records.append((self.end_offset, timestamp))
            self.end_offset += 1
        self.high_watermark = self.last_stable_offset = self.end_offset

    def size_bytes(self) -> int:
        return 70 * (self.end_offset - self.start_offset)

    def local_bytes(self) -> int:
        return self.size_bytes()

    @property
    def local_start_offset(self) -> int:
        return self.start_offset if self.archived_to is None else self.archived_to

    @property
    def archived(self) -> bool:
        return self.archived_to is not None

    def offset_for_time(self, timestamp_ms: int, *, probe: bool) -> tuple[int, int] | None:
        if self.damage is not None:
            raise self.damage
        return next((record for record in self.records if record[1] >= timestamp_ms), None)

    def max_timestamp(self, *, probe: bool) -> tuple[int, int] | None:
        return max(self.records, key=lambda record: (record[1], -record[0]), default=None)

    def delete_before(self, offset: int) -> int:
        offset = self.high_watermark if offset == -1 else offset
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(ErrorCode.offset_out_of_range)
        self.start_offset = max(self.start_offset, offset)
        return self.start_offset


class FakeLogs:
    """The partitions of a node."""

    def __init__(self) -> None:
        self.path = NOWHERE
        self.logs: dict[tuple[str, int], FakeLog] = {}

    def get(self, topic: str, partition: int) -> FakeLog | None:
        return self.logs.get((topic, partition))


class FakeNode:
    """What the handlers know of a node; `commits` is what it wrote, and `failing` what it answers instead."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.node_id = 1
        self.cluster_id = "cluster-of-tests-00000"
        self.clock = ManualClock()
        self.host, self.port = "broker.example", 9092
        tables = (*BROKER_SETTINGS, *GROUP_SETTINGS, *TRANSACTION_SETTINGS)
        self.settings: dict[str, Value] = Settings(*tables).resolve(given or {})
        self.topics = Topics(self.node_id, given)
        self.group_configs = GroupConfigs(self.settings)
        self.producer_ids = ProducerIds()
        self.throttle = Throttle(Window())
        self.logs = FakeLogs()
        self.commits: list[list[StateRecord]] = []
        self.failing: ApiError | None = None

    async def commit_topics(self, records: Sequence[StateRecord]) -> None:
        if self.failing is not None:
            raise self.failing
        if records:
            self.commits.append(list(records))
        for record in records:
            self.producer_ids.replay(record)
            self.group_configs.replay(record)
            self.throttle.replay(record)
            for effect in self.topics.replay(record):
                match effect:
                    case TopicCreated(topic):
                        self._open(topic, 0)
                    case PartitionsAdded(topic, first):
                        self._open(topic, first)
                    case TopicDeleted(topic):
                        for partition in range(topic.partitions):
                            del self.logs.logs[topic.name, partition]

    def _open(self, topic: Topic, first: int) -> None:
        for partition in range(first, topic.partitions):
            self.logs.logs[topic.name, partition] = FakeLog(topic.name, partition)

    async def make(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """Create a topic, for a test to begin with; dots in the names of configs are underscores."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, partitions, configs=named)
        _, records = self.topics.create(new, internal=name.startswith("__"))
        await self.commit_topics(records)
        self.commits.clear()
        return self.topics.by_name[name]

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        log = self.logs.get(topic, partition)
        assert log is not None
        return log


async def ask(node: FakeNode, api_key: int, version: int, **fields: Any) -> Any:
    """Send a request through its handler, and return the response as a client of that version reads it."""
    message = entity(request_type(api_key, version), fields)
    request = Request(api_key, version, "tester", "127.0.0.1")
    fake: Any = node
    answer = await HANDLERS[api_key](fake, request, message)
    written = response_type(api_key, version)
    out = bytearray()
    make_writer(written, lambda path, names: ())(out, answer)
    response: tuple[Any, int] = entity_reader(written)(bytes(out), 0)
    assert response[1] == len(out)
    return response[0]


def entity(kind: type, values: Mapping[str, Any]) -> Any:
    """Build one of kio's entities from mappings; what is left out is zero, empty or null."""
    known = {field.name for field in fields_of(kind)}
    assert known >= values.keys(), f"{kind.__name__} has no {values.keys() - known}"
    return kind(**{field.name: _value(field, values) for field in fields_of(kind)})


def _value(field: FieldSchema, values: Mapping[str, Any]) -> Any:
    if field.name not in values:
        return _absent(field)
    value = values[field.name]
    if value is None or field.struct is None:
        return tuple(value) if field.is_array and value is not None else value
    if field.is_array:
        return tuple(entity(field.struct, item) for item in value)
    return entity(field.struct, value)


def _absent(field: FieldSchema) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.is_nullable or field.kind == "uuid":
        return None
    if field.is_array:
        return ()
    if field.kind.startswith("timedelta"):
        return timedelta(seconds=5)
    return {"string": "", "bool": False}.get(field.kind, 0)


def codes(results: Sequence[Any], key: str = "name") -> dict[Any, ErrorCode]:
    """Return the error code of each result, by its name."""
    return {getattr(result, key): result.error_code for result in results}


NO_ID = UUID(int=7)
