"""Reads of what is not in the page cache, away from the thread that serves everybody.

A consumer that replays old segments has to wait for the disk; nobody else has to. Reading is asked to tell
(`probe`) rather than to wait: where the first or the last page that it needs is not in memory, it raises
`NotCached`, and a worker reads the range, and some beyond it for what this consumer asks for next. The
bytes go nowhere: they are in the page cache then, and the read is done again by its own thread.

What was appended within the last `HOT_BYTES` is taken to be in memory, so a consumer at the tail pays
nothing for this. A file system that cannot tell is read as if it had said yes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.log.segment import OpenFiles, Segment

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


class ColdReader:
    """The workers, and the files that they keep open meanwhile."""

    def __init__(self, files: OpenFiles, soon_threadsafe: Callable[[Call], object]) -> None:
        self._files = files
        self._soon_threadsafe = soon_threadsafe
        self._workers = ThreadPoolExecutor(_THREADS, thread_name_prefix="cold")
        self.reads = 0
        """How many times the disk was waited for."""

    def read(self, missing: Sequence[NotCached], done: Call) -> None:
        """Bring ranges into the page cache, and call `done` on the owner's thread when they are there."""
        self.reads += 1
        jobs = []
        for range_ in missing:
            descriptor = self._files.descriptor(range_.segment)
            range_.segment.pins += 1
            jobs.append((range_, descriptor))

        def finish() -> None:
            self._load_indexes(jobs)
            done()

        self._workers.submit(self._work, jobs, finish)

    def close(self) -> None:
        """Wait for what is being read, and forget the rest."""
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _work(self, jobs: list[tuple[NotCached, int]], done: Call) -> None:
        disk = self._files.disk
        try:
            for range_, descriptor in jobs:
                disk.warm(range_.segment.index_path, descriptor, range_.position, range_.size)
        finally:
            self._soon_threadsafe(done)
        try:
            for range_, descriptor in jobs:
                start = range_.position + range_.size
                disk.warm(None, descriptor, start, min(_AHEAD, range_.end - start))
        finally:
            self._soon_threadsafe(lambda: self._let_go(jobs))

    @staticmethod
    def _load_indexes(jobs: list[tuple[NotCached, int]]) -> None:
        for range_, _ in jobs:
            try:
                if not range_.segment.retired:
                    len(range_.segment.index)
            except OSError:
                continue  # the read that follows meets it too, and answers with it

    def _let_go(self, jobs: list[tuple[NotCached, int]]) -> None:
        for range_, _ in jobs:
            self._files.unpin(range_.segment)
