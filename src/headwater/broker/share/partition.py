"""A share partition: which records of a partition a group has taken, accepted, given back.

    available ── acquire ──► acquired ── accept ──────────► acknowledged
        ▲                       │  └──── reject, gap ─────► archived
        └── release, time-out ──┘  (archived, at the delivery limit)

The records before the start offset are done. Those from there up to the end are in flight. What was
acknowledged, archived or given back is in the log: `acknowledge`, `release` and `expire` return what will be
in flight, `changed` the snapshot of it for the log, and `apply` is its replay. Acquiring is not stored, as
in Kafka: a restart finds the records available, so that they are delivered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.broker.share.in_flight import NOBODY, Batch, InFlight, RecordState, Run
from headwater.broker.share.records import Snapshot, StateRun
from headwater.broker.share.settings import ShareConfig
from headwater.broker.share.taker import Acquired, Taker, Wish, runs_by_batch
from headwater.core.errors import ApiError, ErrorCode

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."


class AckType(IntEnum):
    """What a member says about a record; Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Ack(NamedTuple):
    """What a member says about a range: one type for all of it, or one for each offset."""

    first: int
    last: int
    types: tuple[AckType, ...]


class SharePartition:
    """The state of one partition in one share group."""

    __slots__ = ("_settled", "created_ms", "epoch", "in_flight", "state_epoch")

    def __init__(self, snapshot: Snapshot) -> None:
        self.epoch = snapshot.epoch
        self.state_epoch = snapshot.state_epoch
        self.created_ms = snapshot.created_ms
        self.in_flight = InFlight(snapshot.start_offset)
        self._settled = False
        """Whether nothing in flight is available: the common case, in which there is nothing to look for."""
        for stored in snapshot.runs:
            if stored.first > self.in_flight.end:
                # Acquired once when this was written, and by nobody now.
                self._add(self.in_flight.end, stored.first - 1, AVAILABLE, 0)
            state = AVAILABLE if stored.state is ACQUIRED else stored.state
            self._add(stored.first, stored.last, state, stored.deliveries)

    def _add(self, first: int, last: int, state: RecordState, deliveries: int) -> None:
        self.in_flight.append(Run(Batch(first, last), first, last, state, deliveries))

    @property
    def start_offset(self) -> int:
        """The first offset that is not done with."""
        return self.in_flight.start

    @property
    def complete(self) -> int:
        """How many records in flight are final."""
        return sum(len(run) for run in self.in_flight if run.state.is_final)

    def lag(self, high_watermark: int) -> int:
        """Return how many records the group is not done with."""
        return max(0, high_watermark - self.start_offset - self.complete)

    # -- acquiring -------------------------------------------------------------------------------

    def next_offset(self) -> int:
        """Return where to read next: the first record that is available again, or the end."""
        if not self._settled:
            for run in self.in_flight:
                if run.state is AVAILABLE:
                    return run.first
            self._settled = True
        return self.in_flight.end

    def may_acquire(self, max_locks: int) -> bool:
        """Whether there is room for one more record, or one that is in flight already is available."""
        return len(self.in_flight) < max_locks or self.next_offset() != self.in_flight.end

    def begin_at(self, log_start: int) -> None:
        """Take note of where the log begins now: what is before is gone."""
        self.in_flight.move_start(log_start)

    def acquire(
        self,
        wish: Wish,
        config: ShareConfig,
        now_ms: int,
        offset: int,
        batches: Sequence[tuple[int, int]],
    ) -> list[Acquired]:
        """Give records to a member, of what was read at `offset`: the first and last offsets of batches."""
        flight = self.in_flight
        base, last = batches[0][0], batches[-1][1]
        limit = min(wish.max_records, config.max_locks - len(flight))
        if limit <= 0:
            # No room for more, but records in between may be free again.
            limit = min(wish.max_records, flight.end - offset)
            last = min(last, flight.end - 1)
        if limit <= 0:
            return []
        if offset < base:
            self._archive_gap(offset, base)
        taker = Taker(wish, config, now_ms + config.lock_ms, limit)
        for batch in runs_by_batch(flight.overlapping(base, last)):
            if not taker.take_again(flight, batch, base, last):
                break
        if taker.wants_more and last >= flight.end:
            self._acquire_new(taker, max(base, flight.end), last, batches)
        flight.tidy()
        return taker.acquired

    def _archive_gap(self, first: int, before: int) -> None:
        """Give up records that compaction has removed since they were in flight."""
        for run in self.in_flight.cut_out(first, before - 1):
            if run.state is AVAILABLE:
                run.state = ARCHIVED

    def _acquire_new(self, taker: Taker, first: int, last: int, batches: Sequence[tuple[int, int]]) -> None:
        flight = self.in_flight
        if first > flight.end:
            if len(flight):
                self._add(flight.end, first - 1, ARCHIVED, 0)
            else:
                flight.move_start(first)
        if last - first + 1 > taker.room:
            last = _end_of_batch(batches, first + taker.room - 1)
        if taker.wish.exact:
            whole = Batch(first, last)
            end = min(last, first + taker.room - 1)
            flight.append(taker.new(whole, first, end))
            if end < last:
                flight.append(Run(whole, end + 1, last, AVAILABLE, 0))
                self._settled = False
            return
        for base, _ in batches:
            # Batches of the log are kept whole, and so together that each has the size that the member likes best.
            if first < base <= last and base - first >= taker.wish.batch_size:
                flight.append(taker.new(Batch(first, base - 1), first, base - 1))
                first = base
        flight.append(taker.new(Batch(first, last), first, last))

    def withhold(self, first: int, last: int) -> None:
        """Archive records that were just acquired, since their transaction was aborted."""
        for run in self.in_flight.cut_out(first, last):
            if run.state is ACQUIRED:
                run.state, run.owner = ARCHIVED, NOBODY
        self.in_flight.tidy()

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self, member: str, acks: Sequence[Ack], config: ShareConfig, now_ms: int
    ) -> InFlight | None:
        """Return what is in flight after a member's words about it, or None when nothing stored changes.

        Raises `ApiError` where the member does not have the records that it speaks of; then nothing changes.
        Renewing is not stored: it happens at once.
        """
        end = -1
        for ack in acks:
            if ack.first <= end:
                raise ApiError(ErrorCode.invalid_record_state, _NOT_ACQUIRED)
            if AckType.RENEW in ack.types and not config.renews:
                raise ApiError(
                    ErrorCode.invalid_record_state, "Renewing acquisition locks is not enabled for the group."
                )
            self._check(member, ack)
            end = ack.last
        pieces = [piece for ack in acks for piece in _pieces(ack) if piece[1] >= self.in_flight.start]
        for first, last, kind in pieces:
            if kind is AckType.RENEW:
                for run in self.in_flight.cut_out(first, last):
                    run.deadline_ms = now_ms + config.lock_ms
        settled = [piece for piece in pieces if piece[2] is not AckType.RENEW]
        if not settled:
            return None
        after = self.in_flight.copy()
        for first, last, kind in settled:
            for run in after.cut_out(first, last):
                _settle(run, kind, config.delivery_limit)
        after.tidy()
        return after

    def _check(self, member: str, ack: Ack) -> None:
        flight = self.in_flight
        if ack.last < flight.start:
            return
        if not len(flight):
            raise ApiError(
                ErrorCode.invalid_record_state,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        if ack.last >= flight.end:
            which = "first" if ack.first >= flight.end else "last"
            raise ApiError(
                ErrorCode.invalid_request,
                f"Batch record not found. The {which} offset in request is past acquired records.",
            )
        for run in flight.overlapping(ack.first, ack.last):
            if run.state is not ACQUIRED:
                raise ApiError(ErrorCode.invalid_record_state, _NOT_ACQUIRED)
            if run.owner != member:
                raise ApiError(ErrorCode.invalid_record_state, "Member is not the owner of offset")

    def release(self, member: str, config: ShareConfig) -> InFlight | None:
        """Return what is in flight once a member has lost all that it had."""
        if not any(run.owner == member for run in self.in_flight):
            return None
        after = self.in_flight.copy()
        for run in after:
            if run.owner == member:
                _settle(run, AckType.RELEASE, config.delivery_limit)
        after.tidy()
        return after

    def expire(self, now_ms: int, config: ShareConfig) -> InFlight | None:
        """Return what is in flight once members have lost what they held for too long."""
        if not any(run.state is ACQUIRED and run.deadline_ms <= now_ms for run in self.in_flight):
            return None
        after = self.in_flight.copy()
        for run in after:
            if run.state is ACQUIRED and run.deadline_ms <= now_ms:
                _settle(run, AckType.RELEASE, config.delivery_limit)
        after.tidy()
        return after

    def next_deadline(self, after_ms: int = -1) -> int | None:
        """Return when the first lock ends after a time, or None when none does."""
        return min(
            (run.deadline_ms for run in self.in_flight if run.owner and run.deadline_ms > after_ms),
            default=None,
        )

    # -- the log ---------------------------------------------------------------------------------

    def changed(self, after: InFlight, wall_ms: int) -> Snapshot:
        """Return the snapshot that makes a change of what is in flight happen."""
        runs: list[StateRun] = []
        complete = 0
        for run in after:
            state, deliveries = run.state, run.deliveries
            if state is ACQUIRED:
                deliveries -= 1
                if not deliveries:
                    continue
            elif state.is_final:
                complete += len(run)
            before = runs[-1] if runs else None
            if before and (before.last + 1, before.state, before.deliveries) == (
                run.first,
                state,
                deliveries,
            ):
                runs[-1] = before._replace(last=run.last)
            else:
                runs.append(StateRun(run.first, run.last, state, deliveries))
        return Snapshot(
            self.epoch + 1, self.state_epoch, after.start, self.created_ms, wall_ms, tuple(runs), complete
        )

    def apply(self, snapshot: Snapshot) -> None:
        """Take over what a snapshot says; what it does not speak of stays acquired."""
        self.epoch = snapshot.epoch
        flight = self.in_flight
        flight.move_start(snapshot.start_offset)
        for stored in self._news(snapshot):
            for run in flight.cut_out(stored.first, stored.last):
                run.state, run.deliveries, run.owner = stored.state, stored.deliveries, NOBODY
        flight.tidy()
        self._settled = False

    def _news(self, snapshot: Snapshot) -> list[StateRun]:
        """Return what a snapshot says about records that are in another state here: mostly little of it."""
        news = []
        runs = list(self.in_flight)
        i = 0
        for stored in snapshot.runs:
            if stored.state is ACQUIRED:
                continue
            while i < len(runs) and runs[i].last < stored.first:
                i += 1
            j = i
            while j < len(runs) and runs[j].first <= stored.last:
                if runs[j].state is not stored.state or runs[j].deliveries != stored.deliveries:
                    news.append(stored)
                    break
                j += 1
        return news


def _settle(run: Run, kind: AckType, delivery_limit: int) -> None:
    """Change the state of records as their member says."""
    run.owner = NOBODY
    if kind is AckType.ACCEPT:
        run.state = ACKNOWLEDGED
    elif kind is AckType.RELEASE and run.deliveries < delivery_limit:
        run.state = AVAILABLE
    else:
        run.state = ARCHIVED


def _end_of_batch(batches: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the last offset of the batch that holds `offset`, or `offset` where none does."""
    for first, last in batches:
        if first <= offset <= last:
            return last
    return offset


def _pieces(ack: Ack) -> list[tuple[int, int, AckType]]:
    """Return ranges of one type each."""
    if len(ack.types) == 1:
        return [(ack.first, ack.last, ack.types[0])]
    pieces: list[tuple[int, int, AckType]] = []
    for offset, kind in enumerate(ack.types, ack.first):
        if pieces and pieces[-1][2] is kind:
            pieces[-1] = pieces[-1][0], offset, kind
        else:
            pieces.append((offset, offset, kind))
    return pieces
