"""Group commit: one sync per partition for all that waits, however many requests that is.

Appends happen on the owner's thread; a round of syncs runs on worker threads while the next round
gathers. A round that starts takes every partition written to so far; whoever waits is called, on the
owner's thread, when the round that covers its appends has ended, well or badly.
Partitions of one round are synced side by side: on ext4 four files take half the time of one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from headwater.log.partition import PartitionLog, SyncWork

Call = Callable[[], None]


class _Round:
    """A set of partitions being synced, and who waits for them."""

    __slots__ = ("left", "lock", "waiters", "works")

    def __init__(self, works: list[SyncWork], waiters: list[Call]) -> None:
        self.works = works
        self.waiters = waiters
        self.left = len(works)
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
        self._dirty: dict[PartitionLog, None] = {}
        self._waiters: list[Call] = []
        self._scheduled = False
        self._running = False
        self._jobs: SimpleQueue[tuple[_Round, SyncWork] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"sync-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, log: PartitionLog) -> None:
        """Have the next round sync a partition that was just written to."""
        self._dirty[log] = None
        if not self._scheduled and not self._running:
            self._scheduled = True
            self._soon(self._start)

    def wait(self, waiter: Call) -> None:
        """Call `waiter` when all that was added before this moment is synced, or has failed to."""
        self._waiters.append(waiter)
        if not self._scheduled and not self._running:
            self._scheduled = True
            self._soon(self._start)

    def close(self) -> None:
        """End the worker threads; what was not synced stays so."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        self._scheduled = False
        if self._running:
            return
        works = [log.begin_sync() for log in self._dirty if log.needs_sync]
        round_ = _Round(works, self._waiters)
        self._dirty, self._waiters = {}, []
        if not works:
            self._call(round_.waiters)
            return
        self._running = True
        for work in works:
            self._jobs.put((round_, work))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            round_, work = job
            work.run()
            if round_.done():
                self._soon_threadsafe(lambda finished=round_: self._finish(finished))  # type: ignore[misc]

    def _finish(self, round_: _Round) -> None:
        self._running = False
        if self._dirty or self._waiters:
            self._start()  # the disk works on the next round while this one's answers go out
        for work in round_.works:
            work.log.end_sync(work)
        self._call(round_.waiters)

    @staticmethod
    def _call(waiters: list[Call]) -> None:
        for waiter in waiters:
            waiter()
