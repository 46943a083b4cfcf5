"""The APIs of transactions: what producers send, and what administrators ask."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.broker.groups import OffsetCommit, PartitionCommit
from headwater.broker.groups.regex import InvalidPattern, compile_pattern
from headwater.broker.transactions import (
    NOBODY,
    EndRequest,
    InitRequest,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from headwater.broker.transactions.records import by_topic
from headwater.core.errors import ApiError, ErrorCode
from headwater.log.errors import PartitionError
from headwater.net.kafka.api import Answer, Handler, Request
from headwater.net.kafka.transaction_service import GROUPS_PARTITION

if TYPE_CHECKING:
    from headwater.net.node import Node

_NO_ID = -1
_MILLISECOND = timedelta(milliseconds=1)
_END_BUMPS_FROM = 5
_OFFSETS_ADD_FROM = 5
_OFFSETS_ABORTABLE_FROM = 4
_BY_TRANSACTION_FROM = 4


def _answered(error: ApiError, *, fenced: bool) -> ErrorCode:
    """Return the code that a producer is answered with; PRODUCER_FENCED came with later versions."""
    if error.code is ErrorCode.producer_fenced and not fenced:
        return ErrorCode.invalid_producer_epoch
    if error.code is ErrorCode.kafka_storage_error:
        return ErrorCode.not_coordinator
    return error.code


def _ms(value: timedelta | int) -> int:
    return value // _MILLISECOND if isinstance(value, timedelta) else int(value)


# -- producers -----------------------------------------------------------------------------------


async def init_producer_id(node: Node, request: Request, message: Any) -> Answer:
    """Give a producer an id and epoch: a new id without a transactional id, else the next epoch."""
    given = ProducerIdentity(
        getattr(message, "producer_id", _NO_ID), getattr(message, "producer_epoch", _NO_ID)
    )
    if message.transactional_id == "" or given.count(_NO_ID) == 1:
        return _producer(ErrorCode.invalid_request)
    if message.transactional_id is None:
        ids = node.producer_ids
        while not ids.left:
            await node.commit_topics(ids.reserve())
        producer_id = ids.take()
        # The block may have been reserved by another request, whose record is still on its way to the disk.
        await node.commit_topics(())
        return _producer(ErrorCode.none, ProducerIdentity(producer_id, 0))
    try:
        reply = await node.transaction_service.init(
            InitRequest(message.transactional_id, _ms(message.transaction_timeout), given)
        )
    except ApiError as error:
        return _producer(_answered(error, fenced=request.version >= 4))
    return _producer(reply.error, reply.producer)


def _producer(code: ErrorCode, producer: ProducerIdentity = NOBODY) -> Answer:
    return {"error_code": code, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}


async def add_partitions_to_txn(node: Node, request: Request, message: Any) -> Answer:
    """Add partitions to transactions: of one producer, or from version 4 on of several, as brokers ask."""
    if request.version < _BY_TRANSACTION_FROM:
        producer = ProducerIdentity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        topics = message.v3_and_below_topics
        codes = await _added(
            node, request, message.v3_and_below_transactional_id, producer, topics, verify=False
        )
        return {"results_by_topic_v3_and_below": _topic_results(topics, codes)}
    results = []
    for transaction in message.transactions:
        producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        codes = await _added(
            node,
            request,
            transaction.transactional_id,
            producer,
            transaction.topics,
            verify=transaction.verify_only,
        )
        results.append(
            {
                "transactional_id": transaction.transactional_id,
                "topic_results": _topic_results(transaction.topics, codes),
            }
        )
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


async def _added(
    node: Node,
    request: Request,
    transactional_id: str,
    producer: ProducerIdentity,
    topics: Any,
    *,
    verify: bool,
) -> dict[TopicPartition, ErrorCode]:
    """Return a code for each partition; one that does not exist keeps all the others out too."""
    partitions = [TopicPartition(topic.name, p) for topic in topics for p in topic.partitions]
    missing = [p for p in partitions if node.logs.get(*p) is None]
    if missing:
        codes = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
        return codes | dict.fromkeys(missing, ErrorCode.unknown_topic_or_partition)
    try:
        if verify:
            return {p: _verified(node, transactional_id, producer, p) for p in partitions}
        await node.transaction_service.add_partitions(transactional_id, producer, partitions)
    except ApiError as error:
        return dict.fromkeys(partitions, _answered(error, fenced=request.version >= 2))
    return dict.fromkeys(partitions, ErrorCode.none)


def _verified(
    node: Node, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
) -> ErrorCode:
    try:
        node.transactions.verify(transactional_id, producer, partition)
    except ApiError as error:
        return error.code
    return ErrorCode.none


def _topic_results(topics: Any, codes: dict[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": p, "partition_error_code": codes[TopicPartition(topic.name, p)]}
                for p in topic.partitions
            ],
        }
        for topic in topics
    ]


async def add_offsets_to_txn(node: Node, request: Request, message: Any) -> Answer:
    """Add the partition of a group's offsets to a transaction."""
    producer = ProducerIdentity(message.producer_id, message.producer_epoch)
    try:
        if not message.group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        await node.transaction_service.add_partitions(message.transactional_id, producer, [GROUPS_PARTITION])
    except ApiError as error:
        return {"error_code": _answered(error, fenced=request.version >= 2)}
    return {"error_code": ErrorCode.none}


