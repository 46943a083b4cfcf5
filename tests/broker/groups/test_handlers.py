"""The handlers of the group APIs, on a node whose disk is a list that can be held up."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups import GroupCoordinator
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka import group_offsets, groups
from headwater.net.kafka.api import Request
from headwater.net.kafka.group_service import GroupService
from headwater.testing.clock import ManualClock
from headwater.wire.kafka.codec import encode_response
from headwater.wire.kafka.versions import SERVED, Api

from .harness import FakeTopics, subscription

HANDLERS = groups.HANDLERS | group_offsets.HANDLERS
DELAY_MS = 50


class FakeNode:
    def __init__(self) -> None:
        self.node_id, self.host, self.port = 1, "localhost", 9092
        self.clock = ManualClock()
        self.topics = FakeTopics()
        self.log: list[StateRecord] = []
        self.disk = asyncio.Event()
        self.disk.set()
        self.broken = False
        self.groups = GroupCoordinator(
            {"group.initial.rebalance.delay.ms": DELAY_MS}, self.topics, GroupConfigs({})
        )
        self.group_service = GroupService(self)
        self.group_service.start()

    async def commit_groups(self, records: Sequence[StateRecord]) -> None:
        if self.broken:
            raise ApiError(ErrorCode.kafka_storage_error)
        for record in records:
            self.log.append(record)
            self.groups.replay(record)
        await self.disk.wait()

    async def call(self, api: Api, version: int, message: Any) -> Mapping[str, Any]:
        request = Request(api, version, "client", "127.0.0.1")
        answer = await HANDLERS[api](cast(Any, self), request, message)
        assert encode_response(api, version, 1, answer)
        return answer

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.group_service.run_due()


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    made = FakeNode()
    made.topics.add("t", 2)
    yield made
    made.group_service.stop()


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def join(member_id: str = "", **changes: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": ms(10_000),
        "rebalance_timeout": ms(60_000),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [SimpleNamespace(name="range", metadata=subscription("t"))],
    }
    return SimpleNamespace(**(values | changes))


def sync(member_id: str, assignments: Mapping[str, bytes], generation: int = 1) -> Any:
    return SimpleNamespace(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SimpleNamespace(member_id=m, assignment=a) for m, a in assignments.items()],
    )


def commit(offset: int, **changes: Any) -> Any:
    partition = SimpleNamespace(partition_index=0, committed_offset=offset, committed_metadata=None)
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [SimpleNamespace(name="t", partitions=[partition])],
    }
    return SimpleNamespace(**(values | changes))


async def join_one(node: FakeNode, version: int) -> str:
    first = asyncio.create_task(node.call(Api.JOIN_GROUP, version, join()))
    await asyncio.sleep(0)
    if version >= 4:
        answer = await first
        assert answer["error_code"] is ErrorCode.member_id_required
        first = asyncio.create_task(node.call(Api.JOIN_GROUP, version, join(answer["member_id"])))
        await asyncio.sleep(0)
    assert not first.done()
    await node.pass_time(DELAY_MS)
    answer = await first
    assert answer["error_code"] is ErrorCode.none
    return str(answer["member_id"])


@pytest.mark.parametrize("version", range(10))
async def test_join_in_every_version(node: FakeNode, version: int) -> None:
    member_id = await join_one(node, version)
    answer = await node.call(Api.SYNC_GROUP, min(version, 5), sync(member_id, {member_id: b"x"}))
    assert answer["assignment"] == b"x"
    beat = SimpleNamespace(group_id="g", generation_id=1, member_id=member_id)
    answer = await node.call(Api.HEARTBEAT, min(version, 4), beat)
    assert answer["error_code"] is ErrorCode.none


async def test_timers_run_by_themselves(node: FakeNode) -> None:
    pending = asyncio.create_task(node.call(Api.JOIN_GROUP, 3, join()))
    await asyncio.sleep(0)
    node.clock.advance(DELAY_MS)
    answer = await asyncio.wait_for(pending, 5)
    assert answer["generation_id"] == 1


async def test_a_parked_sync_is_answered_with_the_leaders(node: FakeNode) -> None:
    tasks = [asyncio.create_task(node.call(Api.JOIN_GROUP, 3, join())) for _ in range(2)]
    await asyncio.sleep(0)
    await node.pass_time(DELAY_MS)
    await node.pass_time(DELAY_MS)
    joined = await asyncio.gather(*tasks)
    leader, follower = sorted(joined, key=lambda answer: answer["leader"] != answer["member_id"])
    waiting = asyncio.create_task(node.call(Api.SYNC_GROUP, 5, sync(follower["member_id"], {})))
    await asyncio.sleep(0)
    node.disk.clear()
    plan = {leader["member_id"]: b"L", follower["member_id"]: b"F"}
    done = asyncio.create_task(node.call(Api.SYNC_GROUP, 5, sync(leader["member_id"], plan)))
    late = asyncio.create_task(node.call(Api.SYNC_GROUP, 5, sync(follower["member_id"], {})))
    await asyncio.sleep(0.01)
    assert not waiting.done(), "not before it is on disk"
    assert not late.done(), "not even to those who come when it is decided"
    node.disk.set()
    answers = await asyncio.gather(waiting, done, late)
    assert [answer["assignment"] for answer in answers] == [b"F", b"L", b"F"]


async def test_a_disk_that_fails_sends_everybody_elsewhere(node: FakeNode) -> None:
    member_id = await join_one(node, 4)
    node.broken = True
    with pytest.raises(ApiError) as error:
        await node.call(Api.SYNC_GROUP, 5, sync(member_id, {member_id: b"x"}))
    assert error.value.code is ErrorCode.not_coordinator
    answer = await node.call(Api.OFFSET_COMMIT, 8, commit(1, group_id="other"))
    assert answer["topics"][0]["partitions"][0]["error_code"] is ErrorCode.not_coordinator


async def test_stopping_answers_those_who_wait(node: FakeNode) -> None:
    pending = asyncio.create_task(node.call(Api.JOIN_GROUP, 3, join()))
    await asyncio.sleep(0)
    node.group_service.stop()
    with pytest.raises(ApiError) as error:
        await pending
    assert error.value.code is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("version", range(6))
async def test_leave_in_every_version(node: FakeNode, version: int) -> None:
    member_id = await join_one(node, 3)
    unknown = SimpleNamespace(member_id="x", group_instance_id=None)
    known = SimpleNamespace(member_id=member_id, group_instance_id=None)
    message = SimpleNamespace(group_id="g", member_id=member_id, members=[known, unknown])
    answer = await node.call(Api.LEAVE_GROUP, version, message)
    assert answer["error_code"] is ErrorCode.none
    if version >= 3:
        codes = [member["error_code"] for member in answer["members"]]
        assert codes == [ErrorCode.none, ErrorCode.unknown_member_id]


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit_and_fetch_in_every_version(node: FakeNode, version: int) -> None:
    topic_id = node.topics.by_name["t"].id
    partition = SimpleNamespace(partition_index=1, committed_offset=42, committed_metadata="m")
    if version >= 10:
        topics = [
            SimpleNamespace(topic_id=topic_id, partitions=[partition]),
            SimpleNamespace(topic_id=UUID(int=9), partitions=[partition]),
        ]
    else:
        topics = [SimpleNamespace(name=name, partitions=[partition]) for name in ("t", "missing")]
    answer = await node.call(Api.OFFSET_COMMIT, version, commit(0, topics=topics))
    codes = [topic["partitions"][0]["error_code"] for topic in answer["topics"]]
    unknown = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
    assert codes == [ErrorCode.none, unknown]
    fetched = await fetch(node, version, [0, 1])
    assert [(p["partition_index"], p["committed_offset"]) for p in fetched] == [(0, -1), (1, 42)]
    if version >= 2:
        fetched = await fetch(node, version, None)
        assert [(p["partition_index"], p["committed_offset"]) for p in fetched] == [(1, 42)]


async def fetch(node: FakeNode, version: int, indexes: list[int] | None) -> list[dict[str, Any]]:
    topic: dict[str, Any] = {"topic_id": node.topics.by_name["t"].id} if version >= 10 else {"name": "t"}
    topics = None if indexes is None else [SimpleNamespace(**topic, partition_indexes=indexes)]
    group = SimpleNamespace(group_id="g", topics=topics)
    message = SimpleNamespace(groups=[group]) if version >= 8 else group
    answer = await node.call(Api.OFFSET_FETCH, version, message)
    found = answer["groups"][0]["topics"] if version >= 8 else answer["topics"]
    return list(found[0]["partitions"])


async def test_fetch_of_a_stale_member_fails_for_its_group_alone(node: FakeNode) -> None:
    answer = await node.call(Api.CONSUMER_GROUP_HEARTBEAT, 1, consumer_beat("a", 0))
    assert answer["member_epoch"] == 1
    stale = SimpleNamespace(group_id="g", member_id="a", member_epoch=7, topics=None)
    other = SimpleNamespace(group_id="h", member_id=None, member_epoch=-1, topics=None)
    answer = await node.call(Api.OFFSET_FETCH, 9, SimpleNamespace(groups=[stale, other]))
    assert [group["error_code"] for group in answer["groups"]] == [
        ErrorCode.stale_member_epoch,
        ErrorCode.none,
    ]


def consumer_beat(member_id: str, epoch: int, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": ms(30_000 if epoch == 0 else -1),
        "subscribed_topic_names": ("t",) if epoch == 0 else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": () if epoch == 0 else None,
    }
    return SimpleNamespace(**(values | changes))


@pytest.mark.parametrize("version", [0, 1])
async def test_the_consumer_protocol(node: FakeNode, version: int) -> None:
    answer = await node.call(Api.CONSUMER_GROUP_HEARTBEAT, version, consumer_beat("a", 0))
    topic_id = node.topics.by_name["t"].id
    assert answer["assignment"] == {"topic_partitions": [{"topic_id": topic_id, "partitions": [0, 1]}]}
    answer = await node.call(Api.CONSUMER_GROUP_HEARTBEAT, version, consumer_beat("a", 1))
    assert answer["assignment"] is None
    message = SimpleNamespace(group_ids=["g", "none", ""], include_authorized_operations=True)
    answer = await node.call(Api.CONSUMER_GROUP_DESCRIBE, version, message)
    described, missing, nameless = answer["groups"]
    assert (described["group_state"], described["assignor_name"]) == ("Stable", "uniform")
    assert described["members"][0]["assignment"] == described["members"][0]["target_assignment"]
    assert described["members"][0]["assignment"]["topic_partitions"][0]["topic_name"] == "t"
    assert missing["error_code"] is ErrorCode.group_id_not_found
    assert nameless["error_code"] is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", range(7))
async def test_describe_in_every_version(node: FakeNode, version: int) -> None:
    member_id = await join_one(node, 3)
    await node.call(Api.SYNC_GROUP, 0, sync(member_id, {member_id: b"x"}))
    message = SimpleNamespace(groups=["g", "none"], include_authorized_operations=False)
    known, missing = (await node.call(Api.DESCRIBE_GROUPS, version, message))["groups"]
    assert (known["group_state"], known["protocol_data"]) == ("Stable", "range")
    assert known["members"][0]["client_host"] == "/127.0.0.1"
    assert known["members"][0]["member_assignment"] == b"x"
    assert missing["group_state"] == "Dead"
    expected = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
    assert missing["error_code"] is expected


@pytest.mark.parametrize("version", range(6))
async def test_list_and_delete_in_every_version(node: FakeNode, version: int) -> None:
    await node.call(Api.OFFSET_COMMIT, 9, commit(1, group_id="simple"))
    await node.call(Api.CONSUMER_GROUP_HEARTBEAT, 1, consumer_beat("a", 0))
    await join_one_in(node, "classic")
    everything = SimpleNamespace()
    answer = await node.call(Api.LIST_GROUPS, version, everything)
    assert {group["group_id"] for group in answer["groups"]} == {"simple", "g", "classic"}
    if version >= 4:
        empty = SimpleNamespace(states_filter=["empty"], types_filter=[])
        answer = await node.call(Api.LIST_GROUPS, version, empty)
        assert [group["group_id"] for group in answer["groups"]] == ["simple"]
    if version >= 5:
        modern = SimpleNamespace(states_filter=[], types_filter=["Consumer"])
        answer = await node.call(Api.LIST_GROUPS, version, modern)
        assert [(g["group_id"], g["group_type"]) for g in answer["groups"]] == [("g", "consumer")]
    message = SimpleNamespace(groups_names=["simple", "g", "none"])
    answer = await node.call(Api.DELETE_GROUPS, min(version, 2), message)
    assert [result["error_code"] for result in answer["results"]] == [
        ErrorCode.none,
        ErrorCode.non_empty_group,
        ErrorCode.group_id_not_found,
    ]


async def join_one_in(node: FakeNode, group_id: str) -> None:
    pending = asyncio.create_task(node.call(Api.JOIN_GROUP, 3, join(group_id=group_id)))
    await asyncio.sleep(0)
    await node.pass_time(DELAY_MS)
    await pending


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_this_node(node: FakeNode, version: int) -> None:
    message = SimpleNamespace(key="g", key_type=1, coordinator_keys=["g", "h"])
    answer = await node.call(Api.FIND_COORDINATOR, version, message)
    found = [answer] if version < 4 else answer["coordinators"]
    assert [(f["node_id"], f["host"], f["port"]) for f in found] == [(1, "localhost", 9092)] * len(found)
    if version >= 1:
        message.key_type = 9
        answer = await node.call(Api.FIND_COORDINATOR, version, message)
        found = [answer] if version < 4 else answer["coordinators"]
        assert {f["error_code"] for f in found} == {ErrorCode.invalid_request}


async def test_offset_delete(node: FakeNode) -> None:
    await node.call(Api.OFFSET_COMMIT, 9, commit(1))
    parts = [SimpleNamespace(partition_index=index) for index in (0, 9)]
    topics = [SimpleNamespace(name=name, partitions=parts) for name in ("t", "missing")]
    answer = await node.call(Api.OFFSET_DELETE, 0, SimpleNamespace(group_id="g", topics=topics))
    codes = [part["error_code"] for topic in answer["topics"] for part in topic["partitions"]]
    assert codes == [ErrorCode.none, *[ErrorCode.unknown_topic_or_partition] * 3]
    assert node.groups.fetch_offset("g", "t", 0) is None


def test_requests_have_the_fields_that_are_read() -> None:
    """The messages above are stand-ins: the names they use must be kio's."""
    named = {
        Api.JOIN_GROUP: ("join_group", "JoinGroupRequest", vars(join()).keys()),
        Api.CONSUMER_GROUP_HEARTBEAT: (
            "consumer_group_heartbeat",
            "ConsumerGroupHeartbeatRequest",
            vars(consumer_beat("a", 0)).keys(),
        ),
        Api.OFFSET_COMMIT: ("offset_commit", "OffsetCommitRequest", vars(commit(1)).keys()),
        Api.SYNC_GROUP: ("sync_group", "SyncGroupRequest", vars(sync("m", {})).keys()),
        Api.DELETE_GROUPS: ("delete_groups", "DeleteGroupsRequest", {"groups_names"}),
        Api.LIST_GROUPS: ("list_groups", "ListGroupsRequest", {"states_filter", "types_filter"}),
        Api.CONSUMER_GROUP_DESCRIBE: (
            "consumer_group_describe",
            "ConsumerGroupDescribeRequest",
            {"group_ids", "include_authorized_operations"},
        ),
        Api.OFFSET_FETCH: ("offset_fetch", "OffsetFetchRequest", {"groups"}),
        Api.FIND_COORDINATOR: (
            "find_coordinator",
            "FindCoordinatorRequest",
            {"key_type", "coordinator_keys"},
        ),
    }
    for api, (module, entity, names) in named.items():
        newest = importlib.import_module(f"kio.schema.{module}.v{SERVED[api].last}.request")
        assert set(names) <= set(getattr(newest, entity).__dataclass_fields__), api
