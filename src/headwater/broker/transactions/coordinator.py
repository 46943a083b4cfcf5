"""The transaction coordinator: every transactional id, rebuilt from `__transaction_state`.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing …
                     └──► PrepareAbort ───► CompleteAbort ───► Ongoing …

A transaction's outcome is decided by its Prepare record: once that is durable a marker goes to every
partition that took part, and when all of those are durable the Complete record follows. A crash in between
leaves the Prepare record, and the markers are written again. Only the current epoch of a producer may add to a
transaction or end it; InitProducerId, a time-out and, in protocol v2 (KIP-890), every end raise it.

A partition may be told of a transaction a moment before this log is: both go to disk together, and a crash
may keep the one without the other. `adopt` then brings this state after that of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast

from headwater.broker.state import StateRecord
from headwater.broker.transactions import records
from headwater.broker.transactions.outcome import (
    NOBODY,
    Ending,
    EndRequest,
    InitRequest,
    Outcome,
    ProducerIdentity,
    Reply,
)
from headwater.broker.transactions.records import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_ID,
    PREPARED,
    PROTOCOL_V2,
    TopicPartition,
    Transaction,
    TransactionState,
)
from headwater.core.errors import ApiError, ErrorCode
from headwater.core.settings import Value

NewId = Callable[[], int]
"""Hands out a producer id that nobody has had."""

_MAX_ID_BYTES = 32_000


class TransactionCoordinator:
    """All transactional ids of the broker."""

    def __init__(self, settings: Mapping[str, Value]) -> None:
        self._settings = settings
        self._by_producer: dict[int, str] = {}
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()
        """The transactional ids with a transaction that no outcome was decided for."""

    # The log

    def replay(self, record: StateRecord) -> None:
        """Apply a record, be it just appended or read on start."""
        transactional_id = records.decode_key(record.key)
        if transactional_id is None:
            return
        before = self.transactions.pop(transactional_id, None)
        for producer_id in _ids(before):
            if self._by_producer.get(producer_id) == transactional_id:
                del self._by_producer[producer_id]
        self.ongoing.discard(transactional_id)
        if record.value is not None:
            transaction = records.decode(transactional_id, record.value)
            self.transactions[transactional_id] = transaction
            self._by_producer.update(dict.fromkeys(_ids(transaction), transactional_id))
            if transaction.state is TransactionState.ONGOING:
                self.ongoing.add(transactional_id)

    def decided(self) -> list[Ending]:
        """Return the transactions whose markers have to be written, on start perhaps not for the first time."""
        return [_ending(t) for t in self.transactions.values() if t.state in PREPARED]

    def adopt(
        self, now_ms: int, producer: ProducerIdentity, partition: TopicPartition
    ) -> list[StateRecord] | None:
        """Return what takes an open transaction of a partition in, or None when it belongs to nobody.

        For start-up alone, when a producer without an epoch is one that the partition keeps no epoch of.
        """
        transaction = self.transactions.get(self._by_producer.get(producer.producer_id, ""))
        if transaction is None:
            return None
        if transaction.state in PREPARED and producer == _successor(transaction):
            # What the ended transaction's producer wrote next: its markers were durable by then, and only the
            # record of that is lost. Marking it once more would end the wrong transaction.
            done = _completed(transaction, now_ms)
            return [records.encode(done), _with_partitions(done, (partition,), now_ms, PROTOCOL_V2)]
        if partition in transaction.partitions:
            return []
        if transaction.state in PREPARED or producer.epoch not in (transaction.epoch, NO_EPOCH):
            return None
        return [_with_partitions(transaction, (partition,), now_ms)]

    # Requests

    def init(self, now_ms: int, request: InitRequest, new_id: NewId) -> Outcome[Reply]:
        """Answer an InitProducerId: the producer's epoch is raised, which fences whoever had the last one.

        A transaction that is open is aborted first, and the client told to ask again.
        """
        self._check_id(request.transactional_id)
        if not 0 < request.timeout_ms <= cast(int, self._settings["transaction.max.timeout.ms"]):
            raise ApiError(ErrorCode.invalid_transaction_timeout)
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            transaction = Transaction(request.transactional_id, new_id(), NO_EPOCH, request.timeout_ms)
        expected = None if request.expected.producer_id == NO_ID else request.expected
        if expected is not None and not _may_return(transaction, expected):
            raise ApiError(ErrorCode.producer_fenced)
        if transaction.state in PREPARED:
            raise ApiError(ErrorCode.concurrent_transactions)
        if transaction.state is TransactionState.ONGOING:
            fenced = _fenced(transaction, now_ms)
            return Outcome(
                Reply(NOBODY, ErrorCode.concurrent_transactions), [records.encode(fenced)], [_ending(fenced)]
            )
        raised = replace(
            _raised(transaction, expected, new_id),
            timeout_ms=request.timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            updated_ms=now_ms,
            started_ms=-1,
            next_id=NO_ID,
            client_version=0,
        )
        return Outcome(Reply(ProducerIdentity(raised.producer_id, raised.epoch)), [records.encode(raised)])

    def add_partitions(
        self,
        now_ms: int,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = 0,
    ) -> list[StateRecord]:
        """Return the records that add partitions to the producer's transaction, beginning one if need be."""
        transaction = self._of(transactional_id, producer)
        if transaction.state in PREPARED:
            raise ApiError(ErrorCode.concurrent_transactions)
        added = tuple(partitions)
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(added):
            return []
        return [_with_partitions(transaction, added, now_ms, client_version)]

    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> None:
        """Raise `ApiError` unless the partition takes part in the producer's transaction."""
        transaction = self._of(transactional_id, producer)
        if transaction.state in PREPARED:
            raise ApiError(ErrorCode.concurrent_transactions)
        if partition not in transaction.partitions:
            raise ApiError(ErrorCode.transaction_abortable, "the partition was not added to the transaction")

    def end(self, now_ms: int, request: EndRequest, new_id: NewId) -> Outcome[Reply]:
        """Answer an EndTxn: decide the transaction's outcome, or repeat what was decided."""
        self._check_id(request.transactional_id)
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.invalid_producer_id_mapping)
        if request.bumps_epoch:
            return self._end_v2(now_ms, transaction, request, new_id)
        return self._end_v1(now_ms, transaction, request)

    def _end_v1(self, now_ms: int, transaction: Transaction, request: EndRequest) -> Outcome[Reply]:
        _check_producer(transaction, request.producer)
        if transaction.state is TransactionState.ONGOING:
            return _decided(
                replace(
                    transaction, state=_prepared(commit=request.commit), updated_ms=now_ms, client_version=0
                )
            )
        return _repeated(transaction, request)

    def _end_v2(
        self, now_ms: int, transaction: Transaction, request: EndRequest, new_id: NewId
    ) -> Outcome[Reply]:
        producer, state = request.producer, transaction.state
        follows_rotation = (
            transaction.previous_id == producer.producer_id
            and producer.epoch == MAX_EPOCH - 1
            and transaction.epoch == 0
        )
        if transaction.producer_id != producer.producer_id and not follows_rotation:
            raise ApiError(ErrorCode.invalid_producer_id_mapping)
        follows_end = transaction.epoch == producer.epoch + 1 and (
            state in PREPARED or transaction.epoch < MAX_EPOCH
        )
        repeats = state not in (TransactionState.EMPTY, TransactionState.ONGOING) and (
            follows_end or follows_rotation
        )
        if repeats:
            return _repeated(transaction, request)
        if producer.epoch != transaction.epoch or state in PREPARED:
            raise ApiError(ErrorCode.producer_fenced)
        if state is not TransactionState.ONGOING and request.commit:
            raise ApiError(ErrorCode.invalid_txn_state)
        # An abort of nothing is decided too: the client relies on the new epoch to be rid of requests
        # of its last transaction that may still be on their way.
        return _decided(
            replace(
                transaction,
                state=_prepared(commit=request.commit),
                epoch=transaction.epoch + 1,
                last_epoch=transaction.epoch,
                next_id=new_id() if transaction.exhausted else NO_ID,
                updated_ms=now_ms,
                started_ms=transaction.started_ms if state is TransactionState.ONGOING else now_ms,
                client_version=PROTOCOL_V2,
            )
        )

    def complete(self, now_ms: int, ending: Ending) -> list[StateRecord]:
        """Return the record that completes a transaction whose markers are all durable."""
        transaction = self.transactions.get(ending.transactional_id)
        if transaction is None or transaction.state not in PREPARED or _ending(transaction) != ending:
            return []
        return [records.encode(_completed(transaction, now_ms))]

    # Time

    def timed_out(self, now_ms: int) -> Outcome[None]:
        """Abort the transactions that have been open for longer than their time-out, fencing their producers."""
        out: Outcome[None] = Outcome(None)
        for transactional_id in self.ongoing:
            transaction = self.transactions[transactional_id]
            if transaction.started_ms + transaction.timeout_ms < now_ms:
                fenced = _fenced(transaction, now_ms)
                out.records.append(records.encode(fenced))
                out.endings.append(_ending(fenced))
        return out

    def expired(self, now_ms: int) -> list[StateRecord]:
        """Return the records that forget the transactional ids nobody has used for long."""
        before_ms = now_ms - cast(int, self._settings["transactional.id.expiration.ms"])
        busy = (TransactionState.ONGOING, *PREPARED)
        return [
            records.tombstone(transaction.transactional_id)
            for transaction in self.transactions.values()
            if transaction.state not in busy and transaction.updated_ms <= before_ms
        ]

    # Checks

    def _of(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        self._check_id(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.invalid_producer_id_mapping)
        _check_producer(transaction, producer)
        return transaction

    @staticmethod
    def _check_id(transactional_id: str) -> None:
        if not transactional_id or len(transactional_id.encode()) > _MAX_ID_BYTES:
            raise ApiError(ErrorCode.invalid_request)


def _ids(transaction: Transaction | None) -> set[int]:
    """Return the producer ids of a transactional id: its own, and the one it goes on with after this end."""
    return set() if transaction is None else {transaction.producer_id, transaction.next_id} - {NO_ID}


def _successor(transaction: Transaction) -> ProducerIdentity | None:
    """Return whom a transaction of protocol v2 goes on as after its end, where that tells it from before."""
    if transaction.client_version < PROTOCOL_V2:
        return None
    after = _completed(transaction, transaction.updated_ms)
    return ProducerIdentity(after.producer_id, after.epoch)


def _check_producer(transaction: Transaction, producer: ProducerIdentity) -> None:
    if transaction.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.invalid_producer_id_mapping)
    if transaction.epoch != producer.epoch:
        raise ApiError(ErrorCode.producer_fenced)


