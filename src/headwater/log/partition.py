"""The log of one partition: segments in order of offset, of which the last one grows.

`GrowingLog` is its writing half; here it is read, looked up by time, shortened from its start, and given
cleaned segments for old ones. All methods belong to one thread, except that `SyncWork.run` may run in
another.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headwater.core.errors import ApiError, ErrorCode
from headwater.log import archive as archive_file
from headwater.log import checkpoint as checkpoint_file
from headwater.log.checkpoint import Checkpoint
from headwater.log.errors import DamagedRange, OffsetOutOfRange, StorageFailed
from headwater.log.growing import GrowingLog
from headwater.log.segment import Segment
from headwater.log.swap import Swap, fresh_segments
from headwater.log.transactions import Aborted
from headwater.record.batch import NO_TIMESTAMP, batches
from headwater.record.records import Record, decode_batch

logger = logging.getLogger(__name__)

DROPPED = ".deleted"
"""What the names of files end with that are about to be removed."""


class PartitionLog(GrowingLog):
    """The log of one partition."""

    __slots__ = ()

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

    def offset_for_time(self, timestamp: int, *, probe: bool = False) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first visible record at or after `timestamp`.

        When probing, `NotCached` is raised rather than waiting for the disk.
        """
        try:
            for segment, end in self._readable():
                if segment.max_timestamp < timestamp:
                    continue
                for position, base_offset in segment.since(timestamp, end, probe=probe):
                    for record in decode_batch(segment.read(position, 1, end, base_offset)):
                        if record.timestamp >= timestamp and record.offset >= self.start_offset:
                            return record.offset, record.timestamp
        except OSError as error:
            raise self._read_failed(error) from error
        return None

    def max_timestamp(self, *, probe: bool = False) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the visible record with the largest timestamp, the first of equals.

        When probing, `NotCached` is raised rather than waiting for the disk.
        """
        best: Record | None = None
        try:
            for segment, end in self._readable():
                if best is not None and segment.max_timestamp <= best.timestamp:
                    continue
                for position, base_offset in segment.latest(self.start_offset, end, probe=probe):
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
        far: list[Path] = []
        while len(self.segments) > 1 and self.segments[0].next_offset <= self.start_offset:
            segment = self.segments.pop(0)
            self._bases.pop(0)
            if segment in self._unsynced:
                self._unsynced.remove(segment)
                if self.synced:
                    self.files.unpin(segment)
            self.files.close(segment)
            paths.append(segment.index_path)
            (paths if segment.archive is None else far).append(segment.path)
        self._remove([path for path in paths if path.exists()])
        if far:
            # Not on this thread, where there is another: the archive may be slow, or away.
            (self.on_drop or self._remove)(far)

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

    # -- the archive -----------------------------------------------------------------------------

    @property
    def archived(self) -> list[Segment]:
        """The segments that are in the archive: a beginning of the log."""
        return [segment for segment in self.segments if segment.archive is not None]

    @property
    def local_start_offset(self) -> int:
        """The first offset that is not in the archive."""
        first = next((segment for segment in self.segments if segment.archive is None), None)
        return self.start_offset if first is None else max(self.start_offset, first.base_offset)

    def local_bytes(self) -> int:
        """Return the bytes of the segments that are not in the archive."""
        return sum(segment.size for segment in self.segments if segment.archive is None)

    def may_move(self, segment: Segment) -> bool:
        """Whether a segment may go to the archive: nothing will change it, and no transaction in it is open."""
        return self.is_settled(segment) and segment.next_offset <= self.last_stable_offset

    def moved(self, segment: Segment) -> None:
        """Have the durable copy in the archive take the place of the oldest segment that is not there yet."""
        assert self.archive is not None, "the copy is there"
        i = self.segments.index(segment)
        fresh = Segment(self.files, self.directory, segment.base_offset, self.archive)
        segment.close_index()
        try:
            self.rest_on(segment.next_offset, ())
            entries = [archive_file.entry(each) for each in self.segments[: i + 1]]
            archive_file.save(self.disk, self.directory, entries)
        except OSError as error:
            raise self._write_failed(error) from error
        fresh.open_archived(segment.coverage)
        self.segments[i] = fresh
        if self._visible is segment:
            self._visible = fresh
        self.files.close(segment)
        self._remove([segment.path])

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
            # Of one that ended later, recovery would find the marker alone, and take its records for committed.
            aborted = [list(ended) for ended in self.transactions.aborted if ended.first_offset < offset]
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
