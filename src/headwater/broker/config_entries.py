"""Configurations as DescribeConfigs shows them: each value, where it comes from, and what stands behind it.

A value comes from the first of: the topic's or group's own settings, this broker's dynamic ones, those of all brokers,
the ones that the broker was started with, the defaults. The synonyms of an entry are that chain, from the
entry's own value down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

from headwater.broker.broker_settings import BROKER_SETTINGS, DYNAMIC
from headwater.broker.group_settings import GROUP_CONFIGS, broker_synonym, group_defaults, parse_group
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.broker.topic_settings import SYNONYMS, TOPIC_SETTINGS, topic_defaults
from headwater.broker.topics import Topics
from headwater.core.settings import Setting, Settings, Value

_CHAINS = {
    synonyms[0][0]: tuple(name for name, _ in synonyms) for synonyms in SYNONYMS.values() if len(synonyms) > 1
}
"""The broker's settings of which others are an older form, such as `log.retention.ms`."""


class Source(IntEnum):
    """Where a value comes from; the numbers are Kafka's on the wire."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


_SOURCES = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER, Source.STATIC_BROKER)
Layers = tuple[frozenset[tuple[str, str]], ...]
"""The broker's settings as they were given, for each of `_SOURCES`."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """One link of the chain behind a value."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One configuration of a topic, a group or a broker."""

    setting: Setting
    value: str | None
    source: Source
    read_only: bool
    synonyms: tuple[Synonym, ...]


def topic_entries(topics: Topics, overrides: Mapping[str, str], settings: Mapping[str, Value]) -> list[Entry]:
    """Return all configurations of a topic."""
    entries = dict(_inherited(_layers(topics)))
    for name in overrides:
        entry = entries[name]
        text = entry.setting.text(settings[name])
        chain = (Synonym(name, text, Source.TOPIC), *entry.synonyms)
        entries[name] = replace(entry, value=text, source=Source.TOPIC, synonyms=chain)
    return list(entries.values())


def group_entries(topics: Topics, overrides: Mapping[str, str], broker: Mapping[str, Value]) -> list[Entry]:
    """Return all configurations of a group, under the broker's resolved settings."""
    layers = _layers(topics)
    inherited = group_defaults(broker)
    entries = []
    for setting in GROUP_CONFIGS:
        stand_in = broker_synonym(setting.name)
        chain = _chain(layers, setting if stand_in is None else GROUP_SETTINGS[stand_in])
        value = inherited[setting.name]
        if setting.name in overrides:
            value = parse_group(setting.name, overrides[setting.name])
            chain = (Synonym(setting.name, setting.text(value), Source.GROUP), *chain)
        entries.append(Entry(setting, setting.text(value), _source(chain), read_only=False, synonyms=chain))
    return entries


def broker_entries(topics: Topics, settings: Mapping[str, Value], tables: Iterable[Settings]) -> list[Entry]:
    """Return all configurations of this broker, of the `tables` it is made of."""
    layers = _layers(topics)
    entries = []
    for setting in (setting for table in tables for setting in table):
        chain = _chain(layers, setting)
        value = topics.broker_settings.get(setting.name, settings.get(setting.name))
        entries.append(
            Entry(
                setting,
                setting.text(value),
                _source(chain),
                read_only=setting.name not in DYNAMIC,
                synonyms=chain,
            )
        )
    return entries


def default_broker_entries(topics: Topics) -> list[Entry]:
    """Return the dynamic configurations that were given for all brokers."""
    source = Source.DYNAMIC_DEFAULT_BROKER
    return [
        Entry(BROKER_SETTINGS[name], text, source, name not in DYNAMIC, (Synonym(name, text, source),))
        for name, text in topics.broker_configs.get("", {}).items()
    ]


def _layers(topics: Topics) -> Layers:
    return (
        frozenset(topics.broker_configs.get(str(topics.node_id), {}).items()),
        frozenset(topics.broker_configs.get("", {}).items()),
        frozenset(topics.given.items()),
    )


@lru_cache(maxsize=4)
def _inherited(layers: Layers) -> dict[str, Entry]:
    """Return the entries of a topic with no settings of its own: the same for all, until the broker's change."""
    given = {name: text for layer in reversed(layers) for name, text in layer if name in BROKER_SETTINGS}
    values = topic_defaults(BROKER_SETTINGS.resolve(given))
    entries = {}
    for setting in TOPIC_SETTINGS:
        chain: tuple[Synonym, ...] = ()
        if setting.name in SYNONYMS:
            chain = _chain(layers, BROKER_SETTINGS[SYNONYMS[setting.name][0][0]])
        text = setting.text(values[setting.name])
        entries[setting.name] = Entry(setting, text, _source(chain), read_only=False, synonyms=chain)
    return entries


def _chain(layers: Layers, setting: Setting) -> tuple[Synonym, ...]:
    names = _CHAINS.get(setting.name, (setting.name,))
    chain: list[Synonym] = []
    for layer, source in zip(map(dict, layers), _SOURCES, strict=True):
        chain += [Synonym(name, layer[name], source) for name in names if name in layer]
    for name in names:
        declared = setting if name == setting.name else BROKER_SETTINGS[name]
        if declared.default is not None:
            chain.append(Synonym(name, declared.text(declared.default), Source.DEFAULT))
    # Kafka's chain begins at the setting's own name: an older form of it that is all there is does not show.
    own = next((i for i, link in enumerate(chain) if link.name == setting.name), len(chain))
    return tuple(chain[own:])


def _source(chain: Iterable[Synonym]) -> Source:
    return next((link.source for link in chain), Source.DEFAULT)
