"""Opening a partition: what a clean stop left is taken as it is, the rest is read and verified.

The checkpoint names a place that was on stable storage. Segments before that place need nothing but their
index files; from it on, every batch is read and its checksum verified, the idempotent producers learn
from the headers, and a torn tail is cut off. Without a checkpoint everything is read.
Whatever a crash left half-made is understood: an empty segment, an index or checkpoint under its
temporary name, a segment that deletion had begun to remove.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headwater.log import checkpoint as checkpoint_file
from headwater.log.checkpoint import Checkpoint
from headwater.log.config import LogConfig
from headwater.log.partition import PartitionLog
from headwater.log.producers import Producers
from headwater.log.segment import OpenFiles, Segment

logger = logging.getLogger(__name__)


def open_partition(
    files: OpenFiles,
    directory: Path,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    synced: bool,
    now_ms: int,
) -> PartitionLog:
    """Return the partition's log, recovered; a partition that was never written to has no directory."""
    log = PartitionLog(files, directory, topic, partition, config, synced=synced)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return log
    bases = sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit())
    for name in names:
        if name.endswith(".new"):
            files.disk.remove(directory / name)
    saved = checkpoint_file.load(directory) or Checkpoint(segment=-1)
    if saved.segment not in bases:
        saved = Checkpoint(start_offset=saved.start_offset, segment=-1)
    log.producers = Producers.from_json(saved.producers)
    for i, base in enumerate(bases):
        segment = Segment(files, directory, base)
        size = segment.path.stat().st_size
        if base < saved.segment:
            segment.open_closed(size, bases[i + 1])
        else:
            _recover(log, segment, size, saved if base == saved.segment else None, now_ms)
            if base != bases[-1]:
                segment.next_offset = bases[i + 1]
                segment.save_index()
                segment.forget_index()
        log.add(segment)
    _take_bounds(log, saved)
    return log


def _recover(log: PartitionLog, segment: Segment, size: int, saved: Checkpoint | None, now_ms: int) -> None:
    known = segment.open_at(size, saved.position if saved else 0)
    if known == size:
        return
    found, damaged, torn = segment.recover(size, log.config.index_interval_bytes)
    known_to = saved.next_offset if saved else 0
    for item in found:
        if item.header.base_offset >= known_to:
            log.producers.replay(item.header, now_ms)
    where = f"{log.topic}-{log.partition}"
    for damage in damaged:
        logger.error(
            "%s is damaged on disk: offsets %d to %d (bytes %d to %d of %s) answer with an error, the rest serves",
            where, damage.first_offset, damage.next_offset - 1, damage.position, damage.end, segment.path.name,
        )  # fmt: skip
    if torn is not None:
        logger.warning(
            "%s ended in an unfinished write: cut %d bytes, the log ends at offset %d",
            where, size - torn.position, segment.next_offset,
        )  # fmt: skip


def _take_bounds(log: PartitionLog, saved: Checkpoint) -> None:
    if not log.segments:
        log.start_offset = log.end_offset = log.high_watermark = saved.start_offset
        return
    last = log.segments[-1]
    log.end_offset = last.next_offset
    log.start_offset = min(max(saved.start_offset, log.segments[0].base_offset), log.end_offset)
    log.show(last, last.size, log.end_offset)
    if last.size != saved.position or last.base_offset != saved.segment:
        log.recovered = True
        log.want_checkpoint()
