"""The event loop's side of the transaction coordinator: durability, markers, time-outs.

The coordinator is called and its records are appended and replayed without giving way to another
request; then the reply waits for the disk. A transaction that ends takes two syncs: one for the
decision, one for the markers in its partitions. The client is answered after both, so that what it does next
meets a transaction that is over, and a reader sees what was committed.

A produced batch goes to its partition in the same moment in which the partition is added to the
transaction, and one sync makes both durable. A crash may keep the batch alone: on start, open transactions of
partitions are compared with the coordinator's, and taken in where it does not know them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.transactions import (
    Ending,
    EndRequest,
    InitRequest,
    Outcome,
    ProducerIdentity,
    Reply,
    TopicPartition,
)
from headwater.broker.transactions.records import NO_EPOCH, PROTOCOL_V2
from headwater.core.errors import ApiError, ErrorCode
from headwater.log.errors import PartitionError, StorageFull
from headwater.log.partition import PartitionLog
from headwater.net.state_log import next_sync
from headwater.record.batch import Header

if TYPE_CHECKING:
    from headwater.broker.state import StateRecord
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

GROUPS_PARTITION = TopicPartition("__consumer_offsets", 0)
COORDINATOR_EPOCH = 0
_PRODUCE_ADDS_FROM = 12
_PRODUCE_ABORTABLE_FROM = 11
_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
"""How long a client waits for markers; the decision stands, so the answer is good without them."""


def admit(node: Node, version: int, transactional_id: str | None, batch: Header, log: PartitionLog) -> None:
    """Raise `ApiError` unless a transactional batch of a Produce request may be appended."""
    if transactional_id is None:
        raise ApiError(
            ErrorCode.transactional_id_authorization_failed, "a transactional batch needs a transactional id"
        )
    producer = ProducerIdentity(batch.producer_id, batch.producer_epoch)
    partition = TopicPartition(log.topic, log.partition)
    try:
        node.transaction_service.admit(
            transactional_id, producer, partition, add=version >= _PRODUCE_ADDS_FROM
        )
    except ApiError as error:
        code = error.code
        if code is ErrorCode.transaction_abortable and version < _PRODUCE_ABORTABLE_FROM:
            code = ErrorCode.invalid_txn_state
        elif code is ErrorCode.concurrent_transactions and version < _PRODUCE_ADDS_FROM:
            code = ErrorCode.not_enough_replicas  # what older clients take for a reason to try again
        raise ApiError(code, error.message) from error
    if version >= _PRODUCE_ADDS_FROM:
        log.producers.check_first(batch)


class TransactionService:
    """Runs the transaction coordinator of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._expiry_ms = 0

    def start(self) -> None:
        """Finish what was decided before the last stop, and begin to watch the time."""
        self._adopt()
        for ending in self._node.transactions.decided():
            self._finish(ending)
        self._expiry_ms = self._node.clock.monotonic_ms()
        self._arm()

    def stop(self) -> None:
        """Stop the timer; markers that are not written yet are on the next start."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- requests --------------------------------------------------------------------------------

    async def init(self, request: InitRequest) -> Reply:
        """Give the producer of a transactional id its next epoch."""
        reply = await self._init(request)
        if reply.error is ErrorCode.concurrent_transactions:
            # The transaction that was open is aborted by now: the client need not ask a second time.
            reply = await self._init(request)
        return reply

    async def _init(self, request: InitRequest) -> Reply:
        # All waiting is done before the decision: until its record is appended, another request would decide by
        # the same state, and two producers would be given the same epoch.
        ids = self._node.producer_ids
        while True:
            await self._have_ids()
            reserved = ids.reserved
            # The block of ids may have been reserved by another request, whose record is on its way to the disk.
            await self._node.commit_topics(())
            if ids.left and ids.reserved == reserved:
                break
        outcome = self._node.transactions.init(self._now(), request, ids.take)
        return await self._settle(outcome)

    async def end(self, request: EndRequest) -> Reply:
        """Commit or abort a transaction, and return when its markers are written."""
        await self._have_ids()
        outcome = self._node.transactions.end(self._now(), request, self._node.producer_ids.take)
        return await self._settle(outcome)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: list[TopicPartition]
    ) -> None:
        """Add partitions to a transaction, durably."""
        records = self._node.transactions.add_partitions(self._now(), transactional_id, producer, partitions)
        await self._node.commit_transactions(records)

    def admit(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition, *, add: bool
    ) -> None:
        """Raise `ApiError` unless the producer's transaction may write to a partition now.

        Clients of protocol v2 leave it to us to add the partition (`add`), which is durable with the next
        sync; those before must have added it. The errors are those that a write is answered with, which not
        all clients know by their newer names.
        """
        coordinator = self._node.transactions
        try:
            if not add:
                coordinator.verify(transactional_id, producer, partition)
                return
            records = coordinator.add_partitions(
                self._now(), transactional_id, producer, (partition,), client_version=PROTOCOL_V2
            )
        except ApiError as error:
            if error.code is ErrorCode.producer_fenced:
                raise ApiError(
                    ErrorCode.invalid_producer_epoch,
                    f"producer {producer.producer_id} of {transactional_id} is past epoch {producer.epoch}",
                ) from error
            raise
        if records:
            self._node.append_transactions(records)

    async def settled(self) -> None:
        """Return when all that is in the coordinator's state is durable."""
        await self._node.commit_transactions(())

    async def _settle(self, outcome: Outcome[Reply]) -> Reply:
        await self._node.commit_transactions(outcome.records)
        finishing = [self._finish(ending) for ending in outcome.endings]
        if finishing:
            await asyncio.wait(finishing, timeout=_PATIENCE_SECONDS)
        return outcome.reply

    async def _have_ids(self) -> None:
        ids = self._node.producer_ids
        while not ids.left:
            await self._node.commit_topics(ids.reserve())

    def _now(self) -> int:
        return self._node.clock.wall_ms()

    # -- markers ---------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._write_markers(ending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write_markers(self, ending: Ending) -> None:
        while True:
            try:
                # After a failure some are written a second time, which changes nothing.
                await self.mark(ending.producer, ending.partitions, commit=ending.commit)
                if records := self._node.transactions.complete(self._now(), ending):
                    self._node.append_transactions(records)
                return
            except (ApiError, PartitionError) as error:
                if not _is_full(error):
                    logger.error(
                        "transaction %s ends after a restart: %s", ending.transactional_id, error
                    )  # a partition that failed takes nothing more in this process
                    return
                logger.warning("transaction %s waits to end: %s", ending.transactional_id, error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def mark(
        self, producer: ProducerIdentity, partitions: Sequence[TopicPartition], *, commit: bool
    ) -> None:
        """Write markers to partitions, and return when they are durable; a topic that is gone needs none."""
        node = self._node
        now_ms = self._now()
        written: list[PartitionLog] = []
        offsets = None
        for partition in partitions:
            if partition == GROUPS_PARTITION:
                offsets = node.groups.end_transaction(producer.producer_id, commit=commit)
                continue
            log = node.logs.get(*partition)
            if log is not None:
                log.append_marker(
                    *producer, commit=commit, coordinator_epoch=COORDINATOR_EPOCH, now_ms=now_ms
                )
                node.commit.add(log)
                written.append(log)
        if offsets is not None:
            await node.group_service.settle(offsets)
        if written and node.logs.synced:
            await next_sync(node.commit)
        for log in written:
            if log.error is not None and node.logs.get(log.topic, log.partition) is log:
                raise ApiError(ErrorCode.kafka_storage_error, log.error)

    # -- time ------------------------------------------------------------------------------------

    def _arm(self) -> None:
        interval_ms = self._node.number("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._timer = asyncio.get_running_loop().call_later(interval_ms / 1000, self._sweep)

    def _sweep(self) -> None:
        self._arm()
        if self._node.transactions.ongoing:
            task = asyncio.get_running_loop().create_task(self.abort_timed_out())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        since_ms = self._node.clock.monotonic_ms() - self._expiry_ms
        if since_ms >= self._node.number("transaction.remove.expired.transaction.cleanup.interval.ms"):
            self._expiry_ms += since_ms
            self._append(self._node.transactions.expired(self._now()), "expired transactional ids")

    async def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for too long."""
        outcome = self._node.transactions.timed_out(self._now())
        if not outcome.records:
            return
        for ending in outcome.endings:
            logger.info("transaction %s timed out and is aborted", ending.transactional_id)
        try:
            await self._node.commit_transactions(outcome.records)
        except ApiError as error:
            logger.error("transactions that timed out could not be aborted: %s", error)
            return
        await asyncio.wait([self._finish(ending) for ending in outcome.endings], timeout=_PATIENCE_SECONDS)

    def _append(self, records: list[StateRecord], what: str) -> None:
        if records:
            try:
                self._node.append_transactions(records)
            except ApiError as error:
                logger.error("%s could not be written: %s", what, error)

    # -- start -----------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Take in what partitions know of open transactions and the coordinator, after a crash, does not."""
        node = self._node
        open_here = [
            (ProducerIdentity(producer_id, NO_EPOCH), GROUPS_PARTITION)
            for producer_id in node.groups.pending.producer_ids()
        ]
        for log in node.logs:
            here = TopicPartition(log.topic, log.partition)
            open_here += [
                (ProducerIdentity(producer_id, producer.epoch), here)
                for producer_id, producer in log.producers.items()
                if producer.transaction_start is not None
            ]
        for producer, partition in open_here:
            records = node.transactions.adopt(self._now(), producer, partition)
            if records is not None:
                self._append(records, "a transaction found open")
                continue
            logger.warning(
                "producer %d left a transaction open in %s-%d that no transactional id has: aborting it",
                producer.producer_id,
                *partition,
            )
            self._finish(Ending("", producer, commit=False, partitions=(partition,)))


def _is_full(error: BaseException | None) -> bool:
    """Whether what failed may be tried again once there is room, in a partition or in a state machine's log."""
    while error is not None and not isinstance(error, StorageFull):
        error = error.__cause__
    return error is not None
