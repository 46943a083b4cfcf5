"""The settings of a topic that its log obeys, as numbers ready for the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's log settings; the defaults are Kafka's."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    log_append_time: bool = False
    compacted: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3600 * 1000
    deleted: bool = True
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_ratio: float = 0.5
    archived: bool = False
    """Whether old segments are kept in the archive."""
    archive_grows: bool = True
    """Whether more of them move there."""
    local_retention_ms: int = 7 * 24 * 3600 * 1000
    local_retention_bytes: int = -1

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LogConfig:
        """Return what a topic's resolved settings say."""
        return cls(
            segment_bytes=settings["segment.bytes"],
            segment_ms=settings["segment.ms"],
            index_interval_bytes=settings["index.interval.bytes"],
            max_message_bytes=settings["max.message.bytes"],
            compacted="compact" in settings["cleanup.policy"],
            log_append_time=settings["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=settings["message.timestamp.before.max.ms"],
            timestamp_after_max_ms=settings["message.timestamp.after.max.ms"],
            deleted="delete" in settings["cleanup.policy"],
            retention_ms=settings["retention.ms"],
            retention_bytes=settings["retention.bytes"],
            delete_retention_ms=settings["delete.retention.ms"],
            min_compaction_lag_ms=settings["min.compaction.lag.ms"],
            max_compaction_lag_ms=settings["max.compaction.lag.ms"],
            min_cleanable_ratio=settings["min.cleanable.dirty.ratio"],
            archived=settings["remote.storage.enable"],
            archive_grows=not settings["remote.log.copy.disable"],
            local_retention_ms=_local(settings["local.retention.ms"], settings["retention.ms"]),
            local_retention_bytes=_local(settings["local.retention.bytes"], settings["retention.bytes"]),
        )


def _local(limit: int, whole: int) -> int:
    """Return how much stays out of the archive; -2 is all there is."""
    return whole if limit == -2 else limit
