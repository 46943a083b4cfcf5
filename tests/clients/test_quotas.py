"""Client quotas: told and changed by Kafka's tool, and obeyed by clients."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from .brokers import Broker, eventually, unique
from .raw import Raw, batch, produce, topic_id
from .tools import CONFIGS, Tools

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

RATE = 1_000_000
# A client that was quiet may send as much as ten seconds are worth.
AT_ONCE = 10 * RATE


def alter(
    raw: Raw,
    entity: Mapping[str, str | None],
    values: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> Any:
    """Set quotas, and remove those that are None; return the answer for the entity."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    answer = raw.call(
        "alter_client_quotas", 1, entries=[{"entity": parts, "ops": ops}], validate_only=validate_only
    )
    [entry] = answer.entries
    return entry


def described(raw: Raw, entity_type: str, name: str) -> dict[str, float]:
    """Return the quotas of one entity."""
    component = {"entity_type": entity_type, "match_type": 0, "match": name}
    answer = raw.call("describe_client_quotas", 1, components=[component], strict=True)
    assert answer.error_code is ErrorCode.none
    return {value.key: value.value for entry in answer.entries for value in entry.values}


@pytest.fixture
def slow_raw(broker: Broker) -> Iterator[Raw]:
    """A connection whose client id has quotas."""
    with Raw(broker) as setter:
        quotas = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        assert alter(setter, {"client-id": "raw"}, quotas).error_code is ErrorCode.none
        eventually(lambda: described(setter, "client-id", "raw"), lambda seen: seen == quotas)
    with Raw(broker) as connection:
        yield connection
    with Raw(broker) as setter:
        alter(setter, {"client-id": "raw"}, dict.fromkeys(quotas))
        eventually(lambda: described(setter, "client-id", "raw"), lambda seen: not seen)


