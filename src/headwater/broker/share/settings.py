"""What holds for the records of a share group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.core.settings import Value


@dataclass(frozen=True)
class ShareConfig:
    """What holds for the records of one share group."""

    lock_ms: int
    delivery_limit: int
    max_locks: int
    read_committed: bool = False
    reset: str = "latest"
    """Where a group begins to read a partition: `latest`, `earliest`, or `by_duration`."""
    reset_ms: int = 0
    """How far back it begins `by_duration`."""


def share_config(settings: Mapping[str, Value], group_id: str) -> ShareConfig:
    """Return what holds for a group: the broker's settings, since groups have none of their own."""
    return ShareConfig(
        lock_ms=_number(settings, "group.share.record.lock.duration.ms"),
        delivery_limit=_number(settings, "group.share.delivery.count.limit"),
        max_locks=_number(settings, "group.share.partition.max.record.locks"),
    )


def max_sessions(settings: Mapping[str, Value]) -> int:
    """Return how many members may fetch at the same time."""
    return _number(settings, "group.share.max.share.sessions")


def _number(settings: Mapping[str, Value], name: str) -> int:
    return cast(int, settings.get(name, GROUP_SETTINGS[name].default))
