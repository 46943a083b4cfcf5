"""The topics that `headwater run` makes."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from headwater.app import App
from headwater.capture.captures import captures_of_app
from headwater.client import Cluster
from headwater.client.errors import Unreachable
from headwater.core.urls import KafkaUrl
from headwater.pipeline.run import _make_topics
from headwater.testing.process import BrokerProcess, free_port

pytestmark = pytest.mark.real


def test_topics_are_made_as_they_are_declared(tmp_path: Path) -> None:
    app = App("shop")
    app.topic("orders", "id string, at timestamp", event_time="at", late="aside", partitions=3)
    app.table("users", "id string", key="id", partitions=1)

    @app.stream(key="id")
    def copies(orders):  # type: ignore[no-untyped-def]
        return orders

    @app.stream(key="id", mode="changes", partitions=2)
    def latest(orders):  # type: ignore[no-untyped-def]
        return orders

    with BrokerProcess(tmp_path / "data") as broker:
        _make_topics(app, KafkaUrl.parse(f"kafka://{broker.bootstrap}"))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = admin.list_topics(timeout=10).topics
        partitions = {name: len(topic.partitions) for name, topic in made.items() if name[0] != "_"}
        assert partitions == {
            "orders": 3,
            "orders.late": 3,
            "users": 1,
            "copies": 4,
            "latest": 2,
            "shop.dead": 1,
        }
        found = settings(broker, "copies", "latest", "users", "shop.dead")
    policies = {name: each["cleanup.policy"] for name, each in found.items()}
    assert policies == {"copies": "delete", "latest": "compact", "users": "compact", "shop.dead": "compact"}


def test_a_broker_that_is_not_there_is_told_of_before_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.pipeline.run.Cluster", partial(Cluster, deadline_seconds=1))
    port = free_port()
    with pytest.raises(Unreachable):
        _make_topics(App("shop"), KafkaUrl.parse(f"kafka://127.0.0.1:{port}"))
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"no broker answers at 127.0.0.1:{port}: ")
    assert told.endswith("; trying again for 1 s")


def test_a_captured_table_has_the_same_topic_whoever_makes_it(tmp_path: Path) -> None:
    """A row of some megabytes is published where `headwater run` was first, as where `headwater capture` was."""
    large = "x" * 5_000_000
    with sqlite3.connect(tmp_path / "shop.db") as database:
        for name in ("first", "second"):
            database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, note TEXT)")
            database.execute(f"INSERT INTO {name} VALUES (1, ?)", (large,))
    database.close()
    app, both = App("shop"), App("shop")
    for declared, tables in ((app, ["first"]), (both, ["first", "second"])):
        for name in tables:
            declared.table(
                name, "id bigint, note string", key="id", source=f"sqlite:///{tmp_path}/shop.db#{name}"
            )
    with BrokerProcess(tmp_path / "data") as broker:
        url = KafkaUrl.parse(f"kafka://{broker.bootstrap}")
        _make_topics(app, url)
        [capture] = captures_of_app(both)
        capture.runner(url).run(until_end=True)
        _make_topics(both, url)
        found = settings(broker, "first", "second")
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
        assert len(topics["first"].partitions) == len(topics["second"].partitions)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["first", "second"])
        records = {message.topic(): message.value() or b"" for message in consumer.consume(2, timeout=30)}
        consumer.close()
    assert found["first"] == found["second"]
    assert found["first"]["max.message.bytes"] == str(32 * 1024 * 1024)
    assert {name: json.loads(value)["after"]["note"] for name, value in records.items()} == {
        "first": large,
        "second": large,
    }


def settings(broker: BrokerProcess, *topics: str) -> dict[str, dict[str, str]]:
    """Return all settings of some topics."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    return {
        resource.name: {name: entry.value for name, entry in future.result(20).items()}
        for resource, future in admin.describe_configs(asked).items()
    }
