"""Settings of single groups: set, described and refused, and in force for the members that are there."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from .brokers import Broker, eventually, unique
from .raw import APPEND, DELETE, GROUP, SET, Raw, alter_group, described_group
from .tools import CONFIGS, Tools

pytestmark = pytest.mark.real

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DURATION = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."


def listed(raw: Raw) -> set[str]:
    answer = raw.call("list_config_resources", 1, resource_types=[GROUP])
    assert {each.resource_type for each in answer.config_resources} <= {GROUP}
    return {each.resource_name for each in answer.config_resources}


def test_a_group_without_settings_of_its_own_has_the_brokers(raw: Raw) -> None:
    found = described_group(raw, unique("unknown"))
    assert {name: entry.value for name, entry in found.items()} == {
        "consumer.assignment.interval.ms": "0",
        "consumer.heartbeat.interval.ms": "500",
        "consumer.session.timeout.ms": "45000",
        "share.assignment.interval.ms": "1000",
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": "5",
        "share.heartbeat.interval.ms": "500",
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": "2000",
        "share.record.lock.duration.ms": "3000",
        "share.renew.acknowledge.enable": "true",
        "share.session.timeout.ms": "45000",
        "streams.assignment.interval.ms": "1000",
        "streams.heartbeat.interval.ms": "5000",
        "streams.initial.rebalance.delay.ms": "3000",
        "streams.num.standby.replicas": "0",
        "streams.session.timeout.ms": "45000",
    }
    chains = {
        name: [(link.name, link.value, link.source) for link in entry.synonyms]
        for name, entry in found.items()
    }
    assert chains[INTERVAL] == [(f"group.{INTERVAL}", "500", 4), (f"group.{INTERVAL}", "5000", 5)]
    assert chains[SESSION] == [(f"group.{SESSION}", "45000", 5)]
    assert chains["share.isolation.level"] == [("share.isolation.level", "read_uncommitted", 5)]
    assert not any(entry.read_only or entry.is_sensitive for entry in found.values())
    assert {entry.config_type for entry in found.values()} == {1, 2, 3}


def test_settings_are_altered_listed_replaced_and_deleted(raw: Raw) -> None:
    group = unique("group é/")
    changes = ((SESSION, SET, "46000"), ("share.renew.acknowledge.enable", SET, "FALSE"))
    assert alter_group(raw, group, *changes, validate_only=True) == (ErrorCode.none, "")
    assert group not in listed(raw)
    assert alter_group(raw, group, *changes) == (ErrorCode.none, "")
    eventually(lambda: listed(raw), lambda seen: group in seen)
    session = described_group(raw, group, SESSION, "no.such.setting")[SESSION]
    assert (session.value, session.config_source) == ("46000", 8)
    assert [(link.name, link.value, link.source) for link in session.synonyms] == [
        (SESSION, "46000", 8),
        (f"group.{SESSION}", "45000", 5),
    ]
    assert described_group(raw, group)["share.renew.acknowledge.enable"].value == "false"

    configs = [{"name": "share.auto.offset.reset", "value": "by_duration:PT1H"}]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    [done] = raw.call("alter_configs", 2, resources=[resource]).responses
    assert done.error_code == ErrorCode.none
    eventually(lambda: described_group(raw, group)[SESSION].value, lambda seen: seen == "45000")
    assert described_group(raw, group)["share.auto.offset.reset"].value == "by_duration:PT1H"

    assert alter_group(raw, group, ("share.auto.offset.reset", DELETE, None))[0] == ErrorCode.none
    eventually(lambda: listed(raw), lambda seen: group not in seen)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no.such.setting", "1", "Unknown group config name: no.such.setting"),
        (f"group.{SESSION}", "50000", f"Unknown group config name: group.{SESSION}"),
        (SESSION, "x", f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        (SESSION, "", f"Invalid value  for configuration {SESSION}: Not a number of type INT"),
        (SESSION, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (SESSION, "1", f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "70000", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (
            INTERVAL,
            "20000",
            f"{INTERVAL} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            "share.record.lock.duration.ms",
            "1000",
            "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            "share.isolation.level",
            "READ_COMMITTED",
            "Invalid value READ_COMMITTED for configuration share.isolation.level: String must be one of: "
            "read_committed, read_uncommitted",
        ),
        (
            "share.auto.offset.reset",
            "by_duration:-PT1H",
            "Invalid value by_duration:-PT1H for configuration share.auto.offset.reset: Invalid value "
            f"`by_duration:-PT1H` for configuration share.auto.offset.reset. {DURATION}",
        ),
        (
            "share.renew.acknowledge.enable",
            "yes",
            "Invalid value yes for configuration share.renew.acknowledge.enable: Expected value to be either true "
            "or false",
        ),
    ],
)
def test_what_does_not_fit_is_refused(raw: Raw, name: str, value: str, message: str) -> None:
    assert alter_group(raw, unique("group"), (name, SET, value)) == (ErrorCode.invalid_config, message)


def test_a_session_no_longer_than_the_interval_and_other_mistakes(raw: Raw) -> None:
    group = unique("group")
    refused = alter_group(raw, group, (SESSION, SET, "2000"), (INTERVAL, SET, "2000"))
    assert refused == (ErrorCode.invalid_config, f"{SESSION} must be greater than {INTERVAL}")
    assert alter_group(raw, group, (SESSION, SET, None)) == (
        ErrorCode.invalid_request,
        f"Null value not supported for : {SESSION}",
    )
    assert alter_group(raw, group, (SESSION, APPEND, "1")) == (
        ErrorCode.invalid_config,
        f"Can't APPEND to key {SESSION} because its type is not LIST.",
    )
    assert alter_group(raw, "", (SESSION, SET, "50000")) == (
        ErrorCode.invalid_request,
        "Default group resources are not allowed.",
    )
    [nameless] = raw.call(
        "describe_configs", 4, resources=[{"resource_type": GROUP, "resource_name": ""}]
    ).results
    assert (nameless.error_code, nameless.error_message) == (
        ErrorCode.invalid_request,
        "Group name must not be empty",
    )


def test_members_learn_of_it_with_their_next_heartbeat(raw: Raw, group: str, topic: str) -> None:
    def beat(epoch: int, **fields: Any) -> Any:
        return raw.call(
            "consumer_group_heartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, **fields
        )

    member = str(uuid4())
    joined = beat(0, rebalance_timeout=10_000, subscribed_topic_names=[topic], topic_partitions=[])
    assert (joined.error_code, joined.heartbeat_interval.total_seconds()) == (ErrorCode.none, 0.5)
    assert alter_group(raw, group, (INTERVAL, SET, "700"), (SESSION, SET, "2000"))[0] == ErrorCode.none
    eventually(lambda: beat(joined.member_epoch).heartbeat_interval.total_seconds(), lambda seen: seen == 0.7)

    def state() -> tuple[str, int]:
        [found] = raw.call("consumer_group_describe", 0, group_ids=[group]).groups
        return found.group_state, len(found.members)

    assert state() == ("Stable", 1)
    eventually(state, lambda seen: seen == ("Empty", 0), seconds=10)


def test_kafka_configs_alters_and_describes_a_group(tools: Tools, broker: Broker) -> None:
    group = unique("group")
    entity = ("--entity-type", "groups", "--entity-name", group)
    altered = tools.run(CONFIGS, "--alter", *entity, "--add-config", f"{SESSION}=50000")
    assert altered.lines == [f"Completed updating config for group {group}."]
    with Raw(broker) as raw:
        eventually(lambda: listed(raw), lambda seen: group in seen)
    assert tools.run(CONFIGS, "--describe", *entity).lines == [
        f"Dynamic configs for group {group} are:",
        f"  {SESSION}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{SESSION}=50000, "
        f"DEFAULT_CONFIG:group.{SESSION}=45000}}",
    ]
    refused = tools.try_(CONFIGS, "--alter", *entity, "--add-config", f"{INTERVAL}=1")
    assert refused.status == 1
    assert f"{INTERVAL} must be greater than or equal to group.consumer.min.heartbeat" in refused.errors
    tools.run(CONFIGS, "--alter", *entity, "--delete-config", SESSION)
    with Raw(broker) as raw:
        eventually(lambda: listed(raw), lambda seen: group not in seen)
