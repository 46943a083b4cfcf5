"""A coordinator with its log in a list, time in a variable, and the replies it has given."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups import (
    ConsumerHeartbeat,
    ConsumerReply,
    GroupCoordinator,
    JoinReply,
    JoinRequest,
    MemberIdentity,
    Moment,
    OffsetCommit,
    Outcome,
    PartitionCommit,
    SyncReply,
    SyncRequest,
)
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.state import StateRecord
from headwater.core.errors import ErrorCode
from headwater.core.settings import Value

R = TypeVar("R")

WALL_MS = 1_700_000_000_000


@dataclass
class FakeTopic:
    name: str
    id: uuid.UUID
    partitions: int
    internal: bool = False


@dataclass
class FakeTopics:
    by_name: dict[str, FakeTopic] = field(default_factory=dict)
    by_id: dict[uuid.UUID, FakeTopic] = field(default_factory=dict)

    def add(self, name: str, partitions: int) -> FakeTopic:
        topic = FakeTopic(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), partitions)
        self.by_name[name] = self.by_id[topic.id] = topic
        return topic

    def drop(self, name: str) -> None:
        del self.by_id[self.by_name.pop(name).id]


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer that wants these topics."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


class Harness:
    def __init__(self, settings: Mapping[str, Value] | None = None) -> None:
        self.settings = {"group.initial.rebalance.delay.ms": 3000, **(settings or {})}
        self.configs = GroupConfigs(self.settings)
        self.topics = FakeTopics()
        self.log: list[StateRecord] = []
        self.mono_ms = 1000
        self.tickets = count(1)
        self.open: set[int] = set()
        self.replies: dict[int, JoinReply | SyncReply] = {}
        self.replied_ms: dict[int, int] = {}
        self._ids = count(1)
        self.start()

    def start(self) -> None:
        self.groups = GroupCoordinator(
            self.settings, self.topics, self.configs, lambda: f"id{next(self._ids)}"
        )
        for record in self.log:
            self.groups.replay(record)
        self.run(self.groups.loaded(self.now))

    def restart(self) -> None:
        """Lose all that is not in the log; clients see their connections end."""
        self.open.clear()
        self.start()

    @property
    def now(self) -> Moment:
        return Moment(self.mono_ms, WALL_MS + self.mono_ms)

    def run(self, outcome: Outcome[R]) -> R | None:
        for record in outcome.records:
            self.log.append(record)
            self.groups.replay(record)
        for ticket, reply in outcome.replies:
            assert ticket in self.open, "a ticket was answered twice, or never parked"
            self.open.remove(ticket)
            self.replies[ticket] = reply
            self.replied_ms[ticket] = self.mono_ms
        return outcome.reply

    def reply(self, outcome: Outcome[R]) -> R:
        reply = self.run(outcome)
        assert reply is not None
        return reply

    def advance(self, ms: int) -> None:
        """Let time pass, doing what falls due on the way when it does."""
        end = self.mono_ms + ms
        while (deadline := self.groups.next_deadline()) is not None and deadline <= end:
            self.mono_ms = max(self.mono_ms, deadline)
            self.run(self.groups.tick(self.now))
        self.mono_ms = end

    def _park(self, call: Callable[[int], Outcome[Any]]) -> int:
        ticket = next(self.tickets)
        self.open.add(ticket)
        reply = self.run(call(ticket))
        if reply is not None:
            assert ticket in self.open, "answered at once and later"
            self.open.remove(ticket)
            self.replies[ticket] = reply
            self.replied_ms[ticket] = self.mono_ms
        return ticket

    # The classic protocol

    def join(self, member_id: str = "", group: str = "g", **changes: Any) -> int:
        values: dict[str, Any] = {
            "group_id": group,
            "member_id": member_id,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("t")),),
            "member_id_required": False,
            "can_skip_assignment": True,
        }
        request = JoinRequest(**(values | changes))
        return self._park(lambda ticket: self.groups.join(self.now, ticket, request))

    def joined(self, ticket: int) -> JoinReply:
        reply = self.replies[ticket]
        assert isinstance(reply, JoinReply)
        return reply

    def sync(self, join: JoinReply, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> int:
        values: dict[str, Any] = {
            "group_id": "g",
            "generation": join.generation,
            "member_id": join.member_id,
            "assignments": tuple((assignments or {}).items()),
        }
        request = SyncRequest(**(values | changes))
        return self._park(lambda ticket: self.groups.sync(self.now, ticket, request))

    def synced(self, ticket: int) -> SyncReply:
        reply = self.replies[ticket]
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.groups.heartbeat(self.now, "g", generation, member_id, instance_id)

    def leave(self, *identities: MemberIdentity) -> list[ErrorCode]:
        return self.reply(self.groups.leave(self.now, "g", identities))

    def stable_group(self, members: int = 2, **changes: Any) -> list[JoinReply]:
        """Return the replies to the members of a stable group, its leader first."""
        tickets = [self.join(**changes) for _ in range(members)]
        self.advance(6000)
        joins = [self.joined(ticket) for ticket in tickets]
        assert all(join.error is ErrorCode.none for join in joins), joins
        joins.sort(key=lambda join: join.member_id != join.leader)
        assignments = {join.member_id: join.member_id.encode() for join in joins}
        syncs = [self.sync(join, assignments) for join in joins]
        assert all(self.synced(ticket).error is ErrorCode.none for ticket in syncs)
        return joins

    def classic(self, group: str = "g") -> ClassicGroup:
        found = self.groups.groups[group]
        assert isinstance(found, ClassicGroup)
        return found

    # The consumer protocol

    def beat(self, member_id: str, epoch: int, **changes: Any) -> ConsumerReply:
        values: dict[str, Any] = {"group_id": "g", "client_id": "client", "client_host": "/127.0.0.1"}
        if epoch == 0:
            values |= {"rebalance_timeout_ms": 30_000, "topic_names": frozenset({"t"}), "owned": {}}
        request = ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **(values | changes))
        return self.reply(self.groups.consumer_heartbeat(self.now, request))

    def consumer(self, group: str = "g") -> ConsumerGroup:
        found = self.groups.groups[group]
        assert isinstance(found, ConsumerGroup)
        return found

    # Offsets

    def commit(self, offset: int, group: str = "g", **changes: Any) -> list[ErrorCode]:
        values: dict[str, Any] = {"topic": "t", "partition": 0, "metadata": ""}
        values |= {k: changes.pop(k) for k in tuple(changes) if k in values}
        request = OffsetCommit(group, (PartitionCommit(offset=offset, **values),), **changes)
        return self.reply(self.groups.commit_offsets(self.now, request))

    def committed(self, group: str = "g", topic: str = "t", partition: int = 0) -> int | None:
        value = self.groups.fetch_offset(group, topic, partition)
        return None if value is None else value.offset
