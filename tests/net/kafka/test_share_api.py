"""Share groups on a node without sockets: fetches that wait, several partitions, restarts, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from kio.serial import entity_reader

from headwater.broker.share.records import ShareKey
from headwater.broker.topics import NewTopic
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.exposition import exposition
from headwater.net.kafka.api import Request
from headwater.net.kafka.connection import KafkaConnection, Slot
from headwater.net.kafka.handlers import HANDLERS
from headwater.net.kafka.listener import KafkaListener
from headwater.net.kafka.share_fetch import ShareFetch
from headwater.net.node import Node
from headwater.net.state_log import next_sync
from headwater.record.batch import TRANSACTIONAL, read_header
from headwater.record.records import Record, encode_batch
from headwater.testing.clock import ManualClock
from headwater.wire.kafka.codec import encode_response
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.schema import request_type, response_type
from headwater.wire.kafka.versions import Api

from .fake_node import entity

ACCEPT, RELEASE = 1, 2
Acquired = list[tuple[int, int, int]]


@asynccontextmanager
async def running(path: Path, clock: ManualClock, **settings: str) -> AsyncIterator[Node]:
    """Run a node over a data directory, which gets a topic `t` with two partitions."""
    node = Node(path, clock, {name.replace("_", "."): value for name, value in settings.items()}, synced=True)
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


async def produce(node: Node, count: int, partition: int = 0, size: int = 10, age_ms: int = 0) -> None:
    log = node.logs.get("t", partition)
    assert log is not None
    now_ms = node.clock.wall_ms() - age_ms  # what is much older falls to retention
    batch = encode_batch([Record(i, now_ms, b"k", b"v" * size) for i in range(count)])
    log.append(memoryview(batch), read_header(batch), now_ms)
    node.commit.add(log)
    await next_sync(node.commit)


def set_group(node: Node, name: str, value: str) -> None:
    """Give the group `g` a setting of its own."""
    for record in node.group_configs.alter("g", {name: value}):
        node.group_configs.replay(record)


async def ask(node: Node, api: Api, version: int, **fields: Any) -> Any:
    message = entity(request_type(api, version), fields)
    try:
        answer = await HANDLERS[api](node, Request(api, version, "tester", "127.0.0.1"), message)
    except ApiError as error:
        return error.code
    return entity_reader(response_type(api, version))(encode_response(api, version, 1, answer), 9)[0]


@dataclass(eq=False)
class FakeConnection:
    """What a ShareFetch needs of a connection."""

    node: Node
    peer: str = "127.0.0.1"
    shares: bool = False
    memory: int = 1_000_000
    answers: list[bytes] = field(default_factory=list)

    def room(self) -> int:
        return self.memory

    def reply(self, slot: Slot, pieces: list[Any]) -> None:
        self.answers.append(b"".join(pieces))


class Member:
    """A member with a connection, which takes records of some partitions of `t`."""

    def __init__(self, node: Node, name: str = "m", partitions: Sequence[int] = (0,)) -> None:
        self.node, self.name, self.partitions = node, name, partitions
        self.connection = FakeConnection(node)
        self.session = 0
        self.fetching: ShareFetch | None = None

    @property
    def topic_id(self) -> UUID:
        return self.node.topics.by_name["t"].id

    async def join(self) -> Member:
        reply = await ask(
            self.node, Api.SHARE_GROUP_HEARTBEAT, 1,
            group_id="g", member_id=self.name, member_epoch=0, subscribed_topic_names=["t"],
        )  # fmt: skip
        assert reply.error_code is ErrorCode.none
        return self

    def _topics(self, acks: Sequence[tuple[int, int, int]], partition: int = 0) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
            for first, last, kind in acks
        ]
        indexes = self.partitions if self.session <= 0 and not acks else (partition,)
        parts = [{"partition_index": each, "acknowledgement_batches": batches} for each in indexes]
        return [{"topic_id": self.topic_id, "partitions": parts}]

    async def fetch(
        self, *acks: tuple[int, int, int], partition: int = 0, **changes: Any
    ) -> dict[int, Acquired]:
        fields: dict[str, Any] = {
            "group_id": "g",
            "member_id": self.name,
            "share_session_epoch": self.session,
            "max_wait": timedelta(0),
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(acks, partition),
        }
        message = entity(request_type(Api.SHARE_FETCH, 2), fields | changes)
        header = RequestHeader(Api.SHARE_FETCH, 2, 1, "tester", 0)
        self.session += 1
        self.fetching = ShareFetch(cast(KafkaConnection, self.connection), Slot(), header, message)
        await self.fetching.run()
        if not self.connection.answers:
            return {}
        response: Any
        response, _ = entity_reader(response_type(Api.SHARE_FETCH, 2))(self.connection.answers.pop(), 9)
        assert response.error_code is ErrorCode.none
        return {
            part.partition_index: [
                (r.first_offset, r.last_offset, r.delivery_count) for r in part.acquired_records
            ]
            for topic in response.responses
            for part in topic.partitions
        }

    async def accept(self, first: int, last: int, partition: int = 0) -> ErrorCode:
        reply = await ask(
            self.node, Api.SHARE_ACKNOWLEDGE, 2,
            group_id="g", member_id=self.name, share_session_epoch=self.session,
            topics=self._topics([(first, last, ACCEPT)], partition),
        )  # fmt: skip
        self.session += 1
        [[part]] = [topic.partitions for topic in reply.responses]
        return ErrorCode(part.error_code)


async def start_at_zero(node: Node) -> None:
    parts = [{"partition_index": index, "start_offset": 0} for index in range(2)]
    reply = await ask(
        node,
        Api.ALTER_SHARE_GROUP_OFFSETS,
        0,
        group_id="g",
        topics=[{"topic_name": "t", "partitions": parts}],
    )
    assert reply.error_code is ErrorCode.none


async def test_a_group_begins_at_the_end_and_stays_where_it_began(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock) as node:
        await produce(node, 3)
        member = await Member(node).join()
        assert await member.fetch() == {0: []}
        await produce(node, 2)
        assert await member.fetch(topics=[]) == {0: [(3, 4, 1)]}
    async with running(tmp_path, clock) as node:
        # Nothing was acknowledged, and yet nothing that was delivered is forgotten.
        assert await Member(node).fetch() == {0: [(3, 4, 1)]}


async def test_what_was_accepted_stays_accepted(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock) as node:
        await start_at_zero(node)
        await produce(node, 10)
        member = await Member(node).join()
        assert await member.fetch() == {0: [(0, 9, 1)]}
        assert await member.accept(3, 5) is ErrorCode.none
        assert await member.fetch((6, 6, RELEASE)) == {0: [(6, 6, 2)]}
    async with running(tmp_path, clock) as node:
        assert await Member(node).fetch() == {0: [(0, 2, 1), (6, 6, 2), (7, 9, 1)]}


async def test_records_of_several_partitions_share_the_limits(node: Node) -> None:
    await start_at_zero(node)
    for partition in (0, 1):
        for _ in range(3):
            await produce(node, 4, partition)
    member = await Member(node, partitions=(0, 1)).join()
    assert await member.fetch(max_records=6) == {0: [(0, 7, 1)], 1: []}
    # The other partition has its turn now.
    assert await member.fetch(topics=[], max_records=6) == {1: [(0, 7, 1)]}
    assert await member.fetch(topics=[], max_bytes=1) == {0: [(8, 11, 1)]}
    member.connection.memory = 0
    assert await member.fetch(topics=[]) == {}


async def test_a_fetch_waits_for_enough_bytes_or_until_its_time_is_up(node: Node) -> None:
    await start_at_zero(node)
    member = await Member(node).join()
    await member.fetch()
    waiting = asyncio.create_task(member.fetch(topics=[], max_wait=timedelta(seconds=20), min_bytes=1000))
    await produce(node, 1, size=10)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await produce(node, 1, size=2000)
    assert await asyncio.wait_for(waiting, 5) == {0: [(0, 1, 1)]}
    assert await member.fetch(topics=[], max_wait=timedelta(milliseconds=20)) == {}


async def test_what_a_lost_connection_held_goes_to_who_waits(node: Node) -> None:
    await start_at_zero(node)
    await produce(node, 5)
    first, second = await Member(node, "a").join(), await Member(node, "b").join()
    assert await first.fetch() == {0: [(0, 4, 1)]}
    assert await second.fetch() == {0: []}
    waiting = asyncio.create_task(second.fetch(topics=[], max_wait=timedelta(seconds=20)))
    await asyncio.sleep(0.01)
    assert first.connection.shares
    node.share_service.disconnected(first.connection)
    assert await asyncio.wait_for(waiting, 5) == {0: [(0, 4, 2)]}
    assert await second.accept(0, 4) is ErrorCode.none
    # One that is abandoned takes nothing.
    waiting = asyncio.create_task(second.fetch(topics=[], max_wait=timedelta(seconds=20)))
    await asyncio.sleep(0.01)
    assert second.fetching is not None
    second.fetching.abandon()
    await asyncio.wait_for(waiting, 5)
    await produce(node, 1)
    third = await Member(node, "c").join()
    assert await third.fetch() == {0: [(5, 5, 1)]}


async def test_a_lock_that_ends_wakes_who_waits(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock, group_share_record_lock_duration_ms="1000") as node:
        await start_at_zero(node)
        await produce(node, 2)
        first, second = await Member(node, "a").join(), await Member(node, "b").join()
        assert await first.fetch() == {0: [(0, 1, 1)]}
        await second.fetch()
        waiting = asyncio.create_task(second.fetch(topics=[], max_wait=timedelta(seconds=20)))
        await asyncio.sleep(0.01)
        clock.advance(1000)
        node.share_service.run_due()
        assert await asyncio.wait_for(waiting, 5) == {0: [(0, 1, 2)]}
        assert await first.accept(0, 1) is ErrorCode.invalid_record_state


async def test_a_topic_or_a_group_that_is_deleted_takes_its_state_along(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with running(tmp_path, clock) as node:
        await start_at_zero(node)
        assert len(node.shares.partitions) == 2
        await node.commit_topics(node.topics.delete(node.topics.by_name["t"]))
        assert (node.shares.partitions, node.groups.share.find("g").shared) == ({}, {})
    async with running(tmp_path, clock) as node:
        await start_at_zero(node)
        reply = await ask(node, Api.DELETE_GROUPS, 2, groups_names=["g"])
        assert [each.error_code for each in reply.results] == [ErrorCode.none]
        assert node.shares.partitions == {}
        # As if the broker had been killed between the two.
        key = ShareKey("gone", node.topics.by_name["t"].id, 0)
        node.share_service.apply(node.shares.initialize(node.share_service.now(), {key: 7}))
        await node.shares_durable()
    async with running(tmp_path, clock) as node:
        assert node.shares.partitions == {}


async def test_what_a_group_is_not_done_with_is_its_lag(node: Node) -> None:
    await start_at_zero(node)
    await produce(node, 10)
    member = await Member(node).join()
    await member.fetch()
    assert await member.accept(4, 6) is ErrorCode.none
    reply = await ask(node, Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": "g", "topics": None}])
    [[first, second]] = [topic.partitions for topic in reply.groups[0].topics]
    assert [(each.start_offset, each.lag) for each in (first, second)] == [(0, 7), (0, 0)]
    page = exposition(node, KafkaListener(node), node.counters.fetch_seconds).decode()
    assert 'headwater_group_lag{group="g",topic="t",partition="0"} 7\n' in page


@pytest.mark.parametrize(("reset", "start"), [("latest", 6), ("earliest", 0), ("by_duration:PT1M", 3)])
async def test_a_group_begins_where_it_is_told_to(
    node: Node, clock: ManualClock, reset: str, start: int
) -> None:
    set_group(node, "share.auto.offset.reset", reset)
    await produce(node, 3)
    clock.advance(10_000_000)
    await produce(node, 3, age_ms=59_000)
    member = await Member(node).join()
    await member.fetch()
    assert node.shares.partitions[ShareKey("g", member.topic_id, 0)].start_offset == start


async def test_who_reads_committed_records_gets_neither_open_nor_aborted_ones(node: Node) -> None:
    set_group(node, "share.isolation.level", "read_committed")
    await start_at_zero(node)
    log = node.logs.get("t", 0)
    assert log is not None

    now_ms = node.clock.wall_ms()

    async def write(producer: int, *, commit: bool | None) -> None:
        rows = [Record(i, now_ms, b"k", b"v") for i in range(3)]
        batch = encode_batch(
            rows, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=0
        )
        log.append(memoryview(batch), read_header(batch), now_ms)
        if commit is not None:
            log.append_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=now_ms)
        node.commit.add(log)
        await next_sync(node.commit)

    await write(1, commit=False)
    await write(2, commit=True)
    await write(3, commit=False)
    await write(4, commit=None)
    member = await Member(node).join()
    # The markers at 3 and 7 are the member's to pass over.
    assert await member.fetch() == {0: [(3, 7, 1), (11, 11, 1)]}
    assert await member.accept(3, 7) is ErrorCode.none
    assert await member.accept(11, 11) is ErrorCode.none
    assert await member.fetch(topics=[]) == {}
    assert node.shares.partitions[ShareKey("g", member.topic_id, 0)].start_offset == 12
    log.append_marker(4, 0, commit=False, coordinator_epoch=0, now_ms=now_ms)
    await produce(node, 2)
    # What is read first is all of an aborted transaction, and so is passed over at once.
    assert await member.fetch(topics=[], max_bytes=1) == {0: [(15, 15, 1)]}
