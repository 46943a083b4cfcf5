"""A store with a view, and a server on it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.process import BrokerProcess
from headwater.views import Change, ViewDefinition, ViewStore, open_store

from .receiving import Answer, Hook
from .serve_helpers import Served, served


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ViewStore]:
    with open_store(f"sqlite:///{tmp_path}/views.db", keep_changes=1000) as store:
        store.define(ViewDefinition("sales", ("country",)))
        rows = {"DE": 3, "FR": 1, "IT": 2, "a/b": 9}
        changes = [Change(key, json.dumps({"country": key, "revenue": n})) for key, n in rows.items()]
        store.commit("q", 0, "sales", changes)
        yield store


@pytest.fixture
def server(store: ViewStore) -> Iterator[Served]:
    with served(store) as server:
        yield server


@pytest.fixture
def hook() -> Iterator[Callable[[Callable[[int], Answer]], Hook]]:
    made: list[Hook] = []

    def make(answer: Callable[[int], Answer]) -> Hook:
        made.append(Hook(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for the tests of one file."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.fixture
def topic(kafka: BrokerProcess) -> str:
    """A topic that nobody has used, of two partitions."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(10)
    return name
