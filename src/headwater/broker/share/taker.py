"""Who takes records of a share partition: how many, and which of those that were delivered before.

A batch is delivered again as a whole, so that a member acknowledges it as a whole, until it was delivered half as
often as it may be. From then on it comes in smaller and smaller parts, and for the last time each record comes alone:
one that nobody can process is then given up by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.broker.share.in_flight import Batch, InFlight, RecordState, Run
from headwater.broker.share.settings import ShareConfig

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED


class Acquired(NamedTuple):
    """Records that a member was given, and how often they have been delivered now."""

    first: int
    last: int
    deliveries: int


class Wish(NamedTuple):
    """What a member asks for."""

    member: str
    max_records: int
    batch_size: int
    exact: bool = False
    """Whether `max_records` is kept to the record (KIP-1206), or up to the end of a batch."""


class Taker:
    """Takes records for one member, as many as it may have."""

    __slots__ = ("_deadline_ms", "_limit", "_patient", "acquired", "room", "wish")

    def __init__(self, wish: Wish, config: ShareConfig, deadline_ms: int, room: int) -> None:
        self.wish = wish
        self.room = room
        """How many more records it may have; whole batches may go past it."""
        self.acquired: list[Acquired] = []
        self._deadline_ms = deadline_ms
        self._limit = config.delivery_limit
        # From half of the deliveries on a batch is given out in parts, so that one bad record is found among good ones.
        self._patient = max(2, -(-config.delivery_limit // 2))

    @property
    def wants_more(self) -> bool:
        """Whether it may have another record."""
        return self.room > 0

    def new(self, batch: Batch, first: int, last: int) -> Run:
        """Return a run of records that are delivered for the first time."""
        run = Run(batch, first, last, AVAILABLE, 0)
        self._take(run)
        return run

    def take_again(self, flight: InFlight, batch: list[Run], base: int, last: int) -> bool:
        """Take what is available of the runs of one batch, and return whether to go on with the next."""
        if not self.wants_more:
            return False
        whole = batch[0].batch
        free = [run for run in batch if run.state is AVAILABLE]
        if not free:
            return True
        careful = max(run.deliveries for run in free) >= self._patient
        if careful and self.acquired:
            self.room = 0
            return False
        exact = self.wish.exact and len(whole) > self.room
        is_whole = (
            len(free) == 1 and len(free[0]) == len(whole) and base <= whole.first and whole.last <= last
        )
        if is_whole and not careful and not exact:
            self._take(free[0])
            return True
        took = self._take_part(flight, whole, free, base, last)
        if careful and took:
            self.room = 0
        return self.wants_more

    def _take_part(self, flight: InFlight, whole: Batch, free: list[Run], base: int, last: int) -> bool:
        room = self.room if self.wish.exact else len(whole)
        took = 0
        limited = False
        for run in free:
            first, end = max(run.first, base), min(run.last, last)
            if first > end:
                continue
            is_last_try = self._limit > 2 and run.deliveries == self._limit - 1
            if is_last_try:
                if took:
                    break
                room = 1
            elif run.deliveries >= self._patient and not limited:
                limited = True
                room = min(room, max(1, len(whole) >> (run.deliveries - self._patient + 1)))
            end = min(end, first + room - took - 1)
            for piece in flight.cut_out(first, end):
                self._take(piece)
            took += end - first + 1
            if took >= room:
                break
        return took > 0

    def _take(self, run: Run) -> None:
        run.state, run.owner, run.deadline_ms = ACQUIRED, self.wish.member, self._deadline_ms
        run.deliveries += 1
        self.room -= len(run)
        before = self.acquired[-1] if self.acquired else None
        same_batch = before is not None and before.first >= run.batch.first
        if before and same_batch and before.last + 1 == run.first and before.deliveries == run.deliveries:
            self.acquired[-1] = before._replace(last=run.last)
        else:
            self.acquired.append(Acquired(run.first, run.last, run.deliveries))


def runs_by_batch(runs: list[Run]) -> list[list[Run]]:
    """Return runs by the batch that they belong to."""
    grouped: list[list[Run]] = []
    for run in runs:
        if grouped and grouped[-1][0].batch is run.batch:
            grouped[-1].append(run)
        else:
            grouped.append([run])
    return grouped
