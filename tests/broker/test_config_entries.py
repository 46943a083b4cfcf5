"""Configurations as they are described: the value is the one that counts, and the chain says why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.broker_settings import BROKER_SETTINGS, DYNAMIC
from headwater.broker.config_entries import Source, broker_entries, default_broker_entries, topic_entries
from headwater.broker.topics import NewTopic, Topics

RETENTION = {
    name: st.integers(1, 100).map(str)
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
}
GIVEN = st.fixed_dictionaries({}, optional={**RETENTION, "log.segment.bytes": st.just("2000000")})
ALTERED = st.fixed_dictionaries(
    {}, optional={"log.retention.ms": RETENTION["log.retention.ms"], "log.preallocate": st.just("true")}
)
OWN = st.fixed_dictionaries(
    {}, optional={"retention.ms": st.integers(1, 100).map(str), "preallocate": st.just("false")}
)


@given(GIVEN, ALTERED, ALTERED, OWN)
def test_what_is_described_is_what_counts(
    given_texts: dict[str, str], default: dict[str, str], broker: dict[str, str], own: dict[str, str]
) -> None:
    topics = Topics(given=given_texts)
    records = topics.alter_broker("", default) + topics.alter_broker("1", broker)
    records += topics.create(NewTopic("t", configs=own))[1]
    for record in records:
        topics.replay(record)
    topic = topics.by_name["t"]
    for entry in topic_entries(topics, topic.overrides, topic.settings):
        name = entry.setting.name
        assert entry.value == entry.setting.text(topic.settings[name])
        assert (entry.source is Source.TOPIC) is (name in own)
        if entry.synonyms:
            assert entry.source is entry.synonyms[0].source
            assert [link.source for link in entry.synonyms] == sorted(link.source for link in entry.synonyms)
    for entry in broker_entries(topics, {}, [BROKER_SETTINGS]):
        name = entry.setting.name
        assert entry.value == entry.setting.text(topics.broker_settings[name])
        assert entry.read_only is (name not in DYNAMIC)
        if name in broker:
            assert (entry.source, entry.value) == (Source.DYNAMIC_BROKER, broker[name])
        elif name in default:
            assert (entry.source, entry.value) == (Source.DYNAMIC_DEFAULT_BROKER, default[name])
        elif name in given_texts:
            assert (entry.source, entry.value) == (Source.STATIC_BROKER, given_texts[name])
    described = {entry.setting.name: entry.value for entry in default_broker_entries(topics)}
    assert described == default
