"""The topics that `headwater run` makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from headwater.app import App
from headwater.core.urls import KafkaUrl
from headwater.pipeline.run import _make_topics
from headwater.testing.process import BrokerProcess

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
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in ("copies", "latest", "users")]
        policies = {
            resource.name: future.result()["cleanup.policy"].value
            for resource, future in admin.describe_configs(asked).items()
        }
    assert policies == {"copies": "delete", "latest": "compact", "users": "compact"}