def test_kafka_configs_alters_and_describes_quotas(tools: Tools) -> None:
    user, client = unique("user"), unique("client")
    entity = [
        "--entity-type",
        "users",
        "--entity-name",
        user,
        "--entity-type",
        "clients",
        "--entity-name",
        client,
    ]
    tools.run(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    described = eventually(
        lambda: tools.run(CONFIGS, "--describe", *entity).output, lambda seen: "producer_byte_rate" in seen
    )
    assert f"user-principal '{user}', client-id '{client}'" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described
    tools.run(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    eventually(lambda: tools.run(CONFIGS, "--describe", *entity).output, lambda seen: "rate" not in seen)


def test_kafka_configs_knows_defaults_and_addresses(tools: Tools) -> None:
    client = ["--entity-type", "clients", "--entity-default"]
    address = ["--entity-type", "ips", "--entity-name", "203.0.113.7"]
    tools.run(CONFIGS, "--alter", *client, "--add-config", "consumer_byte_rate=9000000000")
    tools.run(CONFIGS, "--alter", *address, "--add-config", "connection_creation_rate=5")
    try:
        for entity, expected in (
            (client, "consumer_byte_rate=9.0E9"),
            (address, "connection_creation_rate=5.0"),
        ):
            eventually(
                lambda entity=entity: tools.run(CONFIGS, "--describe", *entity).output,  # type: ignore[misc]
                lambda seen, expected=expected: expected in seen,  # type: ignore[misc]
            )
    finally:
        tools.run(CONFIGS, "--alter", *client, "--delete-config", "consumer_byte_rate")
        tools.run(CONFIGS, "--alter", *address, "--delete-config", "connection_creation_rate")


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({"user": "a"}, {"producer_byte_rate": 0.5}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": "a"}, {"no_such_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1", "user": "a"}, {"connection_creation_rate": 1.0}),
        ({"group": "a"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({}, {"producer_byte_rate": 1.0}),
    ],
)
def test_a_quota_that_does_not_fit_is_refused(
    raw: Raw, entity: dict[str, str | None], values: dict[str, float]
) -> None:
    answer = alter(raw, entity, values)
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.error_message


def test_validating_changes_nothing(raw: Raw) -> None:
    user = unique("user")
    assert (
        alter(raw, {"user": user}, {"producer_byte_rate": 1.0}, validate_only=True).error_code
        is ErrorCode.none
    )
    assert described(raw, "user", user) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([{"entity_type": "group", "match_type": 2, "match": None}], ErrorCode.unsupported_version),
        ([{"entity_type": "user", "match_type": 0, "match": None}], ErrorCode.invalid_request),
        ([{"entity_type": "user", "match_type": 9, "match": None}], ErrorCode.invalid_request),
        (
            [{"entity_type": kind, "match_type": 2, "match": None} for kind in ("ip", "user")],
            ErrorCode.invalid_request,
        ),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(raw: Raw, components: list[Any], code: ErrorCode) -> None:
    answer = raw.call("describe_client_quotas", 1, components=components, strict=False)
    assert answer.error_code is code


def test_a_producer_over_its_quota_is_told_to_wait_and_not_read_meanwhile(slow_raw: Raw, topic: str) -> None:
    records = batch(value=bytes(RATE - 200))
    throttled = 0
    sent = 0
    while not throttled:
        assert sent <= 2 * AT_ONCE
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        answer = slow_raw.call("produce", 9, acks=-1, timeout=10_000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none, (
            "it is served all the same"
        )
        throttled = round(answer.throttle_time.total_seconds() * 1000)
        sent += RATE
    assert sent == AT_ONCE + RATE
    # The window is ten seconds, and a little more by the time that the records took.
    assert 100 < throttled <= 1100
    began = time.monotonic()
    slow_raw.call("api_versions", 0)
    assert 0.8 * throttled <= 1000 * (time.monotonic() - began) <= throttled + 1500


def test_a_consumer_over_its_quota_is_answered_with_nothing(
    broker: Broker, slow_raw: Raw, topic: str
) -> None:
    with Raw(broker) as writer:
        alter(writer, {"client-id": "raw"}, {"producer_byte_rate": None})
        eventually(
            lambda: "producer_byte_rate" in described(writer, "client-id", "raw"), lambda seen: not seen
        )
        for _ in range(11):
            assert produce(writer, topic, batch(value=bytes(RATE - 200))).error_code is ErrorCode.none
        identity = topic_id(writer, topic)
    offset = 0
    for _ in range(20):
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": RATE}
        answer = slow_raw.call(
            "fetch", 13, max_wait=500, min_bytes=1, session_id=0, session_epoch=-1, rack_id="",
            topics=[{"topic_id": identity, "partitions": [wanted]}], forgotten_topics_data=[],
        )  # fmt: skip
        throttled = round(answer.throttle_time.total_seconds() * 1000)
        if throttled:
            break
        assert answer.responses[0].partitions[0].records
        offset += 1
    assert offset in (9, 10)
    assert answer.error_code is ErrorCode.none
    assert answer.responses == ()
    assert 0 < throttled <= 1200


def test_a_real_producer_is_slowed_down_to_its_rate(broker: Broker, raw: Raw, topic: str) -> None:
    client = unique("client")
    rate = 500_000
    assert alter(raw, {"client-id": client}, {"producer_byte_rate": rate}).error_code is ErrorCode.none
    eventually(lambda: described(raw, "client-id", client), lambda seen: bool(seen))
    throttles: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    errors: list[Any] = []
    began = time.monotonic()
    count, size = 80, 100_000
    for _ in range(count):
        producer.produce(topic, bytes(size), on_delivery=lambda error, _message: errors.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    took = time.monotonic() - began
    assert errors == [None] * count
    # All but what the first window allows, and the last request's own, goes at the rate.
    assert took >= (count * size - 10 * rate - 1_100_000) / rate
    assert max(throttles) > 0


def test_a_real_consumer_is_slowed_down_to_its_rate(broker: Broker, raw: Raw, topic: str) -> None:
    client = unique("client")
    rate = 500_000
    count, size = 75, 100_000
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(count):
        producer.produce(topic, bytes(size))
    assert producer.flush(60) == 0
    assert alter(raw, {"client-id": client}, {"consumer_byte_rate": rate}).error_code is ErrorCode.none
    eventually(lambda: described(raw, "client-id", client), lambda seen: bool(seen))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client,
            "group.id": unique("group"),
            "max.partition.fetch.bytes": 500_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    began = time.monotonic()
    seen = 0
    while seen < count:
        assert time.monotonic() - began < 60
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            seen += 1
    took = time.monotonic() - began
    consumer.close()
    assert took >= (count * size - 11 * rate) / rate


def test_a_client_that_has_made_too_many_partitions_waits(broker: Broker) -> None:
    name = unique("made")

    def create(raw: Raw, suffix: str, partitions: int, version: int = 7) -> tuple[ErrorCode, int]:
        wanted = {"name": f"{name}-{suffix}", "num_partitions": partitions, "replication_factor": 1}
        answer = raw.call("create_topics", version, topics=[wanted], timeout=10_000)
        return answer.topics[0].error_code, round(answer.throttle_time.total_seconds() * 1000)

    quota = {"controller_mutation_rate": 4.0}
    with Raw(broker) as raw:
        alter(raw, {"client-id": "raw"}, quota)
        eventually(lambda: described(raw, "client-id", "raw"), lambda seen: seen == quota)
        assert create(raw, "a", 46) == (ErrorCode.none, 0), "44 of them are free, and the rest is owed"
        code, wait_ms = create(raw, "b", 1)
        assert code is ErrorCode.throttling_quota_exceeded
        assert 0 < wait_ms <= 500
        began = time.monotonic()
        assert create(raw, "b", 2) == (ErrorCode.none, 0)
        assert time.monotonic() - began >= 0.8 * wait_ms / 1000, "it was not read before"
        code, wait_ms = create(raw, "c", 1, version=5)
        assert (code, 0 < wait_ms <= 750) == (ErrorCode.none, True), "older clients are served, and wait"
    with Raw(broker) as raw:
        deletion = raw.call(
            "delete_topics", 6, topics=[{"name": f"{name}-a", "topic_id": None}], timeout=10_000
        )
        assert deletion.responses[0].error_code is ErrorCode.throttling_quota_exceeded
    with Raw(broker) as raw:
        alter(raw, {"client-id": "raw"}, dict.fromkeys(quota))
        eventually(lambda: described(raw, "client-id", "raw"), lambda seen: not seen)
        growth = raw.call(
            "create_partitions",
            3,
            topics=[{"name": f"{name}-c", "count": 40, "assignments": None}],
            timeout=10_000,
        )
        assert growth.results[0].error_code is ErrorCode.none
