"""What holds for the records of a share group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from headwater.broker.group_configs import SettingsOfGroup
from headwater.broker.group_settings import reset_duration_ms
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.core.settings import Value

_MAX_SESSIONS = "group.share.max.share.sessions"


@dataclass(frozen=True)
class ShareConfig:
    """What holds for the records of one share group."""

    lock_ms: int
    delivery_limit: int
    max_locks: int
    read_committed: bool = False
    renews: bool = True
    """Whether members may extend the locks of their records."""
    reset: str = "latest"
    """Where a group begins to read a partition: `latest`, `earliest`, or `by_duration`."""
    reset_ms: int = 0
    """How far back it begins `by_duration`."""


@lru_cache(maxsize=256)
def share_config(group: SettingsOfGroup) -> ShareConfig:
    """Return what the settings of a group mean for its records."""
    reset_ms = reset_duration_ms(group.share_auto_offset_reset)
    return ShareConfig(
        lock_ms=group.share_record_lock_duration_ms,
        delivery_limit=group.share_delivery_count_limit,
        max_locks=group.share_partition_max_record_locks,
        read_committed=group.share_isolation_level == "read_committed",
        renews=group.share_renew_acknowledge_enable,
        reset=group.share_auto_offset_reset if reset_ms is None else "by_duration",
        reset_ms=reset_ms or 0,
    )


def max_sessions(settings: Mapping[str, Value]) -> int:
    """Return how many members may fetch at the same time."""
    return cast(int, settings.get(_MAX_SESSIONS, GROUP_SETTINGS[_MAX_SESSIONS].default))
