"""A log that grows: appends, syncs, checkpoints, and what becomes of them when the disk fails.

    start_offset ........ high_watermark ........ end_offset
    |   readers may see   |  written, not synced  |  next append

Offsets are given on append and never change, go back, or come again. The high watermark follows what is
known to be on stable storage, in the segments or in the journal, so a reader never sees a record that a
power loss could take back and replace by another one at the same offset; with durability left to the
operating system it follows the end.

After a failed sync nobody knows which bytes are on disk (the kernel may drop them and report success
the next time), so the partition stops acknowledging, says so, and never tries again in this process.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.core.errors import ApiError, ErrorCode
from headwater.log.checkpoint import Checkpoint
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.errors import StorageFailed, StorageFull
from headwater.log.index import Coverage
from headwater.log.open_files import OpenFiles
from headwater.log.producers import Producers
from headwater.log.segment import Segment
from headwater.log.sync import SyncWork
from headwater.log.transactions import Marker, Transactions, encode_marker
from headwater.record.batch import NO_TIMESTAMP, Header, place, read_header, stamp

logger = logging.getLogger(__name__)

LEADER_EPOCH = 0
CHECKPOINT_BYTES = 64 * 1024 * 1024
"""How much may be appended between two checkpoints: the most that recovery reads again."""
_MAX_SPAN = 2**31 - 1
_PASSING = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the disk quota is used up",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "no memory left",
}
"""Failed writes that leave the file as it was, and may succeed later."""


class GrowingLog:
    """The writing half of a partition's log."""

    __slots__ = (
        "_bases",
        "_closed",
        "_flights",
        "_has_synced",
        "_owed_names",
        "_reported",
        "_since_checkpoint",
        "_unsynced",
        "_visible",
        "_visible_end",
        "abandoned",
        "archive",
        "config",
        "directory",
        "disk",
        "end_offset",
        "error",
        "files",
        "high_watermark",
        "journal_key",
        "leader_epoch",
        "on_advance",
        "on_drop",
        "on_roll",
        "partition",
        "producers",
        "recovered",
        "segments",
        "start_offset",
        "synced",
        "synced_to",
        "topic",
        "transactions",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        synced: bool,
    ) -> None:
        self.files = files
        self.disk: Disk = files.disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.synced = synced
        self.leader_epoch = LEADER_EPOCH
        self.segments: list[Segment] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.synced_to = 0
        """The offset up to which the segments were synced by this process; the high watermark may be ahead of it."""
        self.journal_key: bytes | None = None
        self.archive: Path | None = None  # the directory on cheaper storage that old segments may move to
        self.producers = Producers()
        self.transactions = Transactions()
        self.error: str | None = None
        self.abandoned = False
        """Whether the log is being deleted."""
        self.recovered = False
        """Whether opening had to read batches that no checkpoint vouched for."""
        self.on_advance: dict[object, Callable[[], None]] = {}
        """Called, by whoever waits, when the high watermark moves or the log fails or goes away."""
        self.on_drop: Callable[[list[Path]], object] | None = None
        """Called with the files of deleted segments, to remove them; without it that is done at once."""
        self.on_roll: Callable[[Any], object] | None = None
        """Called when a segment is full and another one begins."""
        self._bases: list[int] = []
        self._visible: Segment | None = None
        self._visible_end = 0
        self._unsynced: list[Segment] = []
        self._owed_names = 0
        self._has_synced = False
        self._flights: list[SyncWork] = []
        self._since_checkpoint = 0
        self._closed = False
        self._reported: str | None = None

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} {self.start_offset}..{self.end_offset}>"

    @property
    def last_stable_offset(self) -> int:
        """The offset before which no transaction is open: what readers of committed records may see."""
        stable = self.high_watermark
        open_transactions = self.producers.open_transactions
        if open_transactions:
            stable = min(stable, min(open_transactions.values()))
        unsettled = self.transactions.first_unsettled()
        return stable if unsettled is None else min(stable, unsettled)

    def size_bytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    # -- writing ---------------------------------------------------------------------------------

    def append(self, batch: memoryview, header: Header, now_ms: int) -> int:
        """Append a verified batch, patched in place, and return its base offset.

        A batch of an idempotent producer that is here already is not appended again: its first
        offset is returned. Nothing is durable before the next sync.
        """
        if self.error is not None:
            raise StorageFailed(self.error)
        size = len(batch)
        config = self.config
        if size > config.max_message_bytes:
            raise ApiError(
                ErrorCode.message_too_large,
                f"a batch of {size} bytes exceeds max.message.bytes={config.max_message_bytes} of {self.topic}",
            )
        timestamp = header.max_timestamp
        if config.log_append_time:
            header = stamp(batch, 0, size, header, now_ms)
        elif timestamp != NO_TIMESTAMP and (
            timestamp - now_ms > config.timestamp_after_max_ms
            or now_ms - header.base_timestamp > config.timestamp_before_max_ms
        ):
            raise ApiError(
                ErrorCode.invalid_timestamp,
                f"timestamp {timestamp} is too far from the broker's time {now_ms} for topic {self.topic}",
            )
        idempotent = header.producer_id >= 0
        if idempotent and not header.is_control:
            repeated = self.producers.check(header)
            if repeated is not None:
                return repeated.base_offset
        base_offset = self.end_offset
        place(batch, 0, base_offset, LEADER_EPOCH)
        try:
            segment = self.segments[-1] if self.segments else None
            if segment is None or self._is_full(segment, size, header):
                segment = self._roll(size)
            segment.append(batch, header, base_offset, config.index_interval_bytes)
        except OSError as error:
            raise self._write_failed(error) from error
        self.end_offset = segment.next_offset
        if idempotent and not header.is_control:
            self.producers.update(header, base_offset, header.max_timestamp, now_ms)
        self._since_checkpoint += size
        if not self._unsynced or self._unsynced[-1] is not segment:
            self.owe_sync(segment)
        if not self.synced:
            self.show(segment, segment.size, self.end_offset)
        return base_offset

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> int:
        """Append the marker that ends a producer's transaction, and return its offset."""
        self.producers.check_marker(producer_id, producer_epoch)
        marker = Marker(commit, coordinator_epoch)
        batch = encode_marker(producer_id, producer_epoch, marker, now_ms)
        header = read_header(batch)
        offset = self.append(memoryview(batch), header, now_ms)
        self.learn_marker(header, marker, offset, now_ms)
        return offset

    def learn_marker(self, header: Header, marker: Marker, offset: int, now_ms: int) -> None:
        """Take note of a marker, be it just appended or found on disk."""
        first = self.producers.end(
            header.producer_id, header.producer_epoch, marker.coordinator_epoch, now_ms
        )
        if first is not None:
            self.transactions.end(header.producer_id, first, offset, commit=marker.commit)

    def _is_full(self, segment: Segment, size: int, header: Header) -> bool:
        config = self.config
        return (
            segment.size + size > config.segment_bytes
            or self.end_offset + header.last_offset_delta - segment.base_offset > _MAX_SPAN
            or (
                segment.first_timestamp != NO_TIMESTAMP
                and header.max_timestamp - segment.first_timestamp > config.segment_ms
            )
        )

    def _roll(self, size: int) -> Segment:
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.record_list_too_large,
                f"a batch of {size} bytes exceeds segment.bytes={self.config.segment_bytes} of {self.topic}",
            )
        if not self.segments:
            self._make_directory()
            self.owe_names()
        self._owed_names = max(self._owed_names, 1)
        segment = Segment(self.files, self.directory, self.end_offset)
        self.files.descriptor(segment)  # a file that cannot be made leaves the log as it was
        if self.segments:
            # The one that closes is complete: recovery need not read it again.
            self._since_checkpoint = CHECKPOINT_BYTES
        self.add(segment)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def roll(self) -> None:
        """Close the growing segment, so that what is appended next goes into a new file."""
        if self.segments and self.segments[-1].size:
            try:
                self.owe_sync(self._roll(0))
            except OSError as error:
                raise self._write_failed(error) from error

    def _make_directory(self) -> None:
        self.disk.make_directory(self.directory.parent)
        self.disk.make_directory(self.directory)

    def add(self, segment: Segment) -> None:
        """Put a segment after all others."""
        self.segments.append(segment)
        self._bases.append(segment.base_offset)

    def owe_sync(self, segment: Segment) -> None:
        """Have the next sync make a segment durable; where an acknowledgement waits, its file stays open."""
        self._unsynced.append(segment)
        if self.synced:
            segment.pins += 1

    def owe_names(self) -> None:
        """Have the next sync make the names durable that lead to the segments.

        Each is once the directory that holds it is synced. Whether an earlier process, or the sync of
        another partition of the topic, has done that for those already there, nobody knows.
        """
        self._owed_names = 3

    def settled(self) -> None:
        """Take note that all that recovery found is on stable storage."""
        if self.end_offset == self.high_watermark:
            self._drop_unsynced()
            self._owed_names, self._has_synced = 0, True

    def _drop_unsynced(self) -> None:
        if self.synced:
            for segment in self._unsynced:
                self.files.unpin(segment)
        self._unsynced = []

    def want_checkpoint(self) -> None:
        """Have the next sync, or the close, save a checkpoint."""
        self._since_checkpoint = CHECKPOINT_BYTES

    def _write_failed(self, error: OSError) -> StorageFailed | StorageFull:
        if error.errno in _PASSING:
            return StorageFull(
                f"{_PASSING[error.errno]} for {self.topic}-{self.partition}: make room, then retry"
            )
        self._fail(f"writing to {self.topic}-{self.partition} failed: {error}")
        return StorageFailed(self.error)

    def _fields(self, reason: object, **more: object) -> dict[str, object]:
        """Return what a log record about the partition carries besides its message."""
        return {"topic": self.topic, "partition": self.partition, "reason": str(reason), **more}

    def _fail(self, reason: str) -> None:
        self.error = f"{reason}; the partition acknowledges nothing until the broker is restarted"
        logger.error("%s", self.error, extra=self._fields(reason))

    # -- syncing ---------------------------------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        """Whether to sync soon: after each append where acknowledgements wait for it, else for a checkpoint."""
        return self.synced or self._since_checkpoint >= CHECKPOINT_BYTES

    @property
    def needs_sync(self) -> bool:
        """Whether there is anything that a sync could make durable."""
        return bool(self._unsynced) and self.error is None

    def works(self) -> list[SyncWork]:
        """Return the works that make all that was appended so far durable; one of them may be under way already."""
        under_way = self._flights if self.end_offset > self.high_watermark else []
        return [*under_way, self.begin_sync()] if self.needs_sync else list(under_way)

    def tail(self) -> tuple[Segment, int] | None:
        """Return the growing segment, and the position up to which the log is durable, if a journal can take the rest.

        It cannot as long as the segment's name, or the end of the one before it, is not durable.
        """
        if not self.synced or not self._has_synced or self._owed_names or self.error is not None:
            return None
        segment = self._visible
        if segment is None or segment is not self.segments[-1]:
            return None
        if any(work.directories for work in self._flights):
            return None
        return segment, self._visible_end

    @property
    def is_durable(self) -> bool:
        """Whether a log whose acknowledgements wait for the disk has nothing, not even a name, to make durable."""
        return self.synced and self.high_watermark == self.end_offset and not self._owed_names

    def begin_sync(self) -> SyncWork:
        """Return the work that makes all that was appended so far durable."""
        if not self.synced:
            for segment in self._unsynced:
                segment.pins += 1
        before = self._flights[-1] if self._flights else None
        work = SyncWork(self, self._unsynced, self._unsynced_directories(), before)
        self._unsynced, self._owed_names, self._has_synced = [], 0, True
        if self._since_checkpoint >= CHECKPOINT_BYTES:
            # Appends go on while the disk works: the checkpoint is of this moment, which the sync covers.
            work.checkpoint, work.coverage = self._state(), work.segment.coverage
            self._since_checkpoint = 0
        self._flights.append(work)
        return work

    def _unsynced_directories(self) -> list[Path]:
        # Recovery, ours or that of a process that was killed since, may have taken a segment away that began behind a
        # lost end. A power loss must not bring it back into the middle of what is acknowledged from now on.
        owed = max(self._owed_names, 0 if self._has_synced else 1)
        return [self.directory, *self.directory.parents[:2]][:owed]

    def _sync_names(self) -> None:
        under_way = (directory for work in self._flights for directory in work.directories)
        for directory in (*self._unsynced_directories(), *under_way):
            self.disk.sync_directory(directory)
        self._owed_names, self._has_synced = 0, True

    def end_sync(self, work: SyncWork) -> None:
        """Take note of what `work` achieved: the high watermark moves, or the partition fails.

        Works end in the order in which they began; a work that has ended already is left alone.
        """
        if work not in self._flights:
            return
        while self._flights[0] is not work:
            self.end_sync(self._flights[0])
        self._flights.remove(work)
        for segment in work.segments:
            self.files.unpin(segment)
        if work.error is not None:
            if self.error is None:
                self._fail(f"syncing {self.topic}-{self.partition} failed: {work.error}")
            self._wake()
            return
        if self.error is not None:
            return
        self.synced_to = work.offset
        if work.offset > self.high_watermark:
            self.show(work.segment, work.position, work.offset)
        if work.checkpoint is not None and work.coverage is not None:
            self._save(work.checkpoint, work.segment, work.coverage)

    def sync(self) -> None:
        """Make all that was appended durable, here and now."""
        for work in list(self._flights):
            work.run()
            self.end_sync(work)
        if self.needs_sync:
            work = self.begin_sync()
            work.run()
            self.end_sync(work)
        if self._owed_names and self.error is None:
            try:
                self._sync_names()
            except OSError as error:
                self._fail(f"syncing {self.topic}-{self.partition} failed: {error}")

    def show(self, segment: Segment, position: int, offset: int) -> None:
        """Let readers see the log up to a place."""
        self._visible, self._visible_end = segment, position
        self.high_watermark = offset
        self.transactions.settle(offset)
        if self.on_advance:
            self._wake()

    def _wake(self) -> None:
        for wake in list(self.on_advance.values()):
            try:
                wake()
            except Exception:  # whoever waits must not keep the log from going on
                logger.exception("waking a reader of %s-%d failed", self.topic, self.partition)

    def _state(self) -> Checkpoint:
        last = self.segments[-1]
        return Checkpoint(
            self.start_offset,
            last.base_offset,
            last.size,
            last.next_offset,
            self.producers.to_json(),
            [list(ended) for ended in self.transactions.aborted],
        )

    def _save(self, checkpoint: Checkpoint, segment: Segment, coverage: Coverage) -> None:
        """Save what recovery may take as known; all of it must be on stable storage."""
        for closed in self.segments:
            if closed.base_offset >= segment.base_offset:
                break
            closed.close_index()
        # It is of the moment in which its sync began: records may have been deleted and markers compacted since.
        markers = {ended.last_offset for ended in self.transactions.aborted}
        current = replace(
            checkpoint,
            start_offset=self.start_offset,
            aborted=[ended for ended in checkpoint.aborted if ended[2] in markers],
        )
        try:
            current.save(self.disk, self.directory, durable=False)
        except OSError as error:
            logger.warning(
                "no checkpoint of %s-%d: %s", self.topic, self.partition, error, extra=self._fields(error)
            )
            self._since_checkpoint = max(self._since_checkpoint, 1)
            return
        # The index comes second: one that covers more than the checkpoint would be of no use.
        segment.save_index(coverage)

    def close(self) -> None:
        """Sync, save the checkpoint, and close the files."""
        if self._closed:
            return
        self._closed = True
        if self.segments and self.error is None:
            unsaved = self._since_checkpoint > 0 or bool(self._unsynced) or self._owed_names > 0
            self.sync()
            if self.error is None and unsaved:
                self._save(self._state(), self.segments[-1], self.segments[-1].coverage)
        self._release()

    def abandon(self) -> None:
        """Close the files of a log that is being deleted, and let whoever waits look again."""
        self.error = f"{self.topic}-{self.partition} was deleted"
        self.abandoned = self._closed = True
        self._release()

    def _release(self) -> None:
        self._drop_unsynced()
        for segment in self.segments:
            self.files.close(segment)
        self._wake()
