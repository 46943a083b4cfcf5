"""A user's quota follows the user, whatever the client calls itself, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from clients.brokers import eventually, unique
from clients.tools import CONFIGS, run_tool
from headwater.testing.jars import KAFKA_4_3

from .secured import Secured

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


def longest_wait(properties: dict[str, Any], topic: str, megabytes: int) -> float:
    """Produce, and return the longest time that the broker told to wait, in seconds."""
    waits = [0.0]
    errors: list[Any] = []
    producer = Producer(
        {
            **properties,
            "client.id": unique("client"),
            "throttle_cb": lambda event: waits.append(event.throttle_time),
        }
    )
    for _ in range(10 * megabytes):
        producer.produce(topic, bytes(100_000), on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert errors == [None] * 10 * megabytes
    return max(waits)


def test_a_users_quota(java: str, sasl_broker: Secured, tmp_path: Path) -> None:
    user, topic = unique("user"), unique("topic")
    admin = AdminClient(sasl_broker.confluent("SCRAM-SHA-256"))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, credential, b"secret")]
    ).values():
        future.result(20)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    file = sasl_broker.java(tmp_path / "admin.properties", "SCRAM-SHA-256")
    done = run_tool(
        KAFKA_4_3, CONFIGS, "--bootstrap-server", sasl_broker.bootstrap, "--command-config", str(file),
        "--entity-type", "users", "--entity-name", user, "--alter", "--add-config", "producer_byte_rate=200000",
    )  # fmt: skip
    assert done.status == 0, done
    limited = sasl_broker.confluent("SCRAM-SHA-256", "secret", user)
    eventually(lambda: AdminClient(limited).list_topics(timeout=10).topics, lambda seen: topic in seen)
    assert longest_wait(limited, topic, 3) > 0
    assert longest_wait(sasl_broker.confluent("SCRAM-SHA-256"), topic, 3) == 0
