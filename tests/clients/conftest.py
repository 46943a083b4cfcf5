"""One suite, two brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from headwater.testing.jars import CLIENTS_3_9, KAFKA_4_3
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .brokers import Broker, eventually, unique
from .raw import Raw, end_offsets
from .tools import Tools

# A test should wait neither for members that do not come nor for the next heartbeat.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1500",
}


@pytest.fixture(scope="session", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Headwater, then Kafka 4.3.0."""
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("headwater") / "data", settings=SETTINGS) as ours:
            yield Broker("headwater", ours.host, ours.port)
    else:
        request.getfixturevalue("java")
        with RealKafka(properties=SETTINGS) as kafka:
            yield Broker("kafka", kafka.host, kafka.port)


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    """An administrator's client, for what a test needs before it begins."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def _create(broker: Broker, admin: AdminClient, partitions: int) -> str:
    name = unique("topic")
    for future in admin.create_topics([NewTopic(name, num_partitions=partitions)]).values():
        future.result(20)
    with Raw(broker) as raw:
        # Kafka's controller answers before its broker serves the partitions.
        eventually(lambda: end_offsets(raw, name, partitions), lambda seen: seen == [0] * partitions)
    return name


@pytest.fixture
def topic(broker: Broker, admin: AdminClient) -> str:
    """A new topic with one partition."""
    return _create(broker, admin, 1)


@pytest.fixture
def wide_topic(broker: Broker, admin: AdminClient) -> str:
    """A new topic with four partitions."""
    return _create(broker, admin, 4)


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    """A connection without a client."""
    with Raw(broker) as connection:
        yield connection


@pytest.fixture(scope="session")
def coordinator(broker: Broker) -> None:
    """The coordinator of groups, ready: Kafka creates the topic of offsets for its first group."""
    with Raw(broker) as raw:
        eventually(
            lambda: raw.call("find_coordinator", 2, key="any", key_type=0).error_code,
            lambda seen: bool(seen == ErrorCode.none),
        )
        eventually(
            lambda: raw.call("heartbeat", 4, group_id="any", generation_id=1, member_id="any").error_code,
            lambda seen: bool(seen == ErrorCode.unknown_member_id),
        )


@pytest.fixture
def group(coordinator: None) -> str:
    """A group id that nobody has used."""
    return unique("group")


@pytest.fixture
def tools(java: str, broker: Broker, tmp_path: Path) -> Tools:
    """Kafka 4.3.0's own tools."""
    return Tools(broker, tmp_path, KAFKA_4_3)


@pytest.fixture
def older_tools(java: str, broker: Broker, tmp_path: Path) -> Tools:
    """The tools with the 3.9.2 clients that Spark uses."""
    return Tools(broker, tmp_path, CLIENTS_3_9)
