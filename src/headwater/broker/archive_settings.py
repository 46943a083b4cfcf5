"""What the settings of an archived topic must be to one another: Kafka's rules for tiered storage, in its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from headwater.core.errors import SettingError
from headwater.core.settings import Value

_AS_THE_WHOLE: Final = -2
_NO_ARCHIVE = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage. "
    "Start the broker with headwater.archive.dir to have it."
)
_COMPACTED = "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
_STILL_THERE = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
    "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
    "remote storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)


def check_archive(
    settings: Mapping[str, Value], before: Mapping[str, Value] | None, *, has_archive: bool
) -> None:
    """Raise `SettingError` where a topic's settings do not fit one another, or those it had `before`."""
    if not settings["remote.storage.enable"]:
        was_archived = before is not None and before["remote.storage.enable"]
        if was_archived and not settings["remote.log.delete.on.disable"]:
            raise SettingError(_STILL_THERE)
        return
    if not has_archive:
        raise SettingError(_NO_ARCHIVE)
    if "compact" in cast(tuple[str, ...], settings["cleanup.policy"]):
        raise SettingError(_COMPACTED)
    for name in ("retention.bytes", "retention.ms"):
        _check_local(name, cast(int, settings[f"local.{name}"]), cast(int, settings[name]))
    if settings["remote.log.copy.disable"]:
        for name in ("retention.bytes", "retention.ms"):
            if settings[f"local.{name}"] not in (_AS_THE_WHOLE, settings[name]):
                raise SettingError(
                    f"When `remote.log.copy.disable` is set to true, the `local.{name}` and `{name}` must be set to "
                    "the identical value because there will be no more logs copied to the remote storage."
                )


def _check_local(name: str, local: int, whole: int) -> None:
    if local == _AS_THE_WHOLE or whole < 0:
        return
    if local == -1:
        raise SettingError(
            f"Invalid value -1 for configuration local.{name}: Value must not be -1 as {name} value is set as {whole}."
        )
    if local > whole:
        raise SettingError(
            f"Invalid value {local} for configuration local.{name}: "
            f"Value must not be more than {name} property value: {whole}"
        )
