"""Members of a consumer group that do anything in any order, with lost answers and restarts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.groups import GroupCoordinator
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.records import Assignment
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness

SESSION_MS = 45_000
REBALANCE_MS = 10_000_000
"""Long, so that what puts a member out is its session alone."""

Slot = tuple[UUID, int]


def slots(assignment: Assignment) -> set[Slot]:
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def assignment_of(owned: set[Slot]) -> dict[UUID, frozenset[int]]:
    topics = {topic for topic, _ in owned}
    return {topic: frozenset(p for t, p in owned if t == topic) for topic in topics}


@dataclass
class Client:
    member_id: str
    wants: dict[str, Any]
    instance_id: str | None = None
    epoch: int = 0
    told: set[Slot] = field(default_factory=set)
    owns: set[Slot] = field(default_factory=set)
    seen_ms: int = 0
    lost_answer: bool = False
    away: bool = False


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = Harness({"offsets.retention.minutes": 2**31 - 1})
        self.h.topics.add("t", 4)
        self.h.topics.add("u", 3)
        self.clients: list[Client] = []
        self.offsets: dict[int, int] = {}
        self.ids = count(1)
        self.epoch = 0

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.h.groups.groups.get("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def _pick(self, number: int, *, away: bool = False) -> Client | None:
        candidates = [c for c in self.clients if c.away == away]
        return candidates[number % len(candidates)] if candidates else None

    def _beat(self, client: Client, *, lose: bool = False, **changes: Any) -> None:
        if client.lost_answer or client.epoch == 0:
            changes = {**client.wants, "rebalance_timeout_ms": REBALANCE_MS, **changes}
        try:
            reply = self.h.beat(
                client.member_id,
                client.epoch,
                instance_id=client.instance_id,
                owned=assignment_of(client.owns),
                **changes,
            )
        except ApiError as error:
            expired = self.h.mono_ms - client.seen_ms >= SESSION_MS
            expected = {
                ErrorCode.unreleased_instance_id: client.epoch == 0,
                # After two lost answers in a row it has to begin anew.
                ErrorCode.fenced_member_epoch: client.lost_answer,
                ErrorCode.unknown_member_id: expired,
                ErrorCode.fenced_instance_id: expired,
            }
            if not expected.get(error.code):
                raise
            self.clients.remove(client)
            return
        client.seen_ms = self.h.mono_ms
        client.lost_answer = lose
        if not lose:
            client.epoch = reply.member_epoch
            if reply.assignment is not None:
                client.told = slots(reply.assignment)
                client.owns |= client.told

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        names=st.frozensets(st.sampled_from(["t", "u", "later"]), min_size=1),
        regex=st.sampled_from([None, None, "[tu]"]),
        instance=st.sampled_from([None, None, "i", "j"]),
        assignor=st.sampled_from([None, None, "range"]),
    )
    def join(
        self, names: frozenset[str], regex: str | None, instance: str | None, assignor: str | None
    ) -> None:
        wants = {"topic_names": names, "topic_regex": regex or "", "server_assignor": assignor}
        client = Client(f"m{next(self.ids)}", wants, instance)
        for other in list(self.clients):
            if instance is not None and other.instance_id == instance and other.away:
                self.clients.remove(other)
        self.clients.append(client)
        self._beat(client)

    @rule(number=st.integers(0, 5), lose=st.booleans())
    def heartbeat(self, number: int, lose: bool) -> None:
        if (client := self._pick(number)) is not None:
            self._beat(client, lose=lose and client.epoch > 0)

    @rule(number=st.integers(0, 5))
    def revoke(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            client.owns &= client.told
            self._beat(client)

    @rule(number=st.integers(0, 5), names=st.frozensets(st.sampled_from(["t", "u"]), min_size=1))
    def subscribe_otherwise(self, number: int, names: frozenset[str]) -> None:
        if (client := self._pick(number)) is not None:
            client.wants = {**client.wants, "topic_names": names}
            self._beat(client, topic_names=names)

    @rule(number=st.integers(0, 5))
    def join_again(self, number: int) -> None:
        client = self._pick(number)
        if client is not None and client.instance_id is None:
            client.owns, client.told, client.epoch = set(), set(), 0
            self._beat(client)

    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        client = self._pick(number)
        if client is None:
            return
        self.clients.remove(client)
        self._goodbye(client, -1)

    @rule(number=st.integers(0, 5))
    def leave_for_a_while(self, number: int) -> None:
        client = self._pick(number)
        if client is None or client.instance_id is None:
            return
        client.away, client.owns = True, set()
        if not self._goodbye(client, -2):
            self.clients.remove(client)

    def _goodbye(self, client: Client, epoch: int) -> bool:
        try:
            self.h.beat(client.member_id, epoch, instance_id=client.instance_id)
        except ApiError:
            if self.h.mono_ms - client.seen_ms < SESSION_MS:
                raise
            return False
        return True

    @rule(number=st.integers(0, 5), partition=st.integers(0, 3), offset=st.integers(0, 100))
    def commit(self, number: int, partition: int, offset: int) -> None:
        client = self._pick(number)
        if client is None:
            return
        try:
            self.h.commit(offset, partition=partition, generation=client.epoch, member_id=client.member_id)
        except ApiError:
            return
        self.offsets[partition] = offset

    @rule(name=st.sampled_from(["t", "u", "later"]))
    def grow_a_topic(self, name: str) -> None:
        known = self.h.topics.by_name.get(name)
        if known is None:
            self.h.topics.add(name, 2)
        else:
            known.partitions = min(known.partitions + 1, 8)
        self.h.groups.topics_changed()

    @rule(ms=st.sampled_from([1, 5000, 20_000, 44_999]))
    def wait(self, ms: int) -> None:
        self.h.advance(ms)
        for client in self.clients:
            if self.h.mono_ms - client.seen_ms >= SESSION_MS:
                client.owns = set()  # clients know their timeout too, and stop by themselves

    @rule()
    def restart(self) -> None:
        self.h.restart()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [slot for client in self.clients for slot in client.owns]
        assert len(owned) == len(set(owned))
        if (group := self.group) is not None:
            held: list[Slot] = []
            for member in group.members.values():
                held += slots(member.assigned) | slots(member.pending_revocation)
            assert len(held) == len(set(held))
            assert group.owners.keys() == set(held)

    @invariant()
    def the_coordinator_knows_of_all_that_is_owned(self) -> None:
        for client in self.clients:
            if self.group is not None and client.member_id in self.group.members and not client.away:
                member = self.group.members[client.member_id]
                assert client.owns <= slots(member.assigned) | slots(member.pending_revocation)

    @invariant()
    def who_is_heard_of_in_time_stays(self) -> None:
        for client in self.clients:
            if self.h.mono_ms - client.seen_ms < SESSION_MS and not client.away:
                assert self.group is not None
                assert client.member_id in self.group.members

    @invariant()
    def epochs_only_grow(self) -> None:
        if (group := self.group) is not None:
            assert group.epoch >= self.epoch
            assert group.target_epoch <= group.epoch
            self.epoch = group.epoch

    @invariant()
    def the_log_holds_everything(self) -> None:
        copy = GroupCoordinator(self.h.settings, self.h.topics, self.h.configs)
        for record in self.h.log:
            copy.replay(record)
        stored = copy.groups.get("g")
        if self.group is not None and stored is not None:
            assert isinstance(stored, ConsumerGroup)
            stored.seen_topics_version = self.group.seen_topics_version
        assert stored == self.group
        for partition, offset in self.offsets.items():
            value = copy.fetch_offset("g", "t", partition)
            assert value is not None
            assert value.offset == offset

    def teardown(self) -> None:
        """Let everybody behave: soon each partition that is wanted has its owner."""
        self.h.advance(SESSION_MS)
        self.clients = []
        for name in ("x", "y", "z"):
            client = Client(name, {"topic_names": frozenset({"t", "u"})})
            self.clients.append(client)
            self._beat(client)
        for _ in range(8):
            for client in self.clients:
                client.owns &= client.told
                self._beat(client)
        assert self.group is not None
        assert self.group.state == "Stable"
        wanted = {
            (topic.id, partition)
            for topic in self.h.topics.by_name.values()
            for partition in range(topic.partitions)
            if topic.name in ("t", "u")
        }
        assert set().union(*(client.owns for client in self.clients)) == wanted


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
