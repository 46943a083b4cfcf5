"""Whether a log wants compaction, and which of its segments may have it.

Cleanable are the segments that grow no more, lie before the last stable offset and hold nothing younger than
`min.compaction.lag.ms`. The checkpoint remembers, over restarts, up to where each key is there once, and when
the next tombstone may vanish. Losing it costs another pass and nothing else.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from headwater.log.cleaner import Job, Source
from headwater.log.disk import Disk
from headwater.log.partition import PartitionLog
from headwater.log.segment import Segment

NAME = "cleaned"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How far a log is compacted."""

    offset: int = 0
    horizon_ms: int | None = None
    """When the next tombstone or marker may vanish."""

    def save(self, disk: Disk, directory: Path) -> None:
        """Replace what is remembered of the partition in `directory`."""
        body = json.dumps([self.offset, self.horizon_ms]).encode()
        disk.write_file(directory / NAME, b"%08x %b\n" % (crc32c(body), body), durable=False)


def load(directory: Path) -> Cleaned:
    """Return what is remembered of the partition in `directory`."""
    try:
        crc, _, body = (directory / NAME).read_bytes().rstrip(b"\n").partition(b" ")
        return Cleaned(*json.loads(body)) if int(crc, 16) == crc32c(body) else Cleaned()
    except (OSError, ValueError, TypeError):
        return Cleaned()


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The segments that a pass would go over, and how urgent that is."""

    segments: list[Segment]
    dirty_from: int
    ratio: float
    """The share of the bytes that no pass has seen."""
    overdue: bool
    """Whether a record has waited for `max.compaction.lag.ms`, or a tombstone may vanish."""

    def wanted(self, min_ratio: float) -> bool:
        """Whether the pass is worth its while."""
        return bool(self.segments) and (self.overdue or self.ratio > min_ratio)


def look_at(log: PartitionLog, cleaned: Cleaned, now_ms: int) -> Cleanable:
    """Return what of a log may be cleaned."""
    segments = _settled(log, now_ms)
    dirty_from = max(min(cleaned.offset, log.end_offset), log.start_offset)
    dirty = [segment for segment in segments if segment.next_offset > dirty_from]
    size = sum(segment.size for segment in segments)
    ratio = sum(segment.size for segment in dirty) / size if size else 0.0
    lag = log.config.max_compaction_lag_ms
    late = any(0 <= segment.first_timestamp < now_ms - lag for segment in dirty)
    vanishing = cleaned.horizon_ms is not None and cleaned.horizon_ms <= now_ms
    return Cleanable(segments, dirty_from, ratio, late or vanishing)


def wants_roll(log: PartitionLog, now_ms: int) -> bool:
    """Whether the growing segment has been open for so long that it ought to become cleanable."""
    segment = log.segments[-1]
    limit = min(log.config.segment_ms, log.config.max_compaction_lag_ms)
    return bool(segment.size) and 0 <= segment.first_timestamp < now_ms - limit


def job_for(
    log: PartitionLog,
    found: Cleanable,
    *,
    now_ms: int,
    map_entries: int,
    bytes_per_second: float | None = None,
) -> Job:
    """Return the job of cleaning what was found to be cleanable."""
    until = found.segments[-1].next_offset
    last = (producer.batches[-1].base_offset for _, producer in log.producers.items() if producer.batches)
    return Job(
        directory=str(log.directory.absolute()),
        token=secrets.token_hex(4),
        segments=[Source(s.base_offset, s.next_offset, s.size) for s in found.segments],
        dirty_from=found.dirty_from,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        index_interval=log.config.index_interval_bytes,
        map_entries=map_entries,
        bytes_per_second=bytes_per_second,
        aborted=[ended for ended in log.transactions.aborted if ended.first_offset < until],
        last_batches=[offset for offset in last if offset < until],
    )


def _settled(log: PartitionLog, now_ms: int) -> list[Segment]:
    stable = log.last_stable_offset
    youngest = now_ms - log.config.min_compaction_lag_ms
    segments: list[Segment] = []
    for segment in log.segments[:-1]:
        young = log.config.min_compaction_lag_ms > 0 and segment.max_timestamp > youngest
        if segment.next_offset > stable or young or not log.is_settled(segment):
            break
        segments.append(segment)
    return segments
