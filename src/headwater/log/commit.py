"""Group commit: one sync per partition for all that waits, however many requests that is.

Appends happen on the owner's thread; a round of syncs runs on worker threads while the next round
gathers. A round that starts takes every partition written to so far; whoever waits is called, on the
owner's thread, when the round that covers its appends has ended, well or badly.
Partitions of one round are synced side by side: on ext4 four files take half the time of one after the other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter

from headwater.core.histogram import Histogram
from headwater.log.partition import PartitionLog
from headwater.log.sync import SyncWork

logger = logging.getLogger(__name__)

Call = Callable[[], object]


class _Round:
    """A set of partitions being synced, and who waits for them."""

    __slots__ = ("began", "left", "lock", "waiters", "works")

    def __init__(self, works: list[SyncWork], waiters: list[Call]) -> None:
        self.works = works
        self.waiters = waiters
        self.left = len(works)
        self.began = perf_counter()
        self.lock = threading.Lock()

    def done(self) -> bool:
        """Count one work as done; true for the last."""
        with self.lock:
            self.left -= 1
            return self.left == 0


class GroupCommit:
    """Gathers appends into rounds of syncs.

    `soon` runs a call on the owner's thread after what is at hand; `soon_threadsafe` does so from
    another thread. An event loop's `call_soon` and `call_soon_threadsafe` are these.
    """

    def __init__(
        self, soon: Callable[[Call], object], soon_threadsafe: Callable[[Call], object], *, threads: int = 4
    ) -> None:
        self._soon = soon
        self._soon_threadsafe = soon_threadsafe
        self.round_seconds = Histogram()
        self._dirty: dict[PartitionLog, None] = {}
        self._waiters: list[Call] = []
        self._scheduled = False
        self._closed = False
        self._running: _Round | None = None
        self._jobs: SimpleQueue[tuple[_Round, SyncWork] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"sync-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, log: PartitionLog) -> None:
        """Have the next round sync a partition that was just written to."""
        self._dirty[log] = None
        self._schedule()

    def wait(self, waiter: Call) -> None:
        """Call `waiter` when all that was added before this moment is synced, or has failed to."""
        self._waiters.append(waiter)
        self._schedule()

    def close(self) -> None:
        """End the round under way and the worker threads; what was added since stays unsynced."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._closed = True
        if self._running is not None:
            round_, self._running = self._running, None
            self._end(round_)

    def _schedule(self) -> None:
        if not self._scheduled and self._running is None and not self._closed:
            self._scheduled = True
            self._soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        round_ = self._begin()
        if not round_.works:
            self._call(round_.waiters)

    def _begin(self) -> _Round:
        works = [log.begin_sync() for log in self._dirty if log.needs_sync]
        round_ = _Round(works, self._waiters)
        self._dirty, self._waiters = {}, []
        if works:
            self._running = round_
            for work in works:
                self._jobs.put((round_, work))
        return round_

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            round_, work = job
            work.run()
            if round_.done():
                self._soon_threadsafe(lambda finished=round_: self._finish(finished))  # type: ignore[misc]

    def _finish(self, round_: _Round) -> None:
        if round_ is not self._running:
            return  # `close` was faster
        self.round_seconds.observe(perf_counter() - round_.began)
        for work in round_.works:
            if work.error is not None:
                work.log.end_sync(work)  # a partition that fails takes no part in the next round
        # The disk works on the next round while this one's answers go out.
        self._running = None
        following = self._begin()
        self._end(round_)
        if not following.works:
            self._call(following.waiters)

    def _end(self, round_: _Round) -> None:
        for work in round_.works:
            work.log.end_sync(work)
        self._call(round_.waiters)

    @staticmethod
    def _call(waiters: list[Call]) -> None:
        for waiter in waiters:
            try:
                waiter()
            except Exception:  # one that fails must not keep the others waiting
                logger.exception("an answer to a finished sync failed")
