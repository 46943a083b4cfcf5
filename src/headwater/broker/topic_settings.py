"""The settings of a topic: Kafka 4.3's names, kinds, defaults and bounds.

A topic's own value comes first, then the broker's setting that stands for it (`SYNONYMS`), then the default.
Settings that only mean something with replicas are listed, so that tools which copy topics between clusters
work; their help says that they do nothing here. Kafka's tiered storage is the archive here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headwater.core.errors import SettingError
from headwater.core.settings import Kind, Setting, Settings, Value, between, one_of

_MAX_LONG: Final = 2**63 - 1
_DAY_MS: Final = 24 * 3600 * 1000
_HOUR_MS: Final = 3600 * 1000
_MINUTE_MS: Final = 60 * 1000
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_NO_REPLICAS = "Accepted for Kafka's tools; a single node has no replicas."
_AS_THEY_CAME = "Accepted for Kafka's tools; batches are stored with the codec that their producer chose."
_SYNCED = "Accepted for Kafka's tools; `--durability` says when records are synced to disk."

CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "must be between 1 and 9, or -1"


def _rate(bytes_per_second: int) -> str | None:
    return None if bytes_per_second == -1 or bytes_per_second >= 1 else "must be at least 1, or -1"


def _throttled(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(_REPLICA.fullmatch(replica) for replica in replicas):
        return None
    return "must be * or a list of partition:broker"


TOPIC_SETTINGS: Final = Settings(
    Setting(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "What happens to old records: `delete` by age and size, `compact` to the newest of each key, "
        "both, or nothing when empty.",
        one_of("compact", "delete"),
    ),
    Setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        _AS_THEY_CAME,
        _gzip_level,
    ),
    Setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        _AS_THEY_CAME,
        between(1, 17),
    ),
    Setting(
        "compression.type",
        Kind.STRING,
        "producer",
        _AS_THEY_CAME,
        one_of(*CODECS),
    ),
    Setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        _AS_THEY_CAME,
        between(-131072, 22),
    ),
    Setting(
        "delete.retention.ms",
        Kind.LONG,
        _DAY_MS,
        "How long a tombstone stays in a compacted topic, for readers who started before it.",
        between(0),
    ),
    Setting(
        "file.delete.delay.ms",
        Kind.LONG,
        60_000,
        "Accepted for Kafka's tools; the file of a deleted segment goes at once.",
        between(0),
    ),
    Setting(
        "flush.messages",
        Kind.LONG,
        _MAX_LONG,
        _SYNCED,
        between(1),
    ),
    Setting(
        "flush.ms",
        Kind.LONG,
        _MAX_LONG,
        _SYNCED,
        between(0),
    ),
    Setting("follower.replication.throttled.replicas", Kind.LIST, (), _NO_REPLICAS, _throttled),
    Setting(
        "headwater.consume.byte.rate",
        Kind.LONG,
        -1,
        "How many bytes a second are read from the topic, by all consumers together; -1 is without limit.",
        _rate,
    ),
    Setting(
        "headwater.produce.byte.rate",
        Kind.LONG,
        -1,
        "How many bytes a second are written to the topic, by all producers together; -1 is without limit.",
        _rate,
    ),
    Setting(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "How many bytes of log lie between two entries of its index.",
        between(0),
    ),
    Setting("leader.replication.throttled.replicas", Kind.LIST, (), _NO_REPLICAS, _throttled),
    Setting(
        "local.retention.bytes",
        Kind.LONG,
        -2,
        "How large a partition's part that is not in the archive grows before its oldest segments move there; -1 is "
        "without limit, -2 as `retention.bytes`.",
        between(-2),
    ),
    Setting(
        "local.retention.ms",
        Kind.LONG,
        -2,
        "How old records get before their segment moves to the archive; -1 is without limit, -2 as `retention.ms`.",
        between(-2),
    ),
    Setting(
        "max.compaction.lag.ms",
        Kind.LONG,
        _MAX_LONG,
        "The longest that a record of a compacted topic waits for compaction.",
        between(1),
    ),
    Setting(
        "max.message.bytes",
        Kind.INT,
        1024 * 1024 + 12,
        "The largest record batch that is taken, compressed as it comes.",
        between(0),
    ),
    Setting(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        _HOUR_MS,
        "How far a record's timestamp may be ahead of the broker's clock.",
        between(0),
    ),
    Setting(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        _MAX_LONG,
        "How far a record's timestamp may be behind the broker's clock.",
        between(0),
    ),
    Setting(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whether a record's timestamp is the producer's, or the moment it was appended.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "The share of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
    ),
    Setting(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "The shortest that a record of a compacted topic stays before it may be compacted away.",
        between(0),
    ),
    Setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        _NO_REPLICAS,
        between(1),
    ),
    Setting(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Accepted for Kafka's tools; a segment's file grows as it is written.",
    ),
    Setting(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        False,
        "Whether no more segments move to the archive; what is there stays readable.",
    ),
    Setting(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        False,
        "Whether `remote.storage.enable` may become false, which deletes what the topic has in the archive.",
    ),
    Setting(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        "Whether old segments move to the archive, where they stay readable; the broker needs `headwater.archive.dir`.",
    ),
    Setting(
        "retention.bytes",
        Kind.LONG,
        -1,
        "How large a partition grows before its oldest segments are deleted; -1 is without limit.",
    ),
    Setting(
        "retention.ms",
        Kind.LONG,
        7 * _DAY_MS,
        "How old a partition's records get before they are deleted; -1 is without limit.",
        between(-1),
    ),
    Setting(
        "segment.bytes",
        Kind.INT,
        1024**3,
        "The size of a segment's file; records are deleted a segment at a time.",
        between(1024**2),
    ),
    Setting(
        "segment.index.bytes",
        Kind.INT,
        10 * 1024**2,
        "Accepted for Kafka's tools; an index is as large as its segment makes it.",
        between(4),
    ),
    Setting(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "Accepted for Kafka's tools; segments end by `segment.ms` alone.",
        between(0),
    ),
    Setting(
        "segment.ms",
        Kind.LONG,
        7 * _DAY_MS,
        "After how long a segment ends even if it is not full.",
        between(1),
    ),
    Setting("unclean.leader.election.enable", Kind.BOOLEAN, False, _NO_REPLICAS),
)

_SAME = ("compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level")
_LOG = (
    "cleanup.policy",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "preallocate",
    "retention.bytes",
    "segment.bytes",
)
_CLEANER = ("delete.retention.ms", "max.compaction.lag.ms", "min.compaction.lag.ms")

SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = MappingProxyType(
    {
        **{name: ((name, 1),) for name in (*_SAME, "min.insync.replicas", "unclean.leader.election.enable")},
        **{name: ((f"log.{name}", 1),) for name in _LOG},
        **{name: ((f"log.cleaner.{name}", 1),) for name in _CLEANER},
        "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
        "flush.messages": (("log.flush.interval.messages", 1),),
        "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        "max.message.bytes": (("message.max.bytes", 1),),
        "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
        "retention.ms": (
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
        "segment.index.bytes": (("log.index.size.max.bytes", 1),),
        "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
        "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    }
)
"""The broker's settings that stand for a topic's, the first that is set winning, and what multiplies each."""


def topic_defaults(broker: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings of a topic without any of its own, under a broker's resolved settings."""
    return {setting.name: _default(setting, broker) for setting in TOPIC_SETTINGS}


def _default(setting: Setting, broker: Mapping[str, Value]) -> Value:
    for name, factor in SYNONYMS.get(setting.name, ()):
        value = broker.get(name)
        if value is None:
            continue
        return max(-1, value * factor) if isinstance(value, int) and factor > 1 else value
    return setting.default


def resolve_topic(overrides: Mapping[str, str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Return a topic's settings: its own parsed, over `defaults`; raise `SettingError` for one that does not fit."""
    settings = dict(defaults)
    for name, text in overrides.items():
        if name not in TOPIC_SETTINGS:
            raise SettingError(f"Unknown topic config name: {name}")
        settings[name] = TOPIC_SETTINGS[name].parse(text)
    return settings
