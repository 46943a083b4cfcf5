"""The APIs of transactions on a node with a disk, asked as clients of every version would."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_reader

from headwater.broker.topics import NewTopic
from headwater.broker.transactions import EndRequest, ProducerIdentity, TopicPartition, TransactionState
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka import transaction_service
from headwater.net.kafka.api import Request
from headwater.net.kafka.handlers import HANDLERS
from headwater.net.kafka.transaction_service import admit
from headwater.net.node import Node
from headwater.record.batch import TRANSACTIONAL, Buffer, read_header
from headwater.record.records import Record, encode_batch
from headwater.testing.clock import ManualClock
from headwater.wire.kafka.codec import encode_response
from headwater.wire.kafka.schema import request_type, response_type
from headwater.wire.kafka.versions import response_header_is_flexible

from .fake_node import entity

INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT_OFFSETS = 22, 24, 25, 26, 27, 28
FETCH_OFFSETS, PRODUCERS, DESCRIBE, LIST = 9, 61, 65, 66
MINUTE = timedelta(minutes=1)


@asynccontextmanager
async def running(path: Path, clock: ManualClock) -> AsyncIterator[Node]:
    """Run a node over a data directory, which gets a topic `t` with two partitions."""
    node = Node(path, clock, {}, synced=True)
    node.open()
    if "t" not in node.topics.by_name:
        await node.commit_topics(node.topics.create(NewTopic("t", 2))[1])
    node.start()
    yield node
    await node.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def node(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Node]:
    async with running(tmp_path, clock) as made:
        yield made


async def ask(node: Node, api: int, version: int, **fields: Any) -> Any:
    message = entity(request_type(api, version), fields)
    answer = await HANDLERS[api](node, Request(api, version, "tester", "127.0.0.1"), message)
    frame = encode_response(api, version, 1, answer)
    return entity_reader(response_type(api, version))(frame, 8 + response_header_is_flexible(api, version))[0]


async def begin(node: Node, name: str = "x", version: int = 5) -> ProducerIdentity:
    reply = await ask(node, INIT, version, transactional_id=name, transaction_timeout=MINUTE)
    assert reply.error_code is ErrorCode.none
    return ProducerIdentity(reply.producer_id, reply.producer_epoch)


def transactional_batch(producer: ProducerIdentity, now_ms: int, sequence: int = 0) -> bytearray:
    return encode_batch(
        [Record(0, now_ms, b"k", b"v")],
        attributes=TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )


def write(
    node: Node, producer: ProducerIdentity, *, partition: int = 0, sequence: int = 0, version: int = 12
) -> int:
    """Append a batch as Produce does."""
    log = node.logs.get("t", partition)
    assert log is not None
    now_ms = node.clock.wall_ms()
    batch = transactional_batch(producer, now_ms, sequence)
    header = read_header(batch)
    admit(node, version, "x", header, log)
    offset = log.append(memoryview(batch), header, now_ms)
    node.commit.add(log)
    return offset


def refusal(node: Node, producer: ProducerIdentity, **how: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        write(node, producer, **how)
    return caught.value.code


async def end(node: Node, producer: ProducerIdentity, *, committed: bool = True, version: int = 5) -> Any:
    return await ask(
        node,
        END,
        version,
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=committed,
    )


async def add(node: Node, producer: ProducerIdentity, version: int = 3, partition: int = 0) -> ErrorCode:
    topics = [{"name": "t", "partitions": [partition]}]
    if version < 4:
        reply = await ask(
            node,
            ADD,
            version,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
        results = reply.results_by_topic_v3_and_below
    else:
        transaction = {"transactional_id": "x", **producer_fields(producer), "topics": topics}
        reply = await ask(node, ADD, version, transactions=[transaction])
        results = reply.results_by_transaction[0].topic_results
    code: ErrorCode = results[0].results_by_partition[0].partition_error_code
    return code


def producer_fields(producer: ProducerIdentity) -> dict[str, int]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


@pytest.mark.parametrize("version", range(6))
async def test_init_raises_the_epoch(node: Node, version: int) -> None:
    first = await begin(node, version=version)
    second = await begin(node, version=version)
    assert (first.epoch, second.epoch) == (0, 1)
    assert first.producer_id == second.producer_id


async def test_a_transaction_from_begin_to_end(node: Node) -> None:
    producer = await begin(node)
    log = node.logs.get("t", 0)
    assert log is not None
    assert write(node, producer) == 0
    assert write(node, producer, sequence=1) == 1
    reply = await end(node, producer)
    assert (reply.error_code, reply.producer_id) == (ErrorCode.none, producer.producer_id)
    assert reply.producer_epoch == producer.epoch + 1
    assert log.end_offset == 3, "two records and a marker"
    assert log.last_stable_offset == 3
    assert log.producers.open_transactions == {}
    assert node.transactions.transactions["x"].state is TransactionState.COMPLETE_COMMIT
    assert refusal(node, producer) is ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("version", range(6))
async def test_older_clients_add_partitions_themselves(node: Node, version: int) -> None:
    producer = await begin(node)
    assert refusal(node, producer, version=9) is ErrorCode.invalid_txn_state
    assert refusal(node, producer, version=11) is ErrorCode.transaction_abortable
    assert await add(node, producer, version) is ErrorCode.none
    assert write(node, producer, version=9) == 0
    assert refusal(node, producer, version=9, partition=1) is ErrorCode.invalid_txn_state
    reply = await end(node, producer, version=min(version, 4))
    assert reply.error_code is ErrorCode.none
    assert refusal(node, producer, version=9, sequence=1) is ErrorCode.invalid_txn_state


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.invalid_producer_epoch),
        (1, ErrorCode.invalid_producer_epoch),
        (2, ErrorCode.producer_fenced),
    ],
)
async def test_clients_are_told_of_fencing_by_the_name_they_know(
    node: Node, version: int, code: ErrorCode
) -> None:
    producer = await begin(node)
    await begin(node)
    assert await add(node, producer, version) is code
    assert (await end(node, producer, version=version)).error_code is code
    reply = await ask(
        node, ADD_OFFSETS, version, transactional_id="x", group_id="g", **producer_fields(producer)
    )
    assert reply.error_code is code


async def test_a_partition_that_does_not_exist_keeps_the_others_out(node: Node) -> None:
    producer = await begin(node)
    assert await add(node, producer, partition=7) is ErrorCode.unknown_topic_or_partition
    assert node.transactions.transactions["x"].state is TransactionState.EMPTY


async def test_init_over_an_open_transaction_aborts_it_and_answers_at_once(node: Node) -> None:
    producer = await begin(node)
    write(node, producer)
    heir = await begin(node)
    assert heir.epoch > producer.epoch
    log = node.logs.get("t", 0)
    assert log is not None
    assert [tuple(aborted)[:2] for aborted in log.transactions.aborted] == [(producer.producer_id, 0)]
    assert refusal(node, producer) is ErrorCode.invalid_producer_epoch


async def test_producers_that_ask_at_once_get_different_epochs(node: Node) -> None:
    producer = await begin(node)
    heirs = await asyncio.gather(*(begin(node) for _ in range(5)))
    epochs = [heir.epoch for heir in heirs]
    assert len({producer.epoch, *epochs}) == 6
    newest = max(heirs, key=lambda heir: heir.epoch)
    assert [heir for heir in heirs if await add(node, heir) is ErrorCode.none] == [newest]


async def test_a_transaction_past_its_time_is_aborted(node: Node, clock: ManualClock) -> None:
    producer = await begin(node)
    write(node, producer)
    clock.advance(60_001)
    await node.transaction_service.abort_timed_out()
    assert (await end(node, producer)).error_code is ErrorCode.invalid_txn_state
    heir = await begin(node)
    assert node.transactions.transactions["x"].state is TransactionState.EMPTY
    assert heir.epoch > producer.epoch


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_offsets_wait_for_the_end_of_the_transaction(node: Node, version: int, committed: bool) -> None:
    producer = await begin(node)
    if version < 5:
        fields = {"transactional_id": "x", "group_id": "g", **producer_fields(producer)}
        assert (await ask(node, ADD_OFFSETS, 3, **fields)).error_code is ErrorCode.none
    assert await commit_offset(node, producer, version) is ErrorCode.none
    assert await offset(node, stable=False) == (ErrorCode.none, -1)
    assert await offset(node, stable=True) == (ErrorCode.unstable_offset_commit, -1)
    assert (await end(node, producer, committed=committed)).error_code is ErrorCode.none
    assert await offset(node, stable=True) == (ErrorCode.none, 42 if committed else -1)
    assert not len(node.groups.pending)


async def commit_offset(node: Node, producer: ProducerIdentity, version: int = 5, **fields: Any) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": 42, "committed_metadata": "m"}
    reply = await ask(
        node,
        COMMIT_OFFSETS,
        version,
        transactional_id="x",
        group_id="g",
        topics=[{"name": "t", "partitions": [partition]}],
        **producer_fields(producer),
        **fields,
    )
    code: ErrorCode = reply.topics[0].partitions[0].error_code
    return code


async def offset(node: Node, *, stable: bool) -> tuple[ErrorCode, int]:
    topics = [{"name": "t", "partition_indexes": [0]}]
    reply = await ask(node, FETCH_OFFSETS, 7, group_id="g", topics=topics, require_stable=stable)
    [partition] = reply.topics[0].partitions
    return partition.error_code, partition.committed_offset


async def test_offsets_of_a_fenced_producer_or_an_unknown_member_are_refused(node: Node) -> None:
    stale = await begin(node)
    producer = await begin(node)
    assert await commit_offset(node, stale) is ErrorCode.invalid_producer_epoch
    assert await commit_offset(node, producer, version=3) is ErrorCode.invalid_txn_state
    assert await commit_offset(node, producer, version=4) is ErrorCode.transaction_abortable
    assert await commit_offset(node, producer, generation_id=3, member_id="m") is ErrorCode.illegal_generation


async def test_a_restart_finishes_what_was_decided(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock) as node:
        producer = await begin(node)
        write(node, producer)
        await commit_offset(node, producer)
        request = EndRequest("x", producer, commit=True)
        outcome = node.transactions.end(node.clock.wall_ms(), request, node.producer_ids.take)
        await node.commit_transactions(outcome.records)
    async with running(tmp_path, clock) as again:
        async with asyncio.timeout(10):
            while (await end(again, producer)).error_code:  # noqa: ASYNC110  # as a client asks again
                await asyncio.sleep(0.01)
        assert (await end(again, producer)).error_code is ErrorCode.none
        assert await offset(again, stable=True) == (ErrorCode.none, 42)
        log = again.logs.get("t", 0)
        assert log is not None
        assert (log.producers.open_transactions, log.end_offset) == ({}, 2)


@pytest.mark.parametrize(
    ("full", "passing"),
    [("/topics/__transaction_state.", 1), ("/topics/__consumer_offsets.", 0), ("/topics/t.", 0)],
    ids=["that it is over", "the offsets", "the marker"],
)
async def test_a_transaction_that_a_full_disk_keeps_from_ending_ends_once_there_is_room(
    node: Node, full: str, passing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await begin(node)
    write(node, producer)
    await commit_offset(node, producer)
    write_to_disk = node.logs.disk.pwrite
    writes = itertools.count()

    def refuse_one(fd: int, data: Buffer, position: int) -> int:
        # The decision itself is written before: that passes.
        if full in str(Path(f"/proc/self/fd/{fd}").readlink()) and next(writes) == passing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_to_disk(fd, data, position)

    monkeypatch.setattr(node.logs.disk, "pwrite", refuse_one)
    monkeypatch.setattr(transaction_service, "_RETRY_SECONDS", 0.01)
    answer = await end(node, producer)
    assert answer.error_code is ErrorCode.none
    assert next(writes) > passing, "the disk was full"
    assert node.transactions.transactions["x"].state is TransactionState.COMPLETE_COMMIT
    assert await offset(node, stable=True) == (ErrorCode.none, 42)


async def test_describing_and_listing(node: Node) -> None:
    producer = await begin(node)
    write(node, producer)
    await begin(node, "idle")
    [found] = (await ask(node, DESCRIBE, 0, transactional_ids=["x"])).transaction_states
    assert (found.error_code, found.transaction_state) == (ErrorCode.none, "Ongoing")
    assert ProducerIdentity(found.producer_id, found.producer_epoch) == producer
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", (0,))]
    [missing] = (await ask(node, DESCRIBE, 0, transactional_ids=["nobody"])).transaction_states
    assert missing.error_code is ErrorCode.transactional_id_not_found

    async def listed(version: int = 2, **filters: Any) -> set[str]:
        reply = await ask(node, LIST, version, **filters)
        assert reply.error_code is ErrorCode.none
        return {state.transactional_id for state in reply.transaction_states}

    assert await listed() == {"x", "idle"}
    assert await listed(0, state_filters=["Ongoing", "NoSuchState"]) == {"x"}
    assert await listed(producer_id_filters=[producer.producer_id]) == {"x"}
    assert await listed(1, duration_filter=10_000_000_000_000) == set()
    assert await listed(transactional_id_pattern="i.*") == {"idle"}
    unknown = await ask(node, LIST, 0, state_filters=["NoSuchState"])
    assert unknown.unknown_state_filters == ("NoSuchState",)


async def test_producers_of_a_partition_and_ending_one_by_hand(node: Node) -> None:
    producer = await begin(node)
    write(node, producer)
    topics = [{"name": "t", "partition_indexes": [0, 9]}]
    here, missing = (await ask(node, PRODUCERS, 0, topics=topics)).topics[0].partitions
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    [active] = here.active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (*producer, 0)
    assert active.current_txn_start_offset == 0
    marker = {
        **producer_fields(producer),
        "transaction_result": False,
        "topics": topics,
        "coordinator_epoch": 0,
    }
    reply = await ask(node, MARKERS, 1, markers=[marker])
    ended, unknown = reply.markers[0].topics[0].partitions
    assert (ended.error_code, unknown.error_code) == (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
    log = node.logs.get("t", 0)
    assert log is not None
    assert log.producers.open_transactions == {}


async def test_a_crash_may_leave_the_partition_ahead_of_the_coordinator(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The batch got to the disk, the record that adds its partition did not."""
    async with running(tmp_path, clock) as node:
        producer = await begin(node)
        log = node.logs.get("t", 1)
        assert log is not None
        batch = transactional_batch(producer, node.clock.wall_ms())
        log.append(memoryview(batch), read_header(batch), node.clock.wall_ms())
    async with running(tmp_path, clock) as again:
        transaction = again.transactions.transactions["x"]
        assert transaction.state is TransactionState.ONGOING
        assert transaction.partitions == {TopicPartition("t", 1)}
        assert (await end(again, producer)).error_code is ErrorCode.none
        reopened = again.logs.get("t", 1)
        assert reopened is not None
        assert reopened.producers.open_transactions == {}


async def test_an_open_transaction_that_belongs_to_nobody_is_aborted(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with running(tmp_path, clock) as node:
        log = node.logs.get("t", 1)
        assert log is not None
        batch = transactional_batch(ProducerIdentity(999, 3), node.clock.wall_ms())
        log.append(memoryview(batch), read_header(batch), node.clock.wall_ms())
    async with running(tmp_path, clock) as again, asyncio.timeout(10):
        reopened = again.logs.get("t", 1)
        assert reopened is not None
        while reopened.producers.open_transactions:  # noqa: ASYNC110  # nobody is told of it
            await asyncio.sleep(0.01)
        assert [aborted.producer_id for aborted in reopened.transactions.aborted] == [999]
