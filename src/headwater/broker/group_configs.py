"""What single groups are set to: a state machine replayed from the metadata log.

    group/<name>   {"version": 1, "configs": {"consumer.session.timeout.ms": "50000"}}

A value is the whole of a group's own settings; a tombstone leaves it with the broker's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from headwater.broker.group_settings import check_group, resolve_group
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode, HeadwaterError, SettingError
from headwater.core.settings import Value

__all__ = ["GroupConfigs", "SettingsOfGroup"]

_GROUP: Final = b"group/"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class SettingsOfGroup:
    """What is in force for one group, typed."""

    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    share_record_lock_duration_ms: int
    share_delivery_count_limit: int
    share_partition_max_record_locks: int
    share_auto_offset_reset: str
    """`earliest`, `latest`, or what `group_settings.reset_duration_ms` takes."""
    share_isolation_level: str
    share_renew_acknowledge_enable: bool

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: Mapping[str, Value]) -> SettingsOfGroup:
        """Return a group's own settings over those of the broker."""
        values: Mapping[str, Any] = resolve_group(overrides, broker)
        return cls(**{field.name: values[field.name.replace("_", ".")] for field in fields(cls)})


class GroupConfigs:
    """The settings of single groups, over the resolved ones of the broker."""

    def __init__(self, broker: Mapping[str, Value]) -> None:
        self._broker = broker
        self._defaults = SettingsOfGroup.of({}, broker)
        self._in_force: dict[str, SettingsOfGroup] = {}
        self.by_group: dict[str, Mapping[str, str]] = {}
        """Each group's own settings as text."""

    def settings_of_group(self, group_id: str) -> SettingsOfGroup:
        """Return what is in force for a group, whether or not it exists."""
        return self._in_force.get(group_id, self._defaults)

    def alter(self, group_id: str, overrides: Mapping[str, str]) -> list[StateRecord]:
        """Return the record that makes these a group's own settings, all of them, or raise `ApiError`."""
        if not group_id:
            raise ApiError(ErrorCode.invalid_request, "Default group resources are not allowed.")
        try:
            check_group(overrides, self._broker)
        except SettingError as error:
            raise ApiError(ErrorCode.invalid_config, str(error)) from error
        if overrides == self.by_group.get(group_id, {}):
            return []
        value = json.dumps({"version": _VERSION, "configs": dict(overrides)}).encode() if overrides else None
        return [StateRecord(_GROUP + group_id.encode(), value)]

    def replay(self, record: StateRecord) -> None:
        """Take a record of the metadata log, if it is one of a group's settings."""
        if not record.key.startswith(_GROUP):
            return
        group_id = record.key[len(_GROUP) :].decode()
        if record.value is None:
            self.by_group.pop(group_id, None)
            self._in_force.pop(group_id, None)
            return
        value = json.loads(record.value)
        if value["version"] != _VERSION:
            raise HeadwaterError(
                f"the metadata log has settings of a group in version {value['version']}, and this broker reads "
                f"{_VERSION}: start the version that wrote it"
            )
        self.by_group[group_id] = value["configs"]
        self._in_force[group_id] = SettingsOfGroup.of(value["configs"], self._broker)
