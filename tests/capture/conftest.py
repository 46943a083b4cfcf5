"""Brokers that tables are captured into."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from clients.access.certificates import Authority
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

_serial = itertools.count(1)


@pytest.fixture(scope="session", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Headwater's broker, then of Kafka's."""
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("capture") / "data") as broker:
            yield broker.bootstrap
    else:
        request.getfixturevalue("java")
        with RealKafka() as kafka:
            yield kafka.bootstrap


@pytest.fixture(scope="session")
def headwater_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of Headwater's, for tests that need no other."""
    with BrokerProcess(tmp_path_factory.mktemp("capture-own") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def files(openssl: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """Who signs our certificates, and somebody else."""
    directory = tmp_path_factory.mktemp("authorities")
    return Authority(openssl, directory, "ours"), Authority(openssl, directory, "foreign")


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"shop{os.getpid()}-{next(_serial)}"
