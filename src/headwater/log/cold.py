"""Reads of what is not in the page cache, away from the thread that serves everybody.

A consumer that replays old segments has to wait for the disk; nobody else has to. Reading is asked to tell
(`probe`) rather than to wait: where the first or the last page that it needs is not in memory, it raises
`NotCached`, and a worker reads the range, and some beyond it for what this consumer asks for next. The
bytes go nowhere: they are in the page cache then, and the read is done again by its own thread.

What was appended within the last `HOT_BYTES` is taken to be in memory, so a consumer at the tail pays
nothing for this. A file system that cannot tell is read as if it had said yes.

Segments in the archive have workers of their own, so that a slow archive holds up nobody who reads from the disk.
Their files are opened there as well, and what was read is taken to be in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.log.open_files import OpenFiles
    from headwater.log.segment import Segment

__all__ = ["HOT_BYTES", "ColdReader", "NotCached"]

HOT_BYTES: Final = 32 * 1024 * 1024
_AHEAD: Final = 4 * 1024 * 1024
_THREADS: Final = 4

Call = Callable[[], object]


class NotCached(Exception):
    """A read would wait for the disk; not an error, and never seen by clients."""

    def __init__(self, segment: Segment, position: int, size: int, end: int) -> None:
        super().__init__(segment, position, size)
        self.segment = segment
        self.position = position
        self.size = size
        self.end = end


@dataclass(slots=True)
class _Job:
    """A range to bring into the page cache."""

    range: NotCached
    descriptor: int | None
    """None as long as the file, one of the archive, is not open."""
    is_ours: bool = False
    """Whether the descriptor was opened for this job and given to nobody yet."""


class ColdReader:
    """The workers, and the files that they keep open meanwhile."""

    def __init__(self, files: OpenFiles, soon_threadsafe: Callable[[Call], object]) -> None:
        self._files = files
        self._soon_threadsafe = soon_threadsafe
        self._workers = ThreadPoolExecutor(_THREADS, thread_name_prefix="cold")
        self._archive_workers = ThreadPoolExecutor(_THREADS, thread_name_prefix="archive")
        self.reads = 0
        """How many times the disk was waited for."""

    def read(self, missing: Sequence[NotCached], done: Call) -> None:
        """Bring ranges into the page cache, and call `done` on the owner's thread when they are there."""
        self.reads += 1
        jobs = [self._job(range_) for range_ in missing]

        def finish() -> None:
            self._take_over(jobs)
            done()

        far = any(range_.segment.archive is not None for range_ in missing)
        (self._archive_workers if far else self._workers).submit(self._work, jobs, finish)

    def _job(self, range_: NotCached) -> _Job:
        segment = range_.segment
        is_near = segment.archive is None or self._files.is_open(segment)
        job = _Job(range_, self._files.descriptor(segment) if is_near else None)
        segment.pins += 1
        return job

    def close(self) -> None:
        """Wait for what is being read, and forget the rest."""
        for workers in (self._workers, self._archive_workers):
            workers.shutdown(wait=True, cancel_futures=True)

    def _work(self, jobs: list[_Job], done: Call) -> None:
        disk = self._files.disk
        try:
            for job in jobs:
                range_ = job.range
                if job.descriptor is None:
                    self._open(job)
                if job.descriptor is not None:
                    disk.warm(range_.segment.index_path, job.descriptor, range_.position, range_.size)
        finally:
            self._soon_threadsafe(done)
        try:
            for job in jobs:
                if job.descriptor is not None:
                    start = job.range.position + job.range.size
                    disk.warm(None, job.descriptor, start, min(_AHEAD, job.range.end - start))
        finally:
            self._soon_threadsafe(lambda: self._let_go(jobs))

    def _open(self, job: _Job) -> None:
        segment = job.range.segment
        try:
            job.descriptor = self._files.disk.open_existing(segment.path)
            job.is_ours = True
            segment.remake_index()
        except OSError:
            return  # the read that follows meets it too, and answers with it

    def _take_over(self, jobs: list[_Job]) -> None:
        for job in jobs:
            segment = job.range.segment
            if job.is_ours and job.descriptor is not None and not self._files.is_open(segment):
                self._files.adopt(segment, job.descriptor)
                job.is_ours = False
            if job.range.size and job.descriptor is not None:
                segment.warm = (job.range.position, job.range.position + job.range.size)
            try:
                if not segment.retired and (segment.archive is None or job.descriptor is not None):
                    len(segment.index)
            except OSError:
                continue  # the read that follows meets it too, and answers with it

    def _let_go(self, jobs: list[_Job]) -> None:
        for job in jobs:
            segment, range_ = job.range.segment, job.range
            if job.is_ours and job.descriptor is not None:
                self._files.disk.close(job.descriptor)
            if segment.warm == (range_.position, range_.position + range_.size):
                segment.warm = (range_.position, min(range_.position + range_.size + _AHEAD, range_.end))
            self._files.unpin(segment)
