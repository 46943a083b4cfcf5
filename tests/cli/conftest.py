"""Commands against Headwater and against Kafka."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .shell import InProcess, Shell, eventually

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
_serial = itertools.count(1)


@pytest.fixture(scope="session", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Commands for Headwater, then for Kafka 4.3.0."""
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("cli") / "data", settings=SETTINGS) as broker:
            yield InProcess(broker.bootstrap)
    else:
        request.getfixturevalue("java")
        with RealKafka(properties=SETTINGS) as kafka:
            yield InProcess(kafka.bootstrap)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"name-{os.getpid()}-{next(_serial)}"


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    """A new topic of two partitions."""
    admin = AdminClient({"bootstrap.servers": shell.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    eventually(lambda: admin.list_topics(timeout=20).topics, lambda topics: name in topics)
    return name
