"""The broker's settings of groups: Kafka's names, defaults and bounds.

Those that a single group may have a value of its own for, and their bounds, are made from `group_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from headwater.broker.group_settings import for_broker
from headwater.core.settings import Kind, Setting, Settings, Value, between, one_of

ASSIGNORS = ("uniform", "range")
_MAX_INT = 2**31 - 1
_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


def _policy(text: str) -> str | None:
    return one_of(*_POLICIES)(text.lower())


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
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Whether groups that have members move between the protocols: `upgrade` from the classic to the consumer "
        "protocol, `downgrade` back, `bidirectional` both, `disabled` neither. Empty groups always do.",
        _policy,
    ),
    Setting(
        "group.share.max.size",
        Kind.INT,
        200,
        "The most members that a share group takes.",
        between(1, 1000),
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
    *for_broker(),
)


@dataclass(frozen=True)
class GroupConfig:
    """The resolved settings of `GROUP_SETTINGS` that are the same for every group, typed."""

    initial_rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
    consumer_max_size: int
    assignors: tuple[str, ...]
    upgrades: bool
    """Whether a classic group with members may become a consumer group."""
    downgrades: bool
    """Whether a consumer group whose last member of that protocol is gone becomes a classic group."""
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
        policy = str(values.get("group.consumer.migration.policy", "bidirectional")).lower()
        return cls(
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
            min_session_timeout_ms=number("group.min.session.timeout.ms"),
            max_session_timeout_ms=number("group.max.session.timeout.ms"),
            max_size=number("group.max.size"),
            consumer_max_size=number("group.consumer.max.size"),
            assignors=cast("tuple[str, ...]", assignors),
            upgrades=policy in ("upgrade", "bidirectional"),
            downgrades=policy in ("downgrade", "bidirectional"),
            share_max_size=number("group.share.max.size"),
            offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
            offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
            offsets_check_interval_ms=number("offsets.retention.check.interval.ms"),
        )
