"""Group commit: one sync for all that waits, however many requests that is.

Appends happen on the owner's thread. A round that starts takes every partition written to so far; whoever waits is
called, on the owner's thread, when the round that covers its appends has ended, well or badly.

There are two kinds of rounds. The first writes what the partitions have got to the journal and syncs that
(`headwater.log.journal`). It takes about as long as handing it to another thread and back would, so it is done where it
began, on the owner's thread, unless the disk has just been slow. The other kind syncs the partitions themselves: those
that the journal cannot take, or all of them where there is none. That is done on worker threads while the next round
gathers, partitions side by side: on ext4 four files take half the time of one after the other.

Behind the rounds, partitions that have filled a half of the journal are synced one by one, and it can be used again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter

from headwater.core.histogram import Histogram
from headwater.log.journal import Journal, JournalWork
from headwater.log.partition import PartitionLog
from headwater.log.sync import SyncWork

logger = logging.getLogger(__name__)

Call = Callable[[], object]

JOURNAL_AFTER = 100
"""How many rounds there are before the journal is made: a broker that is not used much does without."""
_SLOW_SECONDS = 0.05
_AWAY_SECONDS = 1.0
"""For how long the owner's thread does not wait for a disk that was slow."""


class _Round:
    """A set of works, and who waits for them."""

    __slots__ = ("began", "finish", "left", "lock", "waiters", "works")

    def __init__(
        self, works: Sequence[SyncWork | JournalWork], waiters: list[Call], finish: Callable[[_Round], None]
    ) -> None:
        self.works = works
        self.waiters = waiters
        self.finish = finish
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
        self,
        soon: Callable[[Call], object],
        soon_threadsafe: Callable[[Call], object],
        *,
        threads: int = 4,
        journal: Journal | None = None,
    ) -> None:
        self._soon = soon
        self._soon_threadsafe = soon_threadsafe
        self.round_seconds = Histogram()
        self._dirty: dict[PartitionLog, None] = {}
        self._waiters: list[Call] = []
        self._after: dict[Call, None] = {}
        self._scheduled = False
        self._closed = False
        self._running: _Round | None = None
        self._journal = journal
        self._rounds = 0
        self._away_until = 0.0
        self._to_settle: deque[PartitionLog] = deque()
        self._settling: _Round | None = None
        self._jobs: SimpleQueue[tuple[_Round, SyncWork | JournalWork] | Call | None] = SimpleQueue()
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

    def after_answers(self, call: Call) -> None:
        """Have something called once after all that wait for the round under way, however many of them ask for it."""
        self._after[call] = None

    def close(self) -> None:
        """End the round under way and the worker threads; what was added since stays unsynced."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._closed = True
        if self._settling is not None:
            self._end(self._settling)
        if self._running is not None:
            for work in self._running.works:
                if isinstance(work, JournalWork):
                    work.sync_instead()
            self._end(self._running)
        self._settling = self._running = None

    def _schedule(self) -> None:
        if not self._scheduled and self._running is None and not self._closed:
            self._scheduled = True
            self._soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if not self._closed and self._running is None:
            self._begin(self._gather())

    def _gather(self) -> _Round:
        dirty, waiters = self._dirty, self._waiters
        self._dirty, self._waiters = {}, []
        work = None if self._journal is None else self._journal.begin(dirty)
        if work is None:
            return _Round([each for log in dirty for each in log.works()], waiters, self._finish)
        return _Round([work] if work.places else [], waiters, self._finish)

    def _begin(self, round_: _Round) -> None:
        if not round_.works:
            self._call(round_.waiters)
            return
        self._running = round_
        if self._waits_here(round_):
            round_.works[0].run()
            self._finish(round_)
            return
        for work in round_.works:
            self._jobs.put((round_, work))
        self._make_journal()

    def _waits_here(self, round_: _Round) -> bool:
        return isinstance(round_.works[0], JournalWork) and round_.began > self._away_until

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not isinstance(job, tuple):
                job()
                continue
            round_, work = job
            work.run()
            if round_.done():
                self._soon_threadsafe(lambda finished=round_: finished.finish(finished))  # type: ignore[misc]

    def _finish(self, round_: _Round) -> None:
        if round_ is not self._running:
            return  # `close` was faster
        now = perf_counter()
        self.round_seconds.observe(now - round_.began)
        if now - round_.began > _SLOW_SECONDS:
            self._away_until = now + _AWAY_SECONDS
        self._running = None
        for work in round_.works:
            if work.error is not None:
                work.end()  # a partition that fails takes no part in the next round
                if isinstance(work, JournalWork):
                    self._sync_instead(work, round_)
                    return
        following = self._gather()
        if following.works and not self._waits_here(following):
            # The disk works on the next round while this one's answers go out.
            self._begin(following)
            self._end(round_)
        else:
            self._end(round_)
            self._begin(following)

    def _end(self, round_: _Round) -> None:
        for work in round_.works:
            work.end()
        self._call(round_.waiters)
        self._settle()

    def _call(self, waiters: list[Call]) -> None:
        for waiter in waiters:
            self._answer(waiter)
        after, self._after = self._after, {}
        for call in after:
            self._answer(call)

    @staticmethod
    def _answer(call: Call) -> None:
        try:
            call()
        except Exception:  # one that fails must not keep the others waiting
            logger.exception("an answer to a finished sync failed")

    # -- the journal -----------------------------------------------------------------------------

    def _make_journal(self) -> None:
        self._rounds += 1
        if self._journal is not None and self._rounds == JOURNAL_AFTER:
            self._jobs.put(self._prepare)

    def _prepare(self) -> None:
        assert self._journal is not None
        try:
            self._journal.prepare()
        except OSError as error:
            logger.warning("there is no journal, so each partition is synced by itself: %s", error)
        else:
            self._soon_threadsafe(self._journal.activate)

    def _sync_instead(self, work: JournalWork, round_: _Round) -> None:
        """Sync the partitions whose bytes the journal did not take."""
        for place in work.places:
            self._dirty[place.log] = None
        self._waiters = round_.waiters + self._waiters
        self._begin(self._gather())

    def _settle(self) -> None:
        """Sync a partition of which the journal has much; one at a time, since nobody waits for it."""
        if self._journal is not None:
            self._to_settle += self._journal.take_full()
        while self._to_settle and self._settling is None and not self._closed:
            log = self._to_settle.popleft()
            if log.needs_sync:
                self._settling = _Round([log.begin_sync()], [], self._settled)
                self._jobs.put((self._settling, self._settling.works[0]))

    def _settled(self, round_: _Round) -> None:
        if round_ is self._settling:
            self._settling = None
            self._end(round_)
