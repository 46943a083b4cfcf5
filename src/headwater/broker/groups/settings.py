"""The settings of consumer groups: Kafka's names, defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from headwater.core.settings import Kind, Setting, Settings, Value, between, one_of

ASSIGNORS = ("uniform", "range")
_MAX_INT = 2**31 - 1

GROUP_SETTINGS = Settings(
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        0,
        "How long the first rebalance of an empty group waits for more members before it completes.",
        between(0),
    ),
    Setting(
        "group.min.session.timeout.ms",
        Kind.INT,
        6000,
        "The shortest session timeout that a member of the classic protocol may ask for.",
        between(1),
    ),
    Setting(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "The longest session timeout that a member of the classic protocol may ask for.",
        between(1),
    ),
    Setting(
        "group.max.size",
        Kind.INT,
        _MAX_INT,
        "The most members that a group of the classic protocol takes.",
        between(1),
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "A member of the consumer protocol that is silent for this long leaves its group.",
        between(1),
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        5000,
        "How often members of the consumer protocol are told to send a heartbeat.",
        between(1),
    ),
    Setting(
        "group.consumer.max.size",
        Kind.INT,
        _MAX_INT,
        "The most members that a group of the consumer protocol takes.",
        between(1),
    ),
    Setting(
        "group.consumer.assignors",
        Kind.LIST,
        ASSIGNORS,
        "The assignors that members of the consumer protocol may choose; the first is the default.",
        one_of(*ASSIGNORS),
    ),
    Setting(
        "group.share.session.timeout.ms",
        Kind.INT,
        45_000,
        "A member of a share group that is silent for this long leaves it.",
        between(1),
    ),
    Setting(
        "group.share.heartbeat.interval.ms",
        Kind.INT,
        5000,
        "How often members of share groups are told to send a heartbeat.",
        between(1),
    ),
    Setting(
        "group.share.max.size",
        Kind.INT,
        200,
        "The most members that a share group takes.",
        between(1, 1000),
    ),
    Setting(
        "group.share.record.lock.duration.ms",
        Kind.INT,
        30_000,
        "A member of a share group has this long to acknowledge a record before others get it.",
        between(1000, 3_600_000),
    ),
    Setting(
        "group.share.delivery.count.limit",
        Kind.INT,
        5,
        "How often a share group delivers a record that nobody accepts or rejects.",
        between(2, 10),
    ),
    Setting(
        "group.share.partition.max.record.locks",
        Kind.INT,
        2000,
        "The most records of a partition that a share group has in flight, a last batch aside.",
        between(100, 10_000),
    ),
    Setting(
        "group.share.max.share.sessions",
        Kind.INT,
        2000,
        "The most members of share groups that fetch at the same time.",
        between(1),
    ),
    Setting(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        "The longest metadata that may be stored with a committed offset.",
        between(0),
    ),
    Setting(
        "offsets.retention.minutes",
        Kind.INT,
        7 * 24 * 60,
        "Committed offsets are kept for this long after their group became empty, "
        "or after the last commit where the group has no members to subscribe.",
        between(1),
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often committed offsets are searched for expired ones.",
        between(1),
    ),
)


@dataclass(frozen=True)
class GroupConfig:
    """The resolved settings of `GROUP_SETTINGS`, typed."""

    initial_rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_max_size: int
    assignors: tuple[str, ...]
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    share_max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    offsets_check_interval_ms: int

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> GroupConfig:
        """Return the configuration in `values`, with the default of every setting they lack."""

        def number(name: str) -> int:
            return cast(int, values.get(name, GROUP_SETTINGS[name].default))

        assignors = values.get("group.consumer.assignors") or ASSIGNORS
        return cls(
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
            min_session_timeout_ms=number("group.min.session.timeout.ms"),
            max_session_timeout_ms=number("group.max.session.timeout.ms"),
            max_size=number("group.max.size"),
            consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
            consumer_max_size=number("group.consumer.max.size"),
            assignors=cast("tuple[str, ...]", assignors),
            share_session_timeout_ms=number("group.share.session.timeout.ms"),
            share_heartbeat_interval_ms=number("group.share.heartbeat.interval.ms"),
            share_max_size=number("group.share.max.size"),
            offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
            offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
            offsets_check_interval_ms=number("offsets.retention.check.interval.ms"),
        )
