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
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headwater.core.errors import ApiError, ErrorCode
from headwater.log import checkpoint as checkpoint_file
from headwater.log.checkpoint import Checkpoint
from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.errors import DamagedRange, OffsetOutOfRange, StorageFailed, StorageFull
from headwater.log.index import Coverage
from headwater.log.producers import Producers
from headwater.log.segment import OpenFiles, Segment
from headwater.log.swap import Swap, fresh_segments
from headwater.log.sync import SyncWork
from headwater.log.transactions import Aborted, Marker, Transactions, encode_marker
from headwater.record.batch import NO_TIMESTAMP, Header, batches, place, read_header, stamp
from headwater.record.records import Record, decode_batch

logger = logging.getLogger(__name__)

LEADER_EPOCH = 0
CHECKPOINT_BYTES = 64 * 1024 * 1024
"""How much may be appended between two checkpoints: the most that recovery reads again."""
DROPPED = ".deleted"
"""What the names of files end with that are about to be removed."""
_MAX_SPAN = 2**31 - 1
_PASSING = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the disk quota is used up",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "no memory left",
}
"""Failed writes that leave the file as it was, and may succeed later."""


class PartitionLog:
    """The log of one partition."""

    __slots__ = (
        "_bases",
        "_closed",
        "_flights",
        "_owed_names",
        "_reported",
        "_since_checkpoint",
        "_unsynced",
        "_visible",
        "_visible_end",
        "config",
        "directory",
        "disk",
        "end_offset",
        "error",
        "files",
        "high_watermark",
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
        self.producers = Producers()
        self.transactions = Transactions()
        self.error: str | None = None
        self.recovered = False
        """Whether opening had to read batches that no checkpoint vouched for."""
        self.on_advance: dict[object, Callable[[], None]] = {}
        """Called, by whoever waits, when the high watermark moves or the log fails or goes away."""
        self.on_drop: Callable[[list[Path]], object] | None = None
        """Called with the files of deleted segments, to remove them; without it that is done at once."""
        self.on_roll: Callable[[PartitionLog], object] | None = None
        """Called when a segment is full and another one begins."""
        self._bases: list[int] = []
        self._visible: Segment | None = None
        self._visible_end = 0
        self._unsynced: list[Segment] = []
        self._owed_names = 0
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
            self._owed_names = 0

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

    def begin_sync(self) -> SyncWork:
        """Return the work that makes all that was appended so far durable."""
        if not self.synced:
            for segment in self._unsynced:
                segment.pins += 1
        work = SyncWork(self, self._unsynced, self._unsynced_directories())
        self._unsynced, self._owed_names = [], 0
        if self._since_checkpoint >= CHECKPOINT_BYTES:
            # Appends go on while the disk works: the checkpoint is of this moment, which the sync covers.
            work.checkpoint, work.coverage = self._state(), work.segment.coverage
            self._since_checkpoint = 0
        self._flights.append(work)
        return work

    def _unsynced_directories(self) -> list[Path]:
        return [self.directory, *self.directory.parents[:2]][: self._owed_names]

    def _sync_names(self) -> None:
        under_way = (directory for work in self._flights for directory in work.directories)
        for directory in (*self._unsynced_directories(), *under_way):
            self.disk.sync_directory(directory)
        self._owed_names = 0

    def end_sync(self, work: SyncWork) -> None:
        """Take note of what `work` achieved: the high watermark moves, or the partition fails.

        Works end in the order in which they began; a work that has ended already is left alone.
        """
        if work not in self._flights:
            return
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
        try:
            replace(checkpoint, start_offset=self.start_offset).save(self.disk, self.directory, durable=False)
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
        self._closed = True
        self._release()

    def _release(self) -> None:
        self._drop_unsynced()
        for segment in self.segments:
            self.files.close(segment)
        self._wake()

    # -- reading ---------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, before: int | None = None, *, probe: bool = False
    ) -> bytes | memoryview:
        """Return batches from the one that holds `offset` on: about `max_bytes`, at least one batch.

        Empty at the high watermark, or at the offset `before`, at which a batch begins and which ends
        what is read. Raises `OffsetOutOfRange` and `DamagedRange` and, when probing, `NotCached` rather
        than wait for the disk.
        """
        if not self.start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic}-{self.partition} is outside {self.start_offset} to "
                f"{self.high_watermark}"
            )
        if offset == self.high_watermark or (before is not None and offset >= before):
            return b""
        i = bisect_right(self._bases, offset) - 1 if len(self._bases) > 1 else 0
        segment = self.segments[i]
        end = self._visible_end if segment is self._visible else segment.size
        try:
            if probe:
                segment.probe(offset, max_bytes, end, grows=segment is self._visible)
            position, base_offset = segment.locate(offset, end)
            if before is not None and before < min(segment.next_offset, self.high_watermark):
                end = segment.locate(before, end)[0]
            return segment.read(position, max_bytes, end, base_offset)
        except DamagedRange as error:
            if str(error) != self._reported:  # a consumer asks again and again
                self._reported = str(error)
                logger.error(
                    "%s-%d offset %d: %s", self.topic, self.partition, offset, error,
                    extra=self._fields(error, offset=offset),
                )  # fmt: skip
            raise
        except OSError as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: OSError) -> StorageFailed:
        reason = f"reading {self.topic}-{self.partition} failed: {error}"
        if reason != self._reported:
            self._reported = reason
            logger.error("%s", reason, extra=self._fields(error))
        return StorageFailed(self.error or reason)

    def read_committed(
        self, offset: int, max_bytes: int, *, probe: bool = False
    ) -> tuple[bytes | memoryview, list[Aborted]]:
        """Return batches before the last stable offset, and the aborted transactions among them."""
        data = self.read(offset, max_bytes, self.last_stable_offset, probe=probe)
        if not self.transactions.aborted:
            return data, []
        stop = offset
        for _, header in batches(data):
            stop = header.last_offset + 1
        return data, self.transactions.within(offset, stop)

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
        try:
            for segment, end in self._readable():
                if segment.max_timestamp < timestamp:
                    continue
                for position, base_offset in segment.since(timestamp, end):
                    for record in decode_batch(segment.read(position, 1, end, base_offset)):
                        if record.timestamp >= timestamp and record.offset >= self.start_offset:
                            return record.offset, record.timestamp
        except OSError as error:
            raise self._read_failed(error) from error
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the visible record with the largest timestamp, the first of equals."""
        best: Record | None = None
        try:
            for segment, end in self._readable():
                if best is not None and segment.max_timestamp <= best.timestamp:
                    continue
                for position, base_offset in segment.latest(self.start_offset, end):
                    for record in decode_batch(segment.read(position, 1, end, base_offset)):
                        least = NO_TIMESTAMP if best is None else best.timestamp
                        if record.timestamp > least and record.offset >= self.start_offset:
                            best = record
        except OSError as error:
            raise self._read_failed(error) from error
        return None if best is None else (best.offset, best.timestamp)

    def _readable(self) -> Iterator[tuple[Segment, int]]:
        """Yield each segment that readers may see something of, and the position where that ends."""
        visible = self._visible
        if visible is None or self.start_offset >= self.high_watermark:
            return
        for segment in self.segments:
            if segment.next_offset <= self.start_offset:
                continue
            if segment is visible:
                yield segment, self._visible_end
            if segment.base_offset >= visible.base_offset:
                return
            yield segment, segment.size

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
            if self.error is not None:
                raise StorageFailed(self.error)
            try:
                self._sync_names()
                self._beginning_at(offset).save(self.disk, self.directory, durable=True)
            except OSError as error:
                raise self._write_failed(error) from error
            self.start_offset = offset
            self.transactions.forget(offset)
            self._drop_segments()
        return self.start_offset

    def _beginning_at(self, offset: int) -> Checkpoint:
        """Return the last checkpoint with another start, and with all that dropped segments have told."""
        known = checkpoint_file.load(self.directory) or Checkpoint(segment=-1)
        i = max(bisect_right(self._bases, offset) - 1, 0)
        first = self.segments[i].base_offset
        if known.next_offset >= first:
            return replace(known, start_offset=offset)
        aborted = [list(ended) for ended in self.transactions.aborted if ended.last_offset < first]
        return Checkpoint(offset, first, 0, first, self.producers.to_json(before=first), aborted)

    def _drop_segments(self) -> None:
        paths: list[Path] = []
        while len(self.segments) > 1 and self.segments[0].next_offset <= self.start_offset:
            segment = self.segments.pop(0)
            self._bases.pop(0)
            if segment in self._unsynced:
                self._unsynced.remove(segment)
                if self.synced:
                    self.files.unpin(segment)
            self.files.close(segment)
            paths += [segment.index_path, segment.path]
        self._remove([path for path in paths if path.exists()])

    def _remove(self, paths: list[Path]) -> None:
        try:
            if self.on_drop is None:
                for path in paths:
                    self.disk.remove(path)
            elif paths:
                # Removing a gigabyte takes a quarter of a second, which whoever takes care of it spends elsewhere.
                dropped = [path.with_name(path.name + DROPPED) for path in paths]
                for path, aside in zip(paths, dropped, strict=True):
                    self.disk.rename(path, aside)
                self.on_drop(dropped)
        except OSError as error:
            logger.warning("%s stays until the next start: %s", paths[0], error)

    # -- exchanging ------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the log was closed or deleted."""
        return self._closed

    def is_settled(self, segment: Segment) -> bool:
        """Whether a segment grows no more, is durable and visible, and no sync holds on to it."""
        return (
            segment is not self.segments[-1]
            and segment.next_offset <= self.high_watermark
            and segment not in self._unsynced
            and all(segment not in work.segments for work in self._flights)
        )

    def rest_on(self, offset: int, forgotten: Sequence[int]) -> None:
        """Save a durable checkpoint that leans on no segment before `offset`, which begins one.

        The aborted transactions whose markers are at the `forgotten` offsets have no records any more.
        """
        gone = set(forgotten)
        if gone:
            self.transactions.aborted = [e for e in self.transactions.aborted if e.last_offset not in gone]
        known = checkpoint_file.load(self.directory) or Checkpoint(segment=-1)
        if known.segment < offset:
            aborted = [list(ended) for ended in self.transactions.aborted if ended.last_offset < offset]
            known = Checkpoint(0, offset, 0, offset, self.producers.to_json(before=offset), aborted)
        aborted = [ended for ended in known.aborted if ended[2] not in gone]
        saved = replace(known, start_offset=self.start_offset, aborted=aborted)
        self._sync_names()
        saved.save(self.disk, self.directory, durable=True)

    def exchange(self, swap: Swap) -> None:
        """Put cleaned segments in the place of those they were made from; `swap` is a fact already."""
        try:
            swap.move(self.disk, self.directory)
        except OSError as error:
            self._fail(f"exchanging segments of {self.topic}-{self.partition} failed: {error}")
            raise StorageFailed(self.error) from error
        segments = fresh_segments(self.files, self.directory, swap)
        begin, end = bisect_left(self._bases, swap.old[0]), bisect_right(self._bases, swap.old[-1])
        replaced = self.segments[begin:end]
        self.segments[begin:end] = segments
        self._bases[begin:end] = [segment.base_offset for segment in segments]
        if self._visible in replaced:
            self._visible, self._visible_end = segments[-1], segments[-1].size
        for segment in replaced:
            self.files.close(segment)
        self._drop_segments()
