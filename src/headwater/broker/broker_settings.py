"""The settings of the broker: Kafka's names, kinds, defaults and bounds, and a few of our own.

Those that stand for a topic's setting are made from that topic's setting, so that the two never differ.
Settings of groups are in `groups.settings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headwater.broker.access.settings import ACCESS_SETTINGS
from headwater.broker.topic_settings import SYNONYMS, TOPIC_SETTINGS
from headwater.core.settings import Kind, Setting, Settings, between

_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1

_OWN: Final = (
    Setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether a topic that a client asks for, and that does not exist, is created.",
    ),
    Setting("broker.id", Kind.INT, 1, "The number of this broker; the same as `node.id`.", between(0)),
    Setting("node.id", Kind.INT, 1, "The number of this broker.", between(0)),
    Setting("broker.rack", Kind.STRING, None, "The rack that clients are told this broker is in."),
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        "A connection that is silent for this long is closed; -1 closes none.",
    ),
    Setting(
        "controller.quota.window.num",
        Kind.INT,
        11,
        "How many samples' worth of `controller_mutation_rate` a quiet client may create or delete at once.",
        between(1),
    ),
    Setting(
        "controller.quota.window.size.seconds",
        Kind.INT,
        1,
        "How long each of these samples is.",
        between(1),
    ),
    Setting(
        "default.replication.factor",
        Kind.INT,
        1,
        "The replication factor of a topic whose creator leaves it open; a single node has one replica.",
        between(1, 1),
    ),
    Setting("delete.topic.enable", Kind.BOOLEAN, True, "Whether clients may delete topics."),
    Setting(
        "fetch.max.bytes",
        Kind.INT,
        55 * 1024 * 1024,
        "The most bytes of records in the answer to one fetch.",
        between(1024),
    ),
    Setting(
        "headwater.amqp.channel.max",
        Kind.INT,
        2047,
        "The most channels of one AMQP connection.",
        between(1, 65535),
    ),
    Setting(
        "headwater.amqp.frame.max.bytes",
        Kind.INT,
        128 * 1024,
        "The largest AMQP frame.",
        between(4096, _MAX_INT),
    ),
    Setting(
        "headwater.amqp.heartbeat.seconds",
        Kind.INT,
        60,
        "The heartbeat that AMQP clients are offered; theirs counts. 0 is none.",
        between(0, 65535),
    ),
    Setting(
        "headwater.amqp.message.max.bytes",
        Kind.INT,
        128 * 1024 * 1024,
        "The largest body of an AMQP message; a larger one closes its channel.",
        between(1, 128 * 1024 * 1024),
    ),
    Setting(
        "headwater.amqp.unfinished.max.bytes",
        Kind.LONG,
        256 * 1024 * 1024,
        "The memory for AMQP messages that are arriving, or held back by a transaction, all clients together; "
        "above it, the connection with the most of it is closed.",
        between(1024 * 1024),
    ),
    Setting(
        "headwater.archive.dir",
        Kind.STRING,
        None,
        "A directory on cheaper storage for the old segments of topics with `remote.storage.enable`: another disk, a "
        "network file system, a mounted bucket. Each broker has a part of it for itself.",
    ),
    Setting(
        "headwater.disk.reserve.bytes",
        Kind.LONG,
        -1,
        "How much of the data's disk is kept free: below it records are refused, and all else goes on; "
        "-1 is the smaller of 1 GiB and a twentieth of the disk.",
        between(-1),
    ),
    Setting(
        "headwater.fetch.memory.bytes",
        Kind.LONG,
        256 * 1024 * 1024,
        "The most memory for answers to fetches that clients have not read yet, of all connections together; "
        "answers get smaller as it fills.",
        between(1024 * 1024),
    ),
    Setting(
        "headwater.journal.bytes",
        Kind.LONG,
        64 * 1024 * 1024,
        "The size of the journal, one file that is synced in place of the segments of many partitions, once a broker "
        "has something to do; at least 4 MiB, and 0 is none: then each partition is synced by itself.",
        between(0, 2**40),
    ),
    Setting(
        "headwater.max.partitions",
        Kind.INT,
        100_000,
        "The most partitions that the broker holds, of all topics together.",
        between(1),
    ),
    Setting(
        "headwater.max.partitions.per.request",
        Kind.INT,
        10_000,
        "The most partitions that one request may create, as Kafka's controller has it.",
        between(1),
    ),
    Setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "How long the cleaner sleeps when there is nothing to compact.",
        between(0),
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 * 1024 * 1024,
        "The memory for the keys of a compaction; where they do not fit, it takes several passes.",
        between(1024 * 1024),
    ),
    Setting("log.cleaner.enable", Kind.BOOLEAN, True, "Whether compacted topics are compacted."),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        1.7976931348623157e308,
        "The most bytes that the cleaner reads and writes in a second.",
        between(1),
    ),
    Setting("log.flush.interval.ms", Kind.LONG, None, "Stands for `flush.ms` of every topic."),
    Setting(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        _MAX_LONG,
        "Stands for `flush.ms` of every topic, where `log.flush.interval.ms` is not set.",
    ),
    Setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How long the broker waits between two looks for records that have expired.",
        between(1),
    ),
    Setting("log.retention.hours", Kind.INT, 168, "Stands for `retention.ms` of every topic, in hours."),
    Setting(
        "log.retention.minutes",
        Kind.INT,
        None,
        "Stands for `retention.ms` of every topic, in minutes; comes before the hours.",
    ),
    Setting(
        "log.retention.ms",
        Kind.LONG,
        None,
        "Stands for `retention.ms` of every topic; comes before the minutes and hours.",
    ),
    Setting("log.roll.hours", Kind.INT, 168, "Stands for `segment.ms` of every topic, in hours.", between(1)),
    Setting(
        "log.roll.jitter.hours",
        Kind.INT,
        0,
        "Stands for `segment.jitter.ms` of every topic, in hours.",
        between(0),
    ),
    Setting(
        "log.roll.jitter.ms",
        Kind.LONG,
        None,
        "Stands for `segment.jitter.ms` of every topic; comes before the hours.",
    ),
    Setting(
        "log.roll.ms", Kind.LONG, None, "Stands for `segment.ms` of every topic; comes before the hours."
    ),
    Setting("max.connections", Kind.INT, _MAX_INT, "The most connections that are open at once.", between(0)),
    Setting(
        "max.connections.per.ip",
        Kind.INT,
        _MAX_INT,
        "The most connections that are open at once from one address.",
        between(0),
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "The most fetch sessions that are kept.",
        between(0),
    ),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "The most partitions in one answer to DescribeTopicPartitions.",
        between(1),
    ),
    Setting(
        "headwater.metrics.max.series",
        Kind.INT,
        2000,
        "How many topics, partitions, and partitions of groups the metrics tell apart; beyond it only sums are told.",
        between(0),
    ),
    Setting(
        "num.partitions",
        Kind.INT,
        1,
        "The partitions of a topic whose creator leaves them open, or that is created by being asked for.",
        between(1),
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "How long the sequence of a producer that writes nothing is remembered.",
        between(1),
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        256 * 1024 * 1024,
        "The most memory for requests that are arriving, of all connections together; those beyond it wait. "
        "-1 is without limit.",
        between(-1),
    ),
    Setting(
        "headwater.queue.memory.bytes",
        Kind.LONG,
        32 * 1024 * 1024,
        "The memory that waiting AMQP messages may take, all queues together; the rest waits on disk.",
        between(1024 * 1024),
    ),
    Setting(
        "quota.window.num",
        Kind.INT,
        11,
        "How many samples a rate that a quota limits is taken over.",
        between(1),
    ),
    Setting("quota.window.size.seconds", Kind.INT, 1, "How long each sample of such a rate is.", between(1)),
    Setting(
        "remote.log.manager.copy.max.bytes.per.second",
        Kind.LONG,
        _MAX_LONG,
        "The most bytes that are copied to the archive in a second.",
        between(1),
    ),
    Setting(
        "remote.log.manager.task.interval.ms",
        Kind.LONG,
        30_000,
        "How long the broker waits between two looks for segments to move to the archive.",
        between(1),
    ),
    Setting(
        "socket.request.max.bytes",
        Kind.INT,
        100 * 1024 * 1024,
        "The largest request that is read; a larger one closes its connection.",
        between(1),
    ),
)


def _for_topics() -> Iterator[Setting]:
    declared = {setting.name for setting in _OWN}
    for topic_name, synonyms in SYNONYMS.items():
        for name, _ in synonyms:
            if name not in declared:
                setting = TOPIC_SETTINGS[topic_name]
                yield replace(
                    setting, name=name, help=f"Stands for `{topic_name}` of every topic. {setting.help}"
                )


BROKER_SETTINGS: Final = Settings(
    *sorted((*_OWN, *ACCESS_SETTINGS, *_for_topics()), key=lambda setting: setting.name)
)

_READ_ONLY_FOR_TOPICS: Final = frozenset(
    {
        "log.flush.scheduler.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.roll.hours",
        "log.roll.jitter.hours",
    }
)

DYNAMIC: Final = frozenset(
    {name for synonyms in SYNONYMS.values() for name, _ in synonyms} - _READ_ONLY_FOR_TOPICS
    | {
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
        "remote.log.manager.copy.max.bytes.per.second",
    }
)
"""The settings that change while the broker runs; the others are given when it starts."""
