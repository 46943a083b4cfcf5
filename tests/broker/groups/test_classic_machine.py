"""Members of a classic group that do anything in any order, with restarts in between."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.groups import GroupCoordinator, JoinReply, MemberIdentity, SyncReply
from headwater.broker.groups.classic_group import ClassicGroup, ClassicState
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness

SESSION_MS = 10_000
REBALANCE_MS = 10_000_000
"""Long, so that what puts a member out is its session alone."""


@dataclass
class Client:
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    others: tuple[str, ...] = ()
    join: int | None = None
    sync: int | None = None
    seen_ms: int = 0

    @property
    def waits(self) -> bool:
        return self.join is not None or self.sync is not None


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = Harness({"offsets.retention.minutes": 2**31 - 1})
        self.h.topics.add("t", 4)
        self.clients: list[Client] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.generation = 0

    @property
    def group(self) -> ClassicGroup | None:
        group = self.h.groups.groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    def _pick(self, number: int, *, waits: bool = False) -> Client | None:
        candidates = [c for c in self.clients if c.member_id and c.waits == waits]
        return candidates[number % len(candidates)] if candidates else None

    def _join(self, client: Client, *, required: bool) -> None:
        client.join = self.h.join(
            client.member_id,
            instance_id=client.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id_required=required,
        )
        self._collect()

    def _collect(self) -> None:
        """Hand every reply to the client that waits for it."""
        for client in list(self.clients):
            if client.join in self.h.replies:
                self._joined(client, self.h.joined(client.join))
            if client.sync in self.h.replies:
                self._synced(client, self.h.synced(client.sync))

    def _joined(self, client: Client, reply: JoinReply) -> None:
        client.seen_ms = self.h.replied_ms[client.join or 0]
        client.join = None
        if reply.error is ErrorCode.member_id_required:
            client.member_id = reply.member_id
            self._join(client, required=True)
        elif reply.error is ErrorCode.none:
            assert reply.generation >= self.generation
            self.generation = client.generation = reply.generation
            client.member_id = reply.member_id
            client.leads = reply.leader == reply.member_id
            client.others = tuple(member_id for member_id, _, _ in reply.members)
            assert client.leads == bool(client.others) or not client.leads
        else:
            self.clients.remove(client)

    def _synced(self, client: Client, reply: SyncReply) -> None:
        client.seen_ms = self.h.replied_ms[client.sync or 0]
        client.sync = None
        if reply.error is ErrorCode.none:
            # A static member that came back inherits what it had under its id before.
            owner = (client.instance_id or client.member_id).encode()
            assert reply.assignment == b"" or reply.assignment.startswith(owner)
        elif reply.error is not ErrorCode.rebalance_in_progress:
            self.clients.remove(client)

    @precondition(lambda self: len(self.clients) < 6)
    @rule(instance=st.none() | st.sampled_from(["i", "j"]), required=st.booleans())
    def join_anew(self, instance: str | None, required: bool) -> None:
        for other in self.clients:
            if instance is not None and other.instance_id == instance and not other.waits:
                self.clients.remove(other)  # the same instance, started again
                break
        client = Client(instance)
        self.clients.append(client)
        self._join(client, required=required)

    @rule(number=st.integers(0, 5))
    def join_again(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self._join(client, required=True)

    @rule(number=st.integers(0, 5))
    def sync(self, number: int) -> None:
        client = self._pick(number)
        if client is None or client.generation < 0:
            return
        reply = JoinReply(client.member_id, generation=client.generation)
        assignments = {member_id: member_id.encode() for member_id in client.others}
        client.sync = self.h.sync(reply, assignments, instance_id=client.instance_id)
        self._collect()

    @rule(number=st.integers(0, 5))
    def heartbeat(self, number: int) -> None:
        client = self._pick(number)
        if client is None:
            return
        code = self.h.heartbeat(client.member_id, client.generation, client.instance_id)
        if code in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            client.seen_ms = self.h.mono_ms
        elif code is not ErrorCode.illegal_generation:
            assert self._may_be_gone(client), code
            self.clients.remove(client)

    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        if (client := self._pick(number)) is not None:
            self.clients.remove(client)
            self.h.leave(MemberIdentity(client.member_id, client.instance_id))
            self._collect()

    @rule(number=st.integers(0, 5), partition=st.integers(0, 3), offset=st.integers(0, 100))
    def commit(self, number: int, partition: int, offset: int) -> None:
        client = self._pick(number)
        if client is None:
            return
        try:
            self.h.commit(
                offset,
                partition=partition,
                generation=client.generation,
                member_id=client.member_id,
                instance_id=client.instance_id,
            )
        except ApiError:
            return
        client.seen_ms = self.h.mono_ms
        self.offsets["g", partition] = offset

    @rule(partition=st.integers(0, 3), offset=st.integers(0, 100))
    def commit_alone(self, partition: int, offset: int) -> None:
        self.h.commit(offset, group="simple", partition=partition)
        self.offsets["simple", partition] = offset

    @rule(ms=st.sampled_from([1, 2999, 3000, 5000, 9999]))
    def wait(self, ms: int) -> None:
        self.h.advance(ms)
        self._collect()

    @rule()
    def restart(self) -> None:
        self.h.restart()
        group = self.group
        self.generation = 0 if group is None else group.generation
        for client in list(self.clients):
            client.join = client.sync = None
            client.seen_ms = self.h.mono_ms
            if group is None or client.member_id not in group.members:
                self.clients.remove(client)

    def _may_be_gone(self, client: Client) -> bool:
        return (
            self.h.mono_ms - client.seen_ms >= SESSION_MS
            or client.instance_id is not None  # replaced by another of the same instance
        )

    @invariant()
    def who_is_heard_of_in_time_stays(self) -> None:
        for client in self.clients:
            if client.member_id and not client.waits and not self._may_be_gone(client):
                assert self.group is not None
                assert client.member_id in self.group.members

    @invariant()
    def the_phase_fits_what_waits(self) -> None:
        if (group := self.group) is None:
            return
        joins = {m.join_ticket for m in group.members.values()} - {None}
        syncs = {m.sync_ticket for m in group.members.values()} - {None}
        assert joins | syncs == self.h.open
        assert not joins or group.state is ClassicState.PREPARING
        assert not syncs or group.state is ClassicState.COMPLETING
        assert (group.state is ClassicState.EMPTY) <= (not group.members)
        assert set(group.instances.values()) == {m.member_id for m in group.members.values() if m.instance_id}
        assert group.leader in group.members or not group.members

    @invariant()
    def the_log_holds_what_must_last(self) -> None:
        copy = GroupCoordinator(self.h.settings, self.h.topics, self.h.configs)
        for record in self.h.log:
            copy.replay(record)
        for (group_id, partition), offset in self.offsets.items():
            for coordinator in (copy, self.h.groups):
                value = coordinator.fetch_offset(group_id, "t", partition)
                assert value is not None
                assert value.offset == offset
        group, stored = self.group, copy.groups.get("g")
        assert (group is None) == (stored is None)
        if group is not None and group.state is ClassicState.STABLE:
            assert isinstance(stored, ClassicGroup)
            assert stored.generation == group.generation
            # Who left since the generation began is only missing from the next one's record.
            for member in group.members.values():
                assert stored.members[member.member_id].assignment == member.assignment

    def teardown(self) -> None:
        self.h.advance(4 * REBALANCE_MS)
        assert not self.h.open, "a request was never answered"


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