async def end_txn(node: Node, request: Request, message: Any) -> Answer:
    """Commit or abort a transaction."""
    producer = ProducerIdentity(message.producer_id, message.producer_epoch)
    end = EndRequest(
        message.transactional_id,
        producer,
        message.committed,
        bumps_epoch=request.version >= _END_BUMPS_FROM,
    )
    try:
        reply = await node.transaction_service.end(end)
    except ApiError as error:
        return _producer(_answered(error, fenced=request.version >= 2))
    return _producer(reply.error, reply.producer)


async def txn_offset_commit(node: Node, request: Request, message: Any) -> Answer:
    """Keep a group's offsets for when a transaction commits."""
    known = [
        PartitionCommit(
            topic.name,
            p.partition_index,
            p.committed_offset,
            getattr(p, "committed_leader_epoch", -1),
            p.committed_metadata or "",
        )
        for topic in message.topics
        for p in topic.partitions
        if node.logs.get(topic.name, p.partition_index) is not None
    ]
    codes = dict(
        zip(((c.topic, c.partition) for c in known), await _pend(node, request, message, known), strict=True)
    )
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": codes.get(
                            (topic.name, p.partition_index), ErrorCode.unknown_topic_or_partition
                        ),
                    }
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ]
    }


async def _pend(
    node: Node, request: Request, message: Any, commits: list[PartitionCommit]
) -> Sequence[ErrorCode]:
    if not commits:
        return []
    producer = ProducerIdentity(message.producer_id, message.producer_epoch)
    commit = OffsetCommit(
        message.group_id,
        tuple(commits),
        getattr(message, "generation_id", -1),
        getattr(message, "member_id", ""),
        getattr(message, "group_instance_id", None),
    )
    adds = request.version >= _OFFSETS_ADD_FROM
    service = node.group_service
    try:
        if not message.group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        transactions = node.transaction_service
        transactions.admit(message.transactional_id, producer, GROUPS_PARTITION, add=adds)
        if adds:
            # Pending offsets keep no epoch: were they on disk before the transaction they belong to, a crash
            # could leave them to the one before.
            await transactions.settled()
            transactions.admit(message.transactional_id, producer, GROUPS_PARTITION, add=False)
        outcome = node.groups.commit_transactional(service.now(), commit, producer.producer_id)
        codes = await service.answer(outcome)
        await transactions.settled()
    except ApiError as error:
        code = error.code
        if code is ErrorCode.transaction_abortable and request.version < _OFFSETS_ABORTABLE_FROM:
            code = ErrorCode.invalid_txn_state
        elif code is ErrorCode.concurrent_transactions and not adds:
            code = ErrorCode.coordinator_not_available  # what older clients take for a reason to try again
        elif code is ErrorCode.kafka_storage_error:
            code = ErrorCode.not_coordinator
        return [code] * len(commits)
    return codes


