from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.broker.broker_settings import BROKER_SETTINGS, DYNAMIC
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.broker.topic_names import collision_key, problem_with
from headwater.broker.topic_settings import SYNONYMS, TOPIC_SETTINGS, resolve_topic, topic_defaults
from headwater.core.errors import SettingError
from headwater.core.settings import Value

DEFAULTS = topic_defaults(BROKER_SETTINGS.resolve({}))


def test_without_broker_settings_the_defaults_are_kafkas() -> None:
    assert {setting.name: setting.default for setting in TOPIC_SETTINGS} == DEFAULTS


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("retention.ms", {"log.retention.hours": "2"}, 7_200_000),
        ("retention.ms", {"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ("retention.ms", {"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ("retention.ms", {"log.retention.hours": "-1"}, -1),
        ("segment.ms", {"log.roll.hours": "1"}, 3_600_000),
        ("flush.ms", {"log.flush.scheduler.interval.ms": "9"}, 9),
        ("max.message.bytes", {"message.max.bytes": "2000"}, 2000),
        ("cleanup.policy", {"log.cleanup.policy": "compact"}, ("compact",)),
        ("min.cleanable.dirty.ratio", {"log.cleaner.min.cleanable.ratio": "0.1"}, 0.1),
        ("preallocate", {"log.preallocate": "true"}, True),
    ],
)
def test_broker_settings_stand_for_topic_settings(name: str, given: dict[str, str], value: Value) -> None:
    assert topic_defaults(BROKER_SETTINGS.resolve(given))[name] == value


def test_every_synonym_is_a_broker_setting_of_the_same_kind() -> None:
    for topic_name, synonyms in SYNONYMS.items():
        for name, factor in synonyms:
            if factor == 1:
                assert BROKER_SETTINGS[name].kind is TOPIC_SETTINGS[topic_name].kind


def test_broker_and_group_settings_have_no_name_in_common() -> None:
    assert not {setting.name for setting in BROKER_SETTINGS} & {setting.name for setting in GROUP_SETTINGS}
    assert all(name in BROKER_SETTINGS for name in DYNAMIC)


@pytest.mark.parametrize("table", [TOPIC_SETTINGS, BROKER_SETTINGS])
def test_every_default_fits_its_own_setting(table: object) -> None:
    for setting in TOPIC_SETTINGS if table is TOPIC_SETTINGS else BROKER_SETTINGS:
        text = setting.text(setting.default)
        assert setting.help.endswith(".")
        if text is not None:
            assert setting.parse(text) == setting.default


@pytest.mark.parametrize(
    "overrides",
    [
        {"nope": "1"},
        {"retention.ms": "-2"},
        {"retention.ms": "1.5"},
        {"segment.bytes": "1048575"},
        {"segment.bytes": str(2**31)},
        {"cleanup.policy": "delete,foo"},
        {"compression.type": "brotli"},
        {"compression.gzip.level": "0"},
        {"compression.lz4.level": "18"},
        {"message.timestamp.type": "Never"},
        {"min.cleanable.dirty.ratio": "1.1"},
        {"min.insync.replicas": "0"},
        {"preallocate": "yes"},
        {"follower.replication.throttled.replicas": "0:1,x"},
    ],
)
def test_settings_that_do_not_fit(overrides: dict[str, str]) -> None:
    with pytest.raises(SettingError):
        resolve_topic(overrides, DEFAULTS)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("compression.gzip.level", "-1", -1),
        ("retention.ms", " -1 ", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:1", ("0:1", "1:1")),
        ("segment.bytes", "1048576", 1048576),
    ],
)
def test_settings_that_fit(name: str, text: str, value: Value) -> None:
    assert resolve_topic({name: text}, DEFAULTS) == {**DEFAULTS, name: value}


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "_", "x" * 249])
def test_good_names(name: str) -> None:
    assert problem_with(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * 250, "a\x00", "٣"])
def test_bad_names(name: str) -> None:
    assert "Topic name is invalid" in (problem_with(name) or "")


@given(st.text(max_size=20))
def test_a_good_name_is_a_safe_file_name(name: str) -> None:
    if problem_with(name) is None:
        assert name.isascii()
        assert not set(name) & set("/\\\x00 \n")
        assert name not in ("", ".", "..")
        assert problem_with(collision_key(name)) is None


def test_a_setting_that_nothing_reads_says_so() -> None:
    package = Path(headwater.__file__).parent
    declarations = {"topic_settings.py", "broker_settings.py"}
    code = "\n".join(path.read_text() for path in package.rglob("*.py") if path.name not in declarations)
    promising = [
        each.name for each in TOPIC_SETTINGS if not each.help.startswith("Accepted for Kafka's tools")
    ]
    assert [name for name in promising if f'"{name}"' not in code] == []
