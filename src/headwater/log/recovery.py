"""Opening a partition: what a clean stop left is taken as it is, the rest is read and verified.

The checkpoint names a place that was on stable storage. Segments before that place need nothing but their
index files; from it on, every batch is read and its checksum verified, the idempotent producers learn
from the headers, and a torn tail is cut off. Without a checkpoint everything is read.
Whatever a crash left half-made is understood: an empty segment, an index or checkpoint under its
temporary name, a segment that deletion had begun to remove, cleaned segments on their way into place, a
segment that was begun while the end of the one before it was not yet on stable storage.
"""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

from headwater.log import archive as archive_file
from headwater.log import checkpoint as checkpoint_file
from headwater.log import swap
from headwater.log.checkpoint import Checkpoint
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.open_files import OpenFiles
from headwater.log.partition import DROPPED, PartitionLog
from headwater.log.producers import Producers
from headwater.log.scan import Damage, Found
from headwater.log.segment import Segment
from headwater.log.transactions import Aborted, decode_marker

logger = logging.getLogger(__name__)

_SEGMENT = re.compile(r"([0-9]{20})\.log")
_SET_ASIDE = ".torn"


def open_partition(
    files: OpenFiles,
    directory: Path,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    synced: bool,
    now_ms: int,
    archive: Path | None = None,
) -> PartitionLog:
    """Return the partition's log, recovered; a partition that was never written to has no directory."""
    log = PartitionLog(files, directory, topic, partition, config, synced=synced)
    log.archive = archive
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return log
    if swap.is_unfinished(names):
        swap.recover(files.disk, directory)
        names = os.listdir(directory)
    bases = sorted(int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name)))
    for name in names:
        if name.endswith((".new", DROPPED)):
            files.disk.remove(directory / name)
    saved = checkpoint_file.load(directory) or Checkpoint(segment=-1)
    if checkpoint_file.SYNCED in names and not checkpoint_file.is_readable(
        directory / checkpoint_file.SYNCED
    ):
        logger.error(
            "%s does not read: where %s-%d begins is known as of its last checkpoint only, so that records deleted "
            "since may be back",
            directory / checkpoint_file.SYNCED, topic, partition,
            extra=_fields(log, "damaged", checkpoint_file.SYNCED, 0, saved.start_offset),
        )  # fmt: skip
    if archive_file.NAME in names:
        _open_archived(log, bases, saved)
    if saved.segment not in bases:
        saved = replace(saved, segment=-1, position=0)
    _remove_deleted(files, directory, bases, saved)
    if saved.producers:
        log.producers = Producers.from_json(saved.producers)
    log.transactions.aborted = [Aborted(*ended) for ended in saved.aborted]
    for i, base in enumerate(bases):
        following = bases[i + 1] if i + 1 < len(bases) else None
        segment = Segment(files, directory, base)
        size = segment.path.stat().st_size
        if following is not None and base < saved.segment:
            segment.open_closed(size, following)
        else:
            _recover(log, segment, size, saved, now_ms)
        log.add(segment)
        if following is not None and base >= saved.segment and not _closed(segment, following, saved):
            _set_aside(log, [Segment(files, directory, later) for later in bases[i + 1 :]])
            break
    log.transactions.aborted.sort(key=lambda ended: ended.last_offset)
    _take_bounds(log, saved)
    return log


def _open_archived(log: PartitionLog, bases: list[int], saved: Checkpoint) -> None:
    """Take the segments that have moved to the archive, and complete the move of one that was about to."""
    where = f"{log.topic}-{log.partition}"
    entries = archive_file.load(log.directory)
    if entries is None:
        log.archive = None  # what is there must not be taken for what a crash has left
        logger.error(
            "%s does not read, so nobody knows what of %s is in the archive: that is not served, and stays as it is; "
            "stop the broker and restore that file",
            log.directory / archive_file.NAME, where, extra=_fields(log, "damaged", archive_file.NAME, 0, 0),
        )  # fmt: skip
        return
    kept = [entry for entry in entries if entry.next_offset > saved.start_offset]
    if kept and log.archive is None:
        logger.error(
            "%d segments of %s are in an archive, and headwater.archive.dir does not say where that is: offsets %d to "
            "%d answer with an error, the rest serves",
            len(kept), where, kept[0].base_offset, kept[-1].next_offset - 1,
            extra=_fields(log, "no archive", archive_file.NAME, 0, kept[0].base_offset),
        )  # fmt: skip
    for entry in entries:
        left = Segment(log.files, log.directory, entry.base_offset)
        if entry.base_offset in bases:
            bases.remove(entry.base_offset)
            log.disk.remove(left.path)
        if entry not in kept:
            log.disk.remove(left.index_path)
    for entry in kept:
        log.add(entry.open(log.files, log.directory, log.archive or log.directory / archive_file.UNKNOWN))


