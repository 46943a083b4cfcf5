"""One suite of the event store, two brokers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .stores import Place

_serial = itertools.count(1)


@pytest.fixture(scope="session", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | RealKafka]:
    """Headwater's broker, then Kafka 4.3.0; a test that kills it starts it again."""
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("events") / "data") as ours:
            yield ours
    else:
        request.getfixturevalue("java")
        with RealKafka() as kafka:
            yield kafka


@pytest.fixture(scope="session")
def broker(server: BrokerProcess | RealKafka) -> str:
    """The broker's address."""
    return f"kafka://{server.bootstrap}"


@pytest.fixture
def place(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store that nobody has used."""
    return Place(broker, f"store-{os.getpid()}-{next(_serial)}", tmp_path_factory.mktemp("index"))