# -- administrators ------------------------------------------------------------------------------


async def write_txn_markers(node: Node, request: Request, message: Any) -> Answer:
    """End transactions in partitions, as an administrator does with one that hangs."""
    answered = []
    for marker in message.markers:
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        topics = []
        for topic in marker.topics:
            results = []
            for p in topic.partition_indexes:
                code = ErrorCode.unknown_topic_or_partition
                partition = TopicPartition(topic.name, p)
                if node.logs.get(*partition) is not None:
                    code = await _marked(node, producer, partition, commit=marker.transaction_result)
                results.append({"partition_index": p, "error_code": code})
            topics.append({"name": topic.name, "partitions": results})
        answered.append({"producer_id": marker.producer_id, "topics": topics})
    return {"markers": answered}


async def _marked(
    node: Node, producer: ProducerIdentity, partition: TopicPartition, *, commit: bool
) -> ErrorCode:
    try:
        await node.transaction_service.mark(producer, [partition], commit=commit)
    except (ApiError, PartitionError) as error:
        return error.code
    return ErrorCode.none


async def describe_producers(node: Node, request: Request, message: Any) -> Answer:
    """List the producers that partitions remember."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_producers(node, topic.name, p) for p in topic.partition_indexes],
            }
            for topic in message.topics
        ]
    }


def _producers(node: Node, topic: str, partition: int) -> dict[str, Any]:
    log = node.logs.get(topic, partition)
    if log is None:
        return {
            "partition_index": partition,
            "error_code": ErrorCode.unknown_topic_or_partition,
            "error_message": None,
            "active_producers": (),
        }
    active = []
    for producer_id, producer in log.producers.items():
        last = producer.batches[-1] if producer.batches else None
        begun = producer.transaction_start
        active.append(
            {
                "producer_id": producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": -1 if last is None else last.last_sequence,
                "last_timestamp": producer.seen_ms if last is None else last.timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": -1 if begun is None else begun,
            }
        )
    return {
        "partition_index": partition,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": active,
    }


async def describe_transactions(node: Node, request: Request, message: Any) -> Answer:
    """Describe transactional ids and their current or last transactions."""
    await node.transaction_service.settled()
    return {"transaction_states": [_described(node, name) for name in message.transactional_ids]}


def _described(node: Node, transactional_id: str) -> dict[str, Any]:
    transaction = node.transactions.transactions.get(transactional_id)
    if transaction is None:
        code = ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
        transaction = Transaction(transactional_id, 0, 0, 0)
        state = ""
        started_ms = 0
    else:
        code, state, started_ms = ErrorCode.none, transaction.state.title, transaction.started_ms
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": state,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": started_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "topics": [{"topic": name, "partitions": p} for name, p in by_topic(transaction.partitions)],
    }


async def list_transactions(node: Node, request: Request, message: Any) -> Answer:
    """List transactional ids by state, producer, age and pattern."""
    await node.transaction_service.settled()
    states = {state.title: state for state in TransactionState}
    wanted = {states[name] for name in message.state_filters if name in states}
    longer_than_ms = getattr(message, "duration_filter", -1)
    pattern = getattr(message, "transactional_id_pattern", None)
    try:
        names = compile_pattern(pattern) if pattern else None
    except InvalidPattern as error:
        raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from error
    now_ms = node.clock.wall_ms()
    listed = [
        {
            "transactional_id": t.transactional_id,
            "producer_id": t.producer_id,
            "transaction_state": t.state.title,
        }
        for t in node.transactions.transactions.values()
        if (not message.producer_id_filters or t.producer_id in message.producer_id_filters)
        and (not message.state_filters or t.state in wanted)
        and (longer_than_ms < 0 or now_ms - t.started_ms > longer_than_ms)
        and (names is None or names.matches(t.transactional_id))
    ]
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": [name for name in message.state_filters if name not in states],
        "transaction_states": listed,
    }


HANDLERS: dict[int, Handler] = {
    22: init_producer_id,
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_txn_markers,
    28: txn_offset_commit,
    61: describe_producers,
    65: describe_transactions,
    66: list_transactions,
}
