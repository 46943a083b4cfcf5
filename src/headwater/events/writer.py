"""The one writer of a partition: a thread that decides, writes and acknowledges in groups.

All requests that wait when a transaction ends are decided (`plan`) and written in the next one, so many
callers cost few round trips and few syncs. An append is acknowledged when its transaction has been
committed. The index takes its events in while the callers go on; whoever reads waits for that.

Opening the transactional id of a partition bumps its epoch: whoever had it before, hung or forgotten, can
neither produce nor commit from then on. The new owner first reads up to the end of what its predecessors
wrote; all of it is decided by then. So the versions that it decides by are those of the log. A partition is
claimed at its first append, and a claim that was not used for an hour lapses, long before a broker forgets it.

When a transaction fails, nobody knows yet whether it was committed. The log does: once the end of what the
broker had is readable, the events are there, all of them, or they never will be.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from headwater.client import BrokerError, ClientError, Cluster
from headwater.client.transactions import Fenced, TransactionalWriter, max_batch_bytes
from headwater.client.transactions_v2 import ImplicitWriter, open_writer
from headwater.core.clock import Clock
from headwater.core.errors import ErrorCode
from headwater.events.batches import TooLarge, encode_batches
from headwater.events.errors import BadEvent, EventError, OutcomeUnknown, Unavailable, WriterFenced
from headwater.events.event import Event
from headwater.events.follow import catch_up, ends
from headwater.events.index import Index
from headwater.events.keys import Keys
from headwater.events.plan import Appended, Plan, Request
from headwater.events.sift import Found
from headwater.events.states import States

__all__ = ["PartitionWriter"]

logger = logging.getLogger(__name__)

_GROUP = 2000
"""Requests in a transaction; what waits longer waits for the next."""
_MOST_WAITING = 10_000
"""Requests that are handed in and not done; whoever brings more waits."""
_GATHER_SECONDS = 0.001
"""What callers get to hand in their next append before a transaction begins without them; it takes longer."""
_TRANSACTION_MS = 60_000
"""A transaction takes milliseconds; one that its writer died in holds readers back for this long at most."""
_LAPSE_SECONDS = 3600.0


class _Waiting(NamedTuple):
    request: Request
    future: Future[Appended]


class _NotStored(Exception):
    """A transaction that failed, and was found to have left nothing behind."""


class PartitionWriter:
    """The appends to one partition of a store's topic."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        topic: str,
        partition: int,
        index: Index,
        keys: Keys,
        clock: Clock,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._index = index
        self._keys = keys
        self._erasures = 0
        self.has_personal = False
        """Whether any event that is here may have personal data."""
        self._clock = clock
        self._states = States(index)
        self._cluster = connect()
        self._transactions: TransactionalWriter | None = None
        self._is_current = False
        self._used = 0.0
        self._end = -1
        self._max_bytes = 0
        self._fenced = False
        self._last = 0
        self._indexing = threading.Lock()
        self._gate = threading.Lock()
        self._closed = False
        self._room = threading.Semaphore(_MOST_WAITING)
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"events {topic}-{partition}", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Appended]:
        """Hand in a request; the future tells what became of it. Waits where too many others do."""
        future: Future[Appended] = Future()
        self._room.acquire()
        with self._gate:
            if self._closed:
                raise EventError(f"the store {self._topic} is closed")
            self._queue.put(_Waiting(request, future))
        return future

    def reclaim(self) -> None:
        """Take the partition back from whoever fenced this writer, at the next append."""
        self._fenced = False

    def settled(self) -> bool:
        """Wait until the index has all that was acknowledged; tell whether that is all the partition holds."""
        with self._indexing:
            return self._is_current

    def close(self) -> None:
        """End once what was handed in is done."""
        with self._gate:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    # The thread

    def _run(self) -> None:
        try:
            while (group := self._group()) is not None:
                self._serve(group)
                self._room.release(len(group))
        finally:
            self._cluster.close()

    def _group(self) -> list[_Waiting] | None:
        """Return what waits; who was in the last group gets a moment to come again, so that groups stay large."""
        first = self._queue.get()
        if first is None:
            return None
        group = [first]
        deadline = time.monotonic() + _GATHER_SECONDS
        while len(group) < _GROUP:
            try:
                left = deadline - time.monotonic() if len(group) < self._last else 0.0
                following = self._queue.get(block=left > 0, timeout=max(left, 0.0))
            except queue.Empty:
                break
            if following is None:
                self._queue.put(None)
                break
            group.append(following)
        self._last = len(group)
        return group

    def _serve(self, handed_in: list[_Waiting]) -> None:
        group = [waiting for waiting in handed_in if waiting.future.set_running_or_notify_cancel()]
        try:
            self._claim()
            self._forget_erased()
            self._carry_out(group)
        except Exception as error:
            self._give_up()
            for waiting in group:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
            if not isinstance(error, EventError):
                logger.error("%s-%d: an append failed: %s", self._topic, self._partition, error)

    def _carry_out(self, group: list[_Waiting], *, again: bool = False) -> None:
        plan = Plan(self._states, self._clock.wall_ms())
        decided: list[tuple[_Waiting, Appended]] = []
        for waiting in group:
            try:
                decided.append((waiting, plan.add(waiting.request)))
            except Exception as error:  # the command's own, or ours about the request
                waiting.future.set_exception(error)
        try:
            written = self._write(plan) if plan.planned else []
        except TooLarge as error:
            self._states.clear()
            self._one_by_one(decided, error)
            return
        except _NotStored as error:
            if again:
                raise Unavailable(f"{error.__cause__}; nothing was stored, send it again") from error
            self._carry_out([waiting for waiting, _ in decided], again=True)
            return
        with self._indexing:
            for waiting, appended in decided:
                waiting.future.set_result(appended)
            if written:
                self._index.apply(self._partition, written, written[-1].event.offset + 1)
            self._states.note(plan.heads)
            self._states.keep(plan.states())

    def _one_by_one(self, decided: list[tuple[_Waiting, Appended]], error: TooLarge) -> None:
        """Refuse the request with the event that is too large, and carry the others out."""
        blamed = [waiting for waiting, appended in decided if error.event in appended.events]
        for waiting in blamed:
            waiting.future.set_exception(BadEvent(str(error)))
        self._carry_out([waiting for waiting, _ in decided if waiting not in blamed])

    # Transactions

    def _claim(self) -> None:
        """Make this writer the partition's, unless it is."""
        if self._fenced:
            raise self._shut_out()
        now = time.monotonic()
        if self._transactions is not None and now - self._used > _LAPSE_SECONDS:
            self._give_up()
        self._used = now
        if self._transactions is not None:
            return
        try:
            transactional_id = f"{self._topic}.events-{self._partition}"
            transactions = open_writer(self._cluster, transactional_id, timeout_ms=_TRANSACTION_MS)
            self._max_bytes = max_batch_bytes(self._cluster, self._topic)
            self._states.clear()
            self._end = self._catch_up()
            self.has_personal = self._index.has_personal()
        except ClientError as error:
            raise Unavailable(f"{self._topic} cannot be written: {error}; nothing was stored") from error
        self._transactions = transactions
        self._is_current = True

    def _forget_erased(self) -> None:
        """Let go of states that may hold what was erased, in this process or in another."""
        if self.has_personal:
            try:
                self._keys.follow(self._cluster)
            except ClientError as error:
                raise Unavailable(
                    f"the keys of {self._topic} cannot be read: {error}; nothing was stored"
                ) from error
        if self._keys.erasures != self._erasures:
            self._erasures = self._keys.erasures
            self._states.clear()

    def _write(self, plan: Plan) -> list[Found]:
        """Write what is planned, in one transaction; return what the index has to take in yet."""
        assert self._transactions is not None
        planned = self._keys.seal(self._cluster, plan.planned)
        self.has_personal = self.has_personal or planned is not plan.planned
        batches = encode_batches(planned, self._max_bytes)
        written: list[Found] = []
        contiguous = True
        try:
            self._transactions.begin(self._topic, [self._partition])
            for batch in batches:
                offsets = self._transactions.produce(self._topic, {self._partition: batch.data})
                base = offsets.get(self._partition, -1)
                contiguous = contiguous and base == self._end
                self._end = base + len(batch.found)
                written += batch.place(self._partition, base)
            self._transactions.commit()
        except ClientError as error:
            self._settle(error, plan.planned[-1].event)
            return []
        if contiguous:
            self._end += 1  # the marker that ends the transaction
            return written
        # Somebody else wrote in between: what that was is for the index to say, in the order of the log.
        self._end = self._catch_up()
        return []

    def _settle(self, error: ClientError, last: Event) -> None:
        """Find out what became of a transaction that failed: return if it was committed, raise if not."""
        logger.warning(
            "%s-%d: a transaction failed, and is looked up: %s", self._topic, self._partition, error
        )
        transactions = self._transactions
        self._give_up()
        self._fenced = _is_fencing(error)
        try:
            if not self._fenced and transactions is not None:
                self._resume(transactions)
            self._end = self._catch_up()
            self._is_current = self._transactions is not None
        except (ClientError, EventError):
            raise OutcomeUnknown(
                f"{self._topic}: the broker went away while events were written ({error}); whether they are "
                "stored is not known: send again with the same command id, which stores them once"
            ) from error
        stored = next(self._index.events(last.stream, last.version - 1, last.version), None)
        if stored is not None and stored.id == last.id:
            return
        if self._fenced:
            raise self._shut_out() from error
        raise _NotStored from error

    def _resume(self, transactions: TransactionalWriter) -> None:
        """Go on as the partition's writer after a failure, without taking it from another one."""
        try:
            transactions.abort()
        except Fenced:
            self._fenced = True
        except BrokerError:
            self._claim()  # there is nothing to abort, or it was committed
        else:
            # An abort of the newer protocol raises the epoch, so what is still on its way comes too late.
            self._transactions = transactions if isinstance(transactions, ImplicitWriter) else None
            self._claim()

    def _catch_up(self) -> int:
        """Read all that the partition holds, and return where it ends."""
        end = ends(self._cluster, self._topic, [self._partition])[self._partition]
        return catch_up(self._cluster, self._index, self._topic, self._partition, until=end)

    def _give_up(self) -> None:
        self._transactions = None
        self._is_current = False
        self._states.clear()

    def _shut_out(self) -> WriterFenced:
        return WriterFenced(
            f"another process writes partition {self._partition} of {self._topic} now, and this one is shut out; "
            "nothing of this append was stored. Send it to the other one, or take the partition back with claim()"
        )


def _is_fencing(error: ClientError) -> bool:
    """Tell whether an error means that somebody else has ended this writer's transaction.

    Kafka says so to whoever commits what a new owner of the transactional id has aborted a moment ago.
    """
    if isinstance(error, BrokerError) and error.code is ErrorCode.invalid_txn_state:
        return True
    return isinstance(error, Fenced)
