"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, as Kafka 4.3 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import ApiError, ErrorCode

from .fake_node import FakeNode, ask

DESCRIBE, ALTER, INCREMENT, LIST = 32, 33, 44, 74
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, REMOVE, APPEND, SUBTRACT = range(4)


async def describe(node: FakeNode, kind: int, name: str, *keys: str, version: int = 4, **fields: bool) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    (result,) = (await ask(node, DESCRIBE, version, resources=[resource], **fields)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def increment(
    node: FakeNode, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    response = await ask(node, INCREMENT, 1, resources=[resource], validate_only=validate_only)
    return response.responses[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_is_described(version: int) -> None:
    node = FakeNode()
    await node.make("t", cleanup_policy="compact,delete")
    result = await describe(node, TOPIC, "t", version=version, include_synonyms=True)
    assert result.error_code is ErrorCode.none
    by_name = {entry.name: entry for entry in result.configs}
    assert len(by_name) == 33 + 2, "Kafka's, and two of our own"
    policy = by_name["cleanup.policy"]
    assert (policy.value, policy.config_source, policy.read_only) == ("compact,delete", 1, False)
    assert [(s.name, s.value, s.source) for s in policy.synonyms] == [
        ("cleanup.policy", "compact,delete", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert (by_name["retention.ms"].value, by_name["retention.ms"].synonyms) == ("604800000", ())
    if version >= 3:
        assert (policy.config_type, by_name["retention.ms"].config_type) == (7, 5)
        assert policy.documentation is None


async def test_keys_synonyms_and_documentation_when_asked_for() -> None:
    node = FakeNode()
    await node.make("t")
    result = await describe(node, TOPIC, "t", "retention.ms", "zzz", include_documentation=True)
    (entry,) = result.configs
    assert entry.name == "retention.ms"
    assert entry.documentation
    assert entry.synonyms == ()


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (BROKER, "7", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (LOGGER, "", ErrorCode.invalid_request),
        (LOGGER, "1", ErrorCode.none),
        (METRICS, "", ErrorCode.invalid_request),
        (METRICS, "m", ErrorCode.none),
        (GROUP, "", ErrorCode.invalid_request),
        (99, "x", ErrorCode.invalid_request),
    ],
)
async def test_resources_without_configs(kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(FakeNode(), kind, name)
    assert (result.error_code, result.configs) == (code, ())


async def test_a_broker_is_described_with_the_settings_of_groups() -> None:
    node = FakeNode({"log.retention.hours": "100", "group.max.size": "50"})
    result = await describe(node, BROKER, "1", include_synonyms=True)
    by_name = {entry.name: entry for entry in result.configs}
    hours = by_name["log.retention.hours"]
    assert (hours.value, hours.config_source, hours.read_only) == ("100", 4, True)
    assert [(s.value, s.source) for s in hours.synonyms] == [("100", 4), ("168", 5)]
    assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].synonyms) == (None, ())
    assert not by_name["log.retention.ms"].read_only
    assert (by_name["group.max.size"].value, by_name["group.max.size"].config_source) == ("50", 4)


async def test_a_topic_follows_the_settings_of_its_broker() -> None:
    node = FakeNode({"log.retention.hours": "100"})
    await node.make("t")
    assert node.topics.by_name["t"].settings["retention.ms"] == 360_000_000
    assert (await increment(node, BROKER, "", ("log.retention.ms", SET, "78"))).error_code is ErrorCode.none
    assert (await increment(node, BROKER, "1", ("log.retention.ms", SET, "77"))).error_code is ErrorCode.none
    assert node.topics.by_name["t"].settings["retention.ms"] == 77
    (entry,) = (await describe(node, TOPIC, "t", "retention.ms", include_synonyms=True)).configs
    assert (entry.value, entry.config_source) == ("77", 2)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("log.retention.ms", "77", 2),
        ("log.retention.ms", "78", 3),
        ("log.retention.hours", "100", 4),
        ("log.retention.hours", "168", 5),
    ]
    (default,) = (await describe(node, BROKER, "")).configs
    assert (default.name, default.value, default.config_source) == ("log.retention.ms", "78", 3)
    await increment(node, BROKER, "1", ("log.retention.ms", REMOVE, None))
    assert node.topics.by_name["t"].settings["retention.ms"] == 78


async def test_increments() -> None:
    node = FakeNode()
    await node.make("t")
    steps: list[tuple[tuple[str, int, str | None], dict[str, str]]] = [
        (("retention.ms", SET, "5"), {"retention.ms": "5"}),
        (("retention.ms", REMOVE, None), {}),
        (("never.was", REMOVE, None), {}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        (("cleanup.policy", SUBTRACT, "delete,compact"), {"cleanup.policy": ""}),
    ]
    for change, overrides in steps:
        result = await increment(node, TOPIC, "t", change)
        assert (result.error_code, node.topics.by_name["t"].overrides) == (ErrorCode.none, overrides)
    assert node.topics.by_name["t"].settings["cleanup.policy"] == ()


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.invalid_config),
        (TOPIC, "t", ("nope", SET, "x"), ErrorCode.invalid_config),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.invalid_config),
        (TOPIC, "t", ("nope", APPEND, "1"), ErrorCode.invalid_config),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.invalid_request),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.invalid_request),
        (TOPIC, "t", ("leader.replication.throttled.replicas", SET, "zz"), ErrorCode.invalid_config),
        (TOPIC, "nope", ("retention.ms", SET, "1"), ErrorCode.unknown_topic_or_partition),
        (TOPIC, "nope", ("cleanup.policy", APPEND, "compact"), ErrorCode.unknown_topic_or_partition),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.invalid_request),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.invalid_topic_exception),
        (BROKER, "1", ("num.partitions", SET, "7"), ErrorCode.invalid_request),
        (BROKER, "1", ("log.retention.ms", SET, "abc"), ErrorCode.invalid_request),
        (BROKER, "1", ("nope", SET, "7"), ErrorCode.invalid_request),
        (BROKER, "2", ("log.retention.ms", SET, "7"), ErrorCode.invalid_request),
        (BROKER, "x", ("log.retention.ms", SET, "7"), ErrorCode.invalid_request),
        (99, "x", ("a", SET, "7"), ErrorCode.invalid_request),
    ],
)
async def test_increments_that_are_refused(
    kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    node = FakeNode()
    await node.make("t")
    result = await increment(node, kind, name, change)
    assert result.error_code is code
    assert result.error_message
    assert not node.commits


@pytest.mark.parametrize(
    ("kind", "said"),
    [(LOGGER, "--log-level"), (METRICS, "not collected")],
)
async def test_what_has_no_settings_here_says_so(kind: int, said: str) -> None:
    result = await increment(FakeNode(), kind, "1", ("consumer.session.timeout.ms", SET, "50000"))
    assert result.error_code is ErrorCode.invalid_request
    assert said in result.error_message


async def test_a_group_is_described_and_altered() -> None:
    node = FakeNode({"group.consumer.heartbeat.interval.ms": "6000"})
    name = "consumer.heartbeat.interval.ms"
    assert (await increment(node, GROUP, "g", (name, SET, "7000"))).error_code is ErrorCode.none
    result = await describe(node, GROUP, "g", include_synonyms=True)
    by_name = {entry.name: entry for entry in result.configs}
    assert len(by_name) == 17
    interval, reset = by_name[name], by_name["share.auto.offset.reset"]
    assert (interval.value, interval.config_source, interval.config_type, interval.read_only) == (
        "7000",
        8,
        3,
        False,
    )
    assert [(s.name, s.value, s.source) for s in interval.synonyms] == [
        (name, "7000", 8),
        (f"group.{name}", "6000", 4),
        (f"group.{name}", "5000", 5),
    ]
    assert [(s.name, s.value, s.source) for s in reset.synonyms] == [("share.auto.offset.reset", "latest", 5)]
    listed = (await ask(node, LIST, 1, resource_types=[GROUP])).config_resources
    assert [(each.resource_name, each.resource_type) for each in listed] == [("g", GROUP)]
    assert (await increment(node, GROUP, "g", (name, REMOVE, None))).error_code is ErrorCode.none
    assert not (await ask(node, LIST, 1, resource_types=[GROUP])).config_resources


@pytest.mark.parametrize(
    ("name", "change", "code", "said"),
    [
        ("g", ("nope", SET, "1"), ErrorCode.invalid_config, "Unknown group config name: nope"),
        ("g", ("share.isolation.level", SET, None), ErrorCode.invalid_request, "Null value not supported"),
        ("g", ("share.isolation.level", APPEND, "x"), ErrorCode.invalid_config, "Can't APPEND to key"),
        ("", ("share.isolation.level", SET, "read_committed"), ErrorCode.invalid_request, "Default group"),
    ],
)
async def test_settings_of_a_group_that_do_not_fit(
    name: str, change: tuple[str, int, str | None], code: ErrorCode, said: str
) -> None:
    node = FakeNode()
    result = await increment(node, GROUP, name, change)
    assert result.error_code is code
    assert said in result.error_message
    assert not node.commits


async def test_one_key_or_resource_twice() -> None:
    node = FakeNode()
    await node.make("t")
    twice = await increment(node, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice.error_code is ErrorCode.invalid_request
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": ()}
    response = await ask(node, INCREMENT, 1, resources=[resource, resource])
    assert [result.error_code for result in response.responses] == [ErrorCode.invalid_request] * 2


async def test_validate_only_changes_nothing() -> None:
    node = FakeNode()
    await node.make("t")
    result = await increment(node, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True)
    assert result.error_code is ErrorCode.none
    assert not node.commits
    bad = await increment(node, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)
    assert bad.error_code is ErrorCode.invalid_config


async def test_a_metadata_log_that_fails_is_answered_for_each_resource() -> None:
    node = FakeNode()
    await node.make("t")
    node.failing = ApiError(ErrorCode.kafka_storage_error, "disk gone")
    result = await increment(node, TOPIC, "t", ("retention.ms", SET, "1"))
    assert result.error_code is ErrorCode.kafka_storage_error


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_everything(version: int) -> None:
    node = FakeNode()
    await node.make("t", retention_ms="5", segment_ms="6")
    configs = [{"name": "retention.ms", "value": "9"}]
    resources = [
        {"resource_type": TOPIC, "resource_name": "t", "configs": configs},
        {"resource_type": TOPIC, "resource_name": "nope", "configs": ()},
        {"resource_type": LOGGER, "resource_name": "1", "configs": ()},
        {
            "resource_type": BROKER,
            "resource_name": "1",
            "configs": [{"name": "max.connections", "value": "9"}],
        },
        {
            "resource_type": TOPIC,
            "resource_name": "null",
            "configs": [{"name": "retention.ms", "value": None}],
        },
    ]
    response = await ask(node, ALTER, version, resources=resources)
    assert [result.error_code for result in response.responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
        ErrorCode.none,
        ErrorCode.invalid_request,
    ]
    assert node.topics.by_name["t"].overrides == {"retention.ms": "9"}
    assert node.topics.broker_settings["max.connections"] == 9


async def test_resources_are_listed() -> None:
    node = FakeNode()
    await node.make("t")
    assert (await ask(node, LIST, 0)).config_resources == ()
    everything = (await ask(node, LIST, 1)).config_resources
    assert {(r.resource_type, r.resource_name) for r in everything} == {(2, "t"), (4, "1"), (8, "1")}
    some = (await ask(node, LIST, 1, resource_types=[TOPIC, GROUP])).config_resources
    assert [(r.resource_type, r.resource_name) for r in some] == [(2, "t")]
    assert (await ask(node, LIST, 1, resource_types=[99])).error_code is ErrorCode.unsupported_version
