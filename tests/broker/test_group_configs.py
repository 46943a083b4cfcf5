"""Settings of single groups: what they take, what is in force, and what Kafka says to the rest."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.group_configs import GroupConfigs, SettingsOfGroup
from headwater.broker.group_settings import (
    GROUP_CONFIGS,
    broker_synonym,
    group_defaults,
    parse_group,
    reset_duration_ms,
)
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def altered(configs: GroupConfigs, group: str, **texts: str) -> list[StateRecord]:
    records = configs.alter(group, {name.replace("_", "."): text for name, text in texts.items()})
    for record in records:
        configs.replay(record)
    return records


def refusal(broker: dict[str, str], **texts: str) -> str:
    configs = GroupConfigs(GROUP_SETTINGS.resolve(broker))
    with pytest.raises(ApiError) as caught:
        altered(configs, "g", **texts)
    assert caught.value.code is ErrorCode.invalid_config
    return caught.value.message


def test_a_group_has_the_brokers_until_it_has_its_own() -> None:
    configs = GroupConfigs(GROUP_SETTINGS.resolve({f"group.{SESSION}": "50000"}))
    assert configs.settings_of_group("g").consumer_session_timeout_ms == 50_000
    altered(configs, "g", consumer_session_timeout_ms=" 46000 ", share_renew_acknowledge_enable="FALSE")
    mine = configs.settings_of_group("g")
    assert (mine.consumer_session_timeout_ms, mine.share_renew_acknowledge_enable) == (46_000, False)
    assert configs.settings_of_group("other").consumer_session_timeout_ms == 50_000
    assert altered(configs, "g", consumer_session_timeout_ms="46000", share_isolation_level="read_committed")
    assert configs.settings_of_group("g").share_renew_acknowledge_enable, "it was not among all of them"
    assert altered(configs, "g")[0].value is None
    assert (configs.by_group, configs.settings_of_group("g").consumer_session_timeout_ms) == ({}, 50_000)
    assert not altered(configs, "g"), "nothing changes, nothing is written"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("consumer.session.timeout.ms", "x", "Not a number of type INT"),
        ("consumer.session.timeout.ms", "99999999999", "Not a number of type INT"),
        ("consumer.session.timeout.ms", "0", "Value must be at least 1"),
        ("share.record.lock.duration.ms", "999", "Value must be at least 1000"),
        ("share.isolation.level", "x", "String must be one of: read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "yes", "Expected value to be either true or false"),
        (
            "share.auto.offset.reset",
            "EARLIEST",
            "Invalid value `EARLIEST` for configuration share.auto.offset.reset. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ],
)
def test_what_does_not_parse_is_refused_in_kafkas_words(name: str, text: str, problem: str) -> None:
    assert refusal({}, **{name: text}) == f"Invalid value {text} for configuration {name}: {problem}"


def test_what_is_out_of_bounds_is_refused_in_kafkas_words() -> None:
    assert refusal({}, nope="1") == "Unknown group config name: nope"
    assert (
        refusal({}, consumer_session_timeout_ms="44999")
        == f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"
    )
    assert (
        refusal({}, streams_num_standby_replicas="3")
        == "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"
    )
    wide = {f"group.consumer.min.{what}": "1" for what in ("session.timeout.ms", "heartbeat.interval.ms")}
    assert refusal(wide, consumer_session_timeout_ms="5000") == f"{SESSION} must be greater than {INTERVAL}"
    with pytest.raises(ApiError) as caught:
        GroupConfigs({}).alter("", {})
    assert (caught.value.code, caught.value.message) == (
        ErrorCode.invalid_request,
        "Default group resources are not allowed.",
    )


def test_a_broker_that_is_itself_out_of_bounds_does_not_stop_its_groups() -> None:
    configs = GroupConfigs(GROUP_SETTINGS.resolve({f"group.{SESSION}": "2000"}))
    altered(configs, "g", share_delivery_count_limit="7")
    mine = configs.settings_of_group("g")
    assert (mine.share_delivery_count_limit, mine.consumer_session_timeout_ms) == (7, 2000)


def test_bounds_that_changed_since_hold_for_what_was_set() -> None:
    before = GroupConfigs(GROUP_SETTINGS.resolve({"group.share.max.delivery.count.limit": "20"}))
    [record] = altered(before, "g", share_delivery_count_limit="20", share_record_lock_duration_ms="15000")
    after = GroupConfigs(GROUP_SETTINGS.resolve({"group.share.min.record.lock.duration.ms": "20000"}))
    after.replay(record)
    mine = after.settings_of_group("g")
    assert (mine.share_delivery_count_limit, mine.share_record_lock_duration_ms) == (10, 20_000)
    assert after.by_group["g"]["share.delivery.count.limit"] == "20", "what was set is told as it was"


def test_every_setting_has_a_broker_setting_of_its_kind_and_default() -> None:
    defaults = group_defaults(GROUP_SETTINGS.resolve({}))
    for setting in GROUP_CONFIGS:
        assert parse_group(setting.name, setting.text(setting.default) or "") == setting.default
        assert defaults[setting.name] == setting.default
        stand_in = broker_synonym(setting.name)
        if stand_in is None:
            assert not setting.name.endswith((".ms", ".limit", ".locks"))
        else:
            found = GROUP_SETTINGS[stand_in]
            assert (found.kind, found.default) == (setting.kind, setting.default)
    names = {setting.name for setting in GROUP_CONFIGS}
    assert {field.name.replace("_", ".") for field in fields(SettingsOfGroup)} <= names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:pt0.25s", 250),
        ("by_duration:PT0S", 0),
        ("by_duration:P2DT-1H", 47 * 3_600_000),
        ("by_duration:-PT-1M", 60_000),
        ("by_duration:-PT1H", None),
        ("by_duration:PT-1H", None),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:P1DT", None),
        ("by_duration:P1Y", None),
        ("by_duration:", None),
        ("by_duration", None),
        ("PT1H", None),
    ],
)
def test_durations_are_javas(text: str, expected: int | None) -> None:
    assert reset_duration_ms(text) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["g", "h"]),
            st.dictionaries(
                st.sampled_from([SESSION, INTERVAL, "share.delivery.count.limit", "nope"]),
                st.sampled_from(["4", "5", "5000", "15000", "45000", "60000", "x"]),
            ),
        )
    )
)
def test_replaying_the_log_restores_what_was_accepted(changes: list[tuple[str, dict[str, str]]]) -> None:
    broker = GROUP_SETTINGS.resolve({})
    live, log = GroupConfigs(broker), []
    for group, overrides in changes:
        before = live.by_group.get(group, {})
        try:
            log += (records := live.alter(group, overrides))
            for record in records:
                live.replay(record)
            assert live.by_group.get(group, {}) == overrides
        except ApiError:
            assert live.by_group.get(group, {}) == before
        mine = live.settings_of_group(group)
        assert mine.consumer_session_timeout_ms > mine.consumer_heartbeat_interval_ms
    again = GroupConfigs(broker)
    for record in log:
        again.replay(record)
    assert again.by_group == live.by_group
    assert all(again.settings_of_group(group) == live.settings_of_group(group) for group in ("g", "h"))
