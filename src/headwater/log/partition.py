"""The log of one partition: segments in order of offset, of which the last one grows.

    start_offset ........ high_watermark ........ end_offset
    |   readers may see   |  written, not synced  |  next append

Offsets are given on append and never change, go back, or come again. The high watermark follows what is
known to be on stable storage, so a reader never sees a record that a power loss could take back and
replace by another one at the same offset; with durability left to the operating system it follows
the end. All methods belong to one thread, except that `SyncWork.run` may run in another.

After a failed sync nobody knows which bytes are on disk (the kernel may drop them and report success
the next time), so the partition stops acknowledging, says so, and never tries again in this process.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from headwater.core.errors import ApiError, ErrorCode
from headwater.log.checkpoint import Checkpoint
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.errors import DamagedRange, OffsetOutOfRange, StorageFailed, StorageFull
from headwater.log.producers import Producers
from headwater.log.segment import OpenFiles, Segment
from headwater.record.batch import NO_TIMESTAMP, Header, place, read_header, stamp
from headwater.record.records import decode_batch

logger = logging.getLogger(__name__)

LEADER_EPOCH = 0
CHECKPOINT_BYTES = 64 * 1024 * 1024
"""How much may be appended between two checkpoints: the most that recovery reads again."""
_MAX_SPAN = 2**31 - 1


class SyncWork:
    """What it takes to make a partition durable up to the moment of `begin_sync`."""

    __slots__ = ("directories", "disk", "error", "files", "log", "offset", "position", "segment", "segments")

    def __init__(self, log: PartitionLog, segments: list[Segment], directories: list[Path]) -> None:
        self.log = log
        self.disk = log.disk
        self.segments = segments
        self.files = [segment.descriptor for segment in segments]
        self.directories = directories
        self.segment = segments[-1]
        self.position = self.segment.size
        self.offset = log.end_offset
        self.error: OSError | None = None

    def run(self) -> None:
        """Sync the files, then the directories that name new ones; any thread may do this."""
        try:
            for fd in self.files:
                self.disk.sync(fd)
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except OSError as error:
            self.error = error


class PartitionLog:
    """The log of one partition."""

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
        self.producers = Producers()
        self.error: str | None = None
        self.recovered = False
        """Whether opening had to read batches that no checkpoint vouched for."""
        self.on_advance: dict[object, Callable[[], None]] = {}
        """Called, by whoever waits, when the high watermark moves or the log fails or goes away."""
        self._bases: list[int] = []
        self._visible: Segment | None = None
        self._visible_end = 0
        self._unsynced: list[Segment] = []
        self._new_directories: list[Path] = []
        self._since_checkpoint = 0

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} {self.start_offset}..{self.end_offset}>"

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which no transaction is open."""
        return self.high_watermark

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
        if idempotent:
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
        if idempotent:
            self.producers.update(header, base_offset, header.max_timestamp, now_ms)
        self._since_checkpoint += size
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)
            segment.pins += 1
        if not self.synced:
            self.show(segment, segment.size, self.end_offset)
        return base_offset

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
        if not self.directory.exists():
            self._make_directory()
        elif self.directory not in self._new_directories:
            self._new_directories.append(self.directory)
        segment = Segment(self.files, self.directory, self.end_offset)
        if self.segments:
            # The one that closes is complete: recovery need not read it again.
            self._since_checkpoint = CHECKPOINT_BYTES
        self.add(segment)
        return segment

    def _make_directory(self) -> None:
        missing = []
        path = self.directory
        while not path.exists():
            missing.append(path)
            path = path.parent
        self.directory.mkdir(parents=True, exist_ok=True)
        # Each new name is durable once the directory that holds it is synced.
        self._new_directories.extend([self.directory, *(made.parent for made in missing)])

    def add(self, segment: Segment) -> None:
        """Put a segment after all others."""
        self.segments.append(segment)
        self._bases.append(segment.base_offset)

    def want_checkpoint(self) -> None:
        """Have the next sync, or the close, save a checkpoint."""
        self._since_checkpoint = CHECKPOINT_BYTES

    def _write_failed(self, error: OSError) -> StorageFailed | StorageFull:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(
                f"no space left for {self.topic}-{self.partition}: free some disk space, then retry"
            )
        self._fail(f"writing to {self.topic}-{self.partition} failed: {error}")
        return StorageFailed(self.error)

    def _fail(self, reason: str) -> None:
        self.error = f"{reason}; the partition acknowledges nothing until the broker is restarted"
        logger.error("%s", self.error)

    # -- syncing ---------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        """Whether anything was written since the last sync began."""
        return bool(self._unsynced)

    def begin_sync(self) -> SyncWork:
        """Return the work that makes all that was appended so far durable."""
        work = SyncWork(self, self._unsynced, self._new_directories)
        self._unsynced, self._new_directories = [], []
        return work

    def end_sync(self, work: SyncWork) -> None:
        """Take note of what `work` achieved: the high watermark moves, or the partition fails."""
        for segment in work.segments:
            segment.pins -= 1
        if work.error is not None:
            if self.error is None:
                self._fail(f"syncing {self.topic}-{self.partition} failed: {work.error}")
            self._wake()
            return
        if self.error is None and work.offset > self.high_watermark:
            self.show(work.segment, work.position, work.offset)
        if self._since_checkpoint >= CHECKPOINT_BYTES and not self._unsynced:
            self.checkpoint(durable=False)

    def sync(self) -> None:
        """Make all that was appended durable, here and now."""
        if self._unsynced:
            work = self.begin_sync()
            work.run()
            self.end_sync(work)

    def show(self, segment: Segment, position: int, offset: int) -> None:
        """Let readers see the log up to a place."""
        self._visible, self._visible_end = segment, position
        self.high_watermark = offset
        if self.on_advance:
            self._wake()

    def _wake(self) -> None:
        for wake in list(self.on_advance.values()):
            wake()

    def checkpoint(self, *, durable: bool) -> None:
        """Save what recovery may take as known; everything up to here must be on stable storage."""
        if not self.segments:
            return
        for segment in self.segments[:-1]:
            if not segment.index_path.exists():
                segment.save_index()
                segment.forget_index()
        last = self.segments[-1]
        last.save_index()
        Checkpoint(
            self.start_offset, last.base_offset, last.size, last.next_offset, self.producers.to_json()
        ).save(self.disk, self.directory, durable=durable)
        self._since_checkpoint = 0

    def close(self) -> None:
        """Sync, save the checkpoint, and close the files."""
        if self._unsynced:
            self.sync()
            self._since_checkpoint = max(self._since_checkpoint, 1)
        if self.error is None and self._since_checkpoint and self.segments:
            self.checkpoint(durable=False)
        for segment in self.segments:
            self.files.close(segment)
        self._wake()

    def abandon(self) -> None:
        """Close the files of a log that is being deleted, and let whoever waits look again."""
        self.error = f"{self.topic}-{self.partition} was deleted"
        for segment in self.segments:
            if not segment.pins:
                self.files.close(segment)
        self._wake()

    # -- reading ---------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> bytes | memoryview:
        """Return batches from the one that holds `offset` on: about `max_bytes`, at least one batch.

        Empty at the high watermark. Raises `OffsetOutOfRange` and `DamagedRange`.
        """
        if not self.start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic}-{self.partition} is outside {self.start_offset} to "
                f"{self.high_watermark}"
            )
        if offset == self.high_watermark:
            return b""
        i = bisect_right(self._bases, offset) - 1 if len(self._bases) > 1 else 0
        try:
            while True:
                segment = self.segments[i]
                end = self._visible_end if segment is self._visible else segment.size
                position = segment.locate(offset, end)
                if position < end:
                    return segment.read(position, max_bytes, end)
                # A gap at the end of a segment: the record, were it there, is in the next one.
                if segment is self._visible:
                    return b""
                i += 1
        except DamagedRange as error:
            logger.error("%s-%d offset %d: %s", self.topic, self.partition, offset, error)
            raise

    def backlog(self, offset: int) -> int:
        """Return about how many bytes lie between `offset` and the high watermark."""
        if offset >= self.high_watermark or self._visible is None:
            return 0
        i = bisect_right(self._bases, offset) - 1
        segment = self.segments[max(i, 0)]
        position = segment.index.floor(offset - segment.base_offset)[1]
        if segment is self._visible:
            return self._visible_end - position
        return segment.size - position + self._visible_end

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first visible record at or after `timestamp`."""
        for segment in self.segments:
            if segment.max_timestamp < timestamp or segment.next_offset <= self.start_offset:
                continue
            end = self._visible_end if segment is self._visible else segment.size
            position = segment.locate_time(timestamp, end)
            while position < end:
                data = segment.read(position, 1, end)
                for record in decode_batch(data):
                    if record.timestamp >= timestamp and record.offset >= self.start_offset:
                        return record.offset, record.timestamp
                position += read_header(data).size
            if segment is self._visible:
                break
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the visible record with the largest timestamp, the first of equals."""
        best: Segment | None = None
        for segment in self.segments:
            if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
                best = segment
            if segment is self._visible:
                break
        if best is None or best.max_timestamp == NO_TIMESTAMP:
            return None
        end = self._visible_end if best is self._visible else best.size
        if best.max_position >= end:
            return None
        data = best.read(best.max_position, 1, end)
        record = max(decode_batch(data), key=lambda r: (r.timestamp, -r.offset))
        return record.offset, record.timestamp

    # -- deleting --------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """Delete the records before `offset` (-1: before the high watermark); return the new start."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} of {self.topic}-{self.partition} is past the high watermark {self.high_watermark}",
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.sync()
            self.checkpoint(durable=True)
            self._drop_segments()
        return self.start_offset

    def _drop_segments(self) -> None:
        while len(self.segments) > 1 and self.segments[0].next_offset <= self.start_offset:
            segment = self.segments.pop(0)
            self._bases.pop(0)
            self.files.close(segment)
            self.disk.remove(segment.index_path)
            self.disk.remove(segment.path)
