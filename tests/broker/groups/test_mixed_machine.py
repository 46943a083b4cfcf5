"""A group that moves between the protocols while members of both do anything in any order, and the broker restarts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from effort import examples
from headwater.broker.groups import GroupCoordinator, MemberIdentity
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.embedded import by_id, by_name
from headwater.broker.groups.share_group import ShareGroup
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness
from .mixed_clients import REBALANCE_MS, SESSION_MS, ClassicClient, Slot, by_topic

MODERN_SESSION_MS = 45_000


@dataclass
class ModernClient:
    """A consumer of the consumer protocol."""

    h: Harness
    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    epoch: int = 0
    told: set[Slot] = field(default_factory=set)
    owns: set[Slot] = field(default_factory=set)
    seen_ms: int = 0
    dead: bool = False

    @property
    def heard_ms(self) -> int:
        return self.seen_ms

    @property
    def settled(self) -> bool:
        return not self.dead and self.owns == self.told

    def step(self, *, revoke: bool = True) -> None:
        """Send a heartbeat, after giving up what it was told to give up."""
        if revoke:
            self.owns &= self.told
        changes: dict[str, Any] = {"owned": by_id(by_topic(self.owns), self.h.topics)}
        if self.epoch == 0:
            changes |= {"topic_names": self.topics, "rebalance_timeout_ms": REBALANCE_MS}
        try:
            reply = self.h.beat(self.member_id, self.epoch, instance_id=self.instance_id, **changes)
        except ApiError as error:
            self.lose()
            lost = {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch, ErrorCode.group_id_not_found}
            self.dead = error.code in (ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id)
            if not self.dead and error.code not in lost:
                raise
            return
        self.epoch, self.seen_ms = reply.member_epoch, self.h.mono_ms
        if reply.assignment is not None:
            names = by_name(reply.assignment, self.h.topics)
            self.told = {(topic, p) for topic, partitions in names.items() for p in partitions}
            self.owns |= self.told

    def lose(self) -> None:
        """Give up everything, and begin anew."""
        self.owns, self.told, self.epoch = set(), set(), 0

    expire = lose


Client = ClassicClient | ModernClient
TOPICS = st.sampled_from([frozenset({"t"}), frozenset({"t", "u"})])
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
# A static member that is back gets what it had, without a rebalance, whatever it wants now: so it wants the same.
WANTED_BY = {"i": frozenset({"t", "u"}), "j": frozenset({"t"})}


class MixedGroupMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade"]),
        gradual=st.booleans(),
        first=st.integers(0, 3),
    )
    def begin(self, policy: str, gradual: bool, first: int) -> None:
        self.h = Harness(
            {
                "group.initial.rebalance.delay.ms": 0,
                "group.consumer.migration.policy": policy,
                "offsets.retention.minutes": 2**31 - 1,
            }
        )
        self.h.topics.add("t", 4)
        self.h.topics.add("u", 3)
        self.policy, self.gradual = policy, gradual
        self.clients: list[Client] = []
        self.ids = count(1)
        for number in range(first):
            self._enter(ClassicClient(self.h, frozenset({"t", "u"}), gradual, "i" if number == 2 else None))
        self.all_go_on(rounds=8)

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        group = self.h.groups.groups.get("g")
        assert not isinstance(group, ShareGroup)
        return group

    def _enter(self, client: Client) -> None:
        if len(self.clients) == 5:
            return
        if client.instance_id is not None:
            # The same instance twice is one process that restarted.
            self.clients = [c for c in self.clients if c.instance_id != client.instance_id]
        client.seen_ms = self.h.mono_ms
        client.step()
        if not client.dead:
            self.clients.append(client)

    @rule(topics=TOPICS, instance=INSTANCES)
    def join_by_the_classic_protocol(self, topics: frozenset[str], instance: str | None) -> None:
        wanted = WANTED_BY.get(instance or "", topics)
        self._enter(ClassicClient(self.h, wanted, self.gradual, instance))

    @rule(topics=TOPICS, instance=INSTANCES)
    def join_by_the_consumer_protocol(self, topics: frozenset[str], instance: str | None) -> None:
        wanted = WANTED_BY.get(instance or "", topics)
        self._enter(ModernClient(self.h, f"m{next(self.ids)}", wanted, instance))

    @rule(number=st.integers(0, 4), steps=st.integers(1, 4))
    def go_on(self, number: int, steps: int) -> None:
        if self.clients:
            client = self.clients[number % len(self.clients)]
            for _ in range(steps):
                client.step()
            if client.dead:
                self.clients.remove(client)

    @rule(rounds=st.integers(1, 8))
    def all_go_on(self, rounds: int) -> None:
        for client in self.clients * rounds:
            if client in self.clients:
                client.step()
                if client.dead:
                    self.clients.remove(client)

    @rule(number=st.integers(0, 4))
    def beat_without_revoking(self, number: int) -> None:
        modern = [c for c in self.clients if isinstance(c, ModernClient) and c.epoch > 0]
        if modern:
            modern[number % len(modern)].step(revoke=False)

    @rule(number=st.integers(0, 4))
    def leave(self, number: int) -> None:
        if not self.clients:
            return
        client = self.clients.pop(number % len(self.clients))
        client.owns = set()
        self._goodbye(client, -1)

    @rule(number=st.integers(0, 4))
    def leave_for_a_while(self, number: int) -> None:
        static = [c for c in self.clients if c.instance_id is not None and isinstance(c, ModernClient)]
        if static:
            client = static[number % len(static)]
            self.clients.remove(client)
            self._goodbye(client, -2)

    def _goodbye(self, client: Client, epoch: int) -> None:
        if isinstance(client, ModernClient):
            with suppress(ApiError):  # it may have been put out before
                self.h.beat(client.member_id, epoch, instance_id=client.instance_id)
        elif (
            client.member_id and client.instance_id is None
        ):  # static members of the classic protocol just go
            outcome = self.h.groups.leave(self.h.now, "g", [MemberIdentity(client.member_id)])
            self.h.run(outcome)

    @rule(name=st.sampled_from(["t", "u"]))
    def grow_a_topic(self, name: str) -> None:
        topic = self.h.topics.by_name[name]
        topic.partitions = min(topic.partitions + 1, 6)
        self.h.groups.topics_changed()

    @rule(ms=st.sampled_from([1, 3000, 9000, 44_999]))
    def wait(self, ms: int) -> None:
        end = self.h.mono_ms + ms
        while self.h.mono_ms < end:
            self.h.advance(min(1000, end - self.h.mono_ms))
            for client in self.clients:
                session_ms = SESSION_MS if isinstance(client, ClassicClient) else MODERN_SESSION_MS
                if self.h.mono_ms - client.heard_ms >= session_ms:
                    client.expire()  # clients know their time-out too, and stop by themselves

    @rule()
    def restart(self) -> None:
        self.h.restart()
        for client in self.clients:
            if isinstance(client, ClassicClient):
                client.disconnect()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [slot for client in self.clients for slot in client.owns]
        assert len(owned) == len(set(owned))
        if isinstance(group := self.group, ConsumerGroup):
            held = [
                (topic, p)
                for member in group.members.values()
                for part in (member.assigned, member.pending_revocation)
                for topic, partitions in part.items()
                for p in partitions
            ]
            assert len(held) == len(set(held))
            assert group.owners.keys() == set(held)

    @invariant()
    def the_log_holds_everything(self) -> None:
        copy = GroupCoordinator(self.h.settings, self.h.topics, self.h.configs)
        for record in self.h.log:
            copy.replay(record)
        stored = copy.groups.get("g")
        if isinstance(group := self.group, ConsumerGroup):
            assert isinstance(stored, ConsumerGroup)
            stored.seen_topics_version = group.seen_topics_version
            assert stored == group
        elif group is not None:
            assert isinstance(stored, ClassicGroup)
            assert stored.stored == group.stored

    @invariant()
    def only_a_classic_member_makes_a_classic_group(self) -> None:
        if (
            isinstance(group := self.group, ConsumerGroup)
            and self.policy == "bidirectional"
            and group.members
        ):
            assert any(member.subscription.classic is None for member in group.members.values())

    def teardown(self) -> None:
        """Let everybody behave: soon each partition that is wanted has its owner, with whoever is left."""
        if not hasattr(self, "h"):
            return
        self._converge()
        modern = [client for client in self.clients if isinstance(client, ModernClient)]
        for client in modern:
            self.clients.remove(client)
            self._goodbye(client, -1)
        self._converge()
        if self.clients and self.policy == "bidirectional":
            assert isinstance(self.group, ClassicGroup)

    def _converge(self) -> None:
        # Those who died without a word are found out by their sessions.
        for _ in range(60):
            self.wait(1000)
            for client in list(self.clients):
                client.step()
                client.step()
                if client.dead:
                    self.clients.remove(client)
        self.no_partition_has_two_owners()
        assert all(client.settled for client in self.clients)
        wanted = {
            (name, p)
            for name in set().union(*(client.topics for client in self.clients))
            for p in range(self.h.topics.by_name[name].partitions)
        }
        assert {slot for client in self.clients for slot in client.owns} == wanted


TestMixedGroup = MixedGroupMachine.TestCase
TestMixedGroup.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