def _remove_deleted(files: OpenFiles, directory: Path, bases: list[int], saved: Checkpoint) -> None:
    """Remove the segments that lie before the start, once what their batches tell is durable elsewhere."""
    known = min(saved.start_offset, saved.next_offset)
    count = max(bisect_right(bases, known) - 1, 0)
    if not count:
        return
    try:
        if checkpoint_file.durable_offset(directory) < bases[count]:
            saved.save(files.disk, directory, durable=True)
    except OSError as error:
        logger.warning("%s: deleted segments stay until the next start: %s", directory, error)
        return
    for base in bases[:count]:
        _remove(files.disk, Segment(files, directory, base))
    del bases[:count]


def _recover(log: PartitionLog, segment: Segment, size: int, saved: Checkpoint, now_ms: int) -> None:
    vouched = saved.position if segment.base_offset == saved.segment else 0
    known = segment.open_at(size, vouched)
    if known == size == vouched:
        return
    if known != vouched:
        log.want_checkpoint()  # it brings the index along
    where = f"{log.topic}-{log.partition}"
    items = segment.recover(size, vouched, saved.next_offset, log.config.index_interval_bytes)
    for item in items:
        if isinstance(item, Found):
            if item.header.base_offset >= saved.next_offset:
                _learn(log, segment, item, now_ms)
        elif isinstance(item, Damage):
            logger.error(
                "%s is damaged on disk: offsets %d to %d (bytes %d to %d of %s) answer with an error, the rest serves",
                where, item.first_offset, item.next_offset - 1, item.position, item.end, segment.path.name,
                extra=_fields(log, "damaged", segment.path.name, item.end - item.position, item.first_offset),
            )  # fmt: skip
        else:
            logger.warning(
                "%s ended in an unfinished write: cut %d bytes, the log ends at offset %d",
                where, size - item.position, segment.next_offset,
                extra=_fields(log, "torn", segment.path.name, size - item.position, segment.next_offset),
            )  # fmt: skip
    log.files.close(segment)  # thousands of idle partitions hold no open files
    if segment.size != vouched:
        log.owe_sync(segment)


def _learn(log: PartitionLog, segment: Segment, item: Found, now_ms: int) -> None:
    header = item.header
    if not header.is_control:
        log.producers.replay(header, now_ms)
        return
    marker = decode_marker(log.disk.pread(segment.descriptor, header.size, item.position))
    if marker is not None:
        log.learn_marker(header, marker, header.base_offset, now_ms)


def _closed(segment: Segment, following: int, saved: Checkpoint) -> bool:
    """Close a recovered segment that another one follows; false where the log ends before that one begins."""
    if segment.next_offset < following and following > _given(saved):
        return False
    segment.next_offset = following
    segment.close_index()
    return True


def _set_aside(log: PartitionLog, segments: list[Segment]) -> None:
    # They were written while the end of the one before them was not yet durable, so nothing in them was
    # ever acknowledged. Should somebody else have shortened that one, they are still there.
    for segment in segments:
        log.disk.remove(segment.index_path)
        size = segment.path.stat().st_size
        if not size:
            log.disk.remove(segment.path)
            continue
        log.disk.rename(segment.path, segment.path.with_name(segment.path.name + _SET_ASIDE))
        logger.error(
            "%s-%d: %s begins where the log no longer reaches: it was never acknowledged and is set aside",
            log.topic, log.partition, segment.path.name,
            extra=_fields(log, "set aside", segment.path.name, size, segment.base_offset),
        )  # fmt: skip


def _remove(disk: Disk, segment: Segment) -> None:
    disk.remove(segment.index_path)
    disk.remove(segment.path)


def _given(saved: Checkpoint) -> int:
    """Return the offset below which all are given: never to another record, even if the bytes are gone."""
    return max(saved.start_offset, saved.next_offset)


def _take_bounds(log: PartitionLog, saved: Checkpoint) -> None:
    least = _given(saved)
    if not log.segments:
        log.start_offset = log.end_offset = log.high_watermark = least
        return
    last = log.segments[-1]
    if (
        last.next_offset < least
        or last.archive is not None
        or (last.size < saved.position and last.base_offset == saved.segment)
    ):
        if last.next_offset < least:
            logger.error(
                "%s-%d lost its end: offsets %d to %d were there and are not on disk",
                log.topic, log.partition, last.next_offset, least - 1,
                extra=_fields(log, "lost", last.path.name, 0, last.next_offset),
            )  # fmt: skip
            last.next_offset = least
        last.close_index()
        last = Segment(log.files, log.directory, last.next_offset)
        log.add(last)
        log.files.descriptor(last)
        log.owe_sync(last)
    log.end_offset = last.next_offset
    log.start_offset = max(saved.start_offset, log.segments[0].base_offset)
    log.show(last, last.size, log.end_offset)
    if last.size != saved.position or last.base_offset != saved.segment:
        log.recovered = True
        log.owe_names()
        log.want_checkpoint()


def _fields(log: PartitionLog, reason: str, file: str, size: int, offset: int) -> dict[str, object]:
    """Return what a log record about recovery carries besides its message."""
    return {
        "topic": log.topic,
        "partition": log.partition,
        "reason": reason,
        "file": file,
        "bytes": size,
        "offset": offset,
    }