def _may_return(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Tell whether a producer that says who it was may still be let in; its epoch is looked at later."""
    return (
        transaction.epoch == NO_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_id and expected.epoch >= MAX_EPOCH - 1)
    )


def _raised(transaction: Transaction, expected: ProducerIdentity | None, new_id: NewId) -> Transaction:
    """Return the transaction with the epoch that an InitProducerId gets."""
    epoch = transaction.epoch
    # The very last epoch only fences: nobody is given it.
    fenced_last = epoch == MAX_EPOCH and expected is not None and expected.epoch == transaction.last_epoch
    if transaction.exhausted and (expected is None or expected.epoch == epoch or fenced_last):
        return replace(
            transaction,
            producer_id=new_id(),
            epoch=0,
            last_epoch=NO_EPOCH if expected is None else expected.epoch,
            previous_id=transaction.producer_id,
        )
    if expected is None:
        return replace(transaction, epoch=epoch + 1, last_epoch=NO_EPOCH)
    if epoch in (NO_EPOCH, expected.epoch):
        return replace(transaction, epoch=epoch + 1, last_epoch=epoch)
    if expected.epoch == transaction.last_epoch:
        return transaction  # the same request again, whose answer was lost
    raise ApiError(ErrorCode.producer_fenced)


def _fenced(transaction: Transaction, now_ms: int) -> Transaction:
    """Return an ongoing transaction as aborted by us.

    The epoch rises by one, as in Kafka: its producer can write no more, but may abort in its turn, or say who
    it was in an InitProducerId, and goes on from there.
    """
    return replace(
        transaction,
        state=TransactionState.PREPARE_ABORT,
        epoch=min(transaction.epoch + 1, MAX_EPOCH),
        last_epoch=transaction.epoch,
        updated_ms=now_ms,
        client_version=PROTOCOL_V2,
    )


def _with_partitions(
    transaction: Transaction, added: tuple[TopicPartition, ...], now_ms: int, client_version: int = 0
) -> StateRecord:
    ongoing = transaction.state is TransactionState.ONGOING
    return records.encode(
        replace(
            transaction,
            state=TransactionState.ONGOING,
            partitions=transaction.partitions.union(added),
            updated_ms=now_ms,
            started_ms=transaction.started_ms if ongoing else now_ms,
            client_version=max(client_version, transaction.client_version) if ongoing else client_version,
        )
    )


def _prepared(*, commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _completed(transaction: Transaction, now_ms: int) -> Transaction:
    commits = transaction.state is TransactionState.PREPARE_COMMIT
    done = replace(
        transaction,
        state=TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
    if transaction.next_id == NO_ID:
        return done
    return replace(
        done,
        producer_id=transaction.next_id,
        previous_id=transaction.producer_id,
        next_id=NO_ID,
        epoch=0,
    )


def _decided(transaction: Transaction) -> Outcome[Reply]:
    after = _completed(transaction, transaction.updated_ms)
    return Outcome(
        Reply(ProducerIdentity(after.producer_id, after.epoch)),
        [records.encode(transaction)],
        [_ending(transaction)],
    )


def _repeated(transaction: Transaction, request: EndRequest) -> Outcome[Reply]:
    """Answer an EndTxn of a transaction that has ended, or is about to."""
    match transaction.state, request.commit:
        case (TransactionState.COMPLETE_COMMIT, True) | (TransactionState.COMPLETE_ABORT, False):
            return Outcome(Reply(ProducerIdentity(transaction.producer_id, transaction.epoch)))
        case (TransactionState.PREPARE_COMMIT, True) | (TransactionState.PREPARE_ABORT, False):
            raise ApiError(ErrorCode.concurrent_transactions)
        case _:
            raise ApiError(ErrorCode.invalid_txn_state)


def _ending(transaction: Transaction) -> Ending:
    return Ending(
        transaction.transactional_id,
        ProducerIdentity(transaction.producer_id, transaction.epoch),
        transaction.state is TransactionState.PREPARE_COMMIT,
        tuple(sorted(transaction.partitions)),
    )
