"""A group of the classic protocol: its members, its generation, and which phase it is in.

What a restart brings back is `stored`, the last record of the group. The rest, that is who waits
for the next generation and who for an assignment, lives only as long as the requests that wait.

    Empty → PreparingRebalance → CompletingRebalance → Stable
                ↑      ↑_______________↓    ↓            ↓
                ↑___________________________↓____________↓
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headwater.broker.groups.outcome import Ticket
from headwater.broker.groups.packing import CorruptGroupRecord, Reader
from headwater.broker.groups.records import StoredGroup, StoredMember
from headwater.core.errors import ApiError, ErrorCode

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers, whose metadata the broker may read for the subscribed topics."""


class ClassicState(Enum):
    """The phase of a group, under the name that clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass
class ClassicMember:
    """A member, and which of its requests are parked."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    """True until the first generation it is part of: it has no id to send heartbeats with yet."""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return what the member said under `protocol`."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def excused(self) -> bool:
        """Whether a parked request stands for the heartbeats that cannot come meanwhile."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


@dataclass
class InitialDelay:
    """How the first rebalance of an empty group waits for more members."""

    delay_ms: int
    remaining_ms: int
    member_added: bool = False


@dataclass
class ClassicGroup:
    """A group of the classic protocol."""

    group_id: str
    state_ms: int = -1
    """When the group came into its state, by the wall clock."""
    state: ClassicState = ClassicState.EMPTY
    stored: StoredGroup | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending_join: set[str] = field(default_factory=set)
    """Ids handed out with MEMBER_ID_REQUIRED that have not come back."""
    pending_sync: set[str] = field(default_factory=set)
    initial_delay: InitialDelay | None = None

    def load(self, stored: StoredGroup) -> None:
        """Become what a restart finds in the log."""
        self.stored = stored
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol = stored.protocol
        self.leader = stored.leader
        self.state_ms = stored.state_ms
        self.members = {
            m.member_id: ClassicMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                ((stored.protocol or "", m.subscription),),
                m.assignment,
            )
            for m in stored.members
        }
        self.instances = {m.instance_id: m.member_id for m in stored.members if m.instance_id is not None}
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY

    def to_store(self, assignments: dict[str, bytes], wall_ms: int) -> StoredGroup:
        """Return the record of this generation, with these assignments."""
        members = tuple(
            StoredMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(self.protocol),
                assignments.get(m.member_id, b""),
            )
            for m in self.members.values()
        )
        return StoredGroup(
            self.protocol_type or "", self.generation, self.protocol, self.leader, wall_ms, members
        )

    @property
    def is_simple(self) -> bool:
        """Whether the group holds offsets and nothing else: nobody ever joined it."""
        return self.protocol_type is None and not self.members and not self.pending_join

    @property
    def is_empty(self) -> bool:
        """Whether the group has neither members nor a rebalance under way."""
        return self.state is ClassicState.EMPTY

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether a member with these protocols could join those that are here."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        return not self.members or not self._common().isdisjoint(name for name, _ in protocols)

    def _common(self) -> set[str]:
        """Return the protocols that every member supports."""
        names = [{name for name, _ in m.protocols} for m in self.members.values()]
        return set.intersection(*names) if names else set()

    def select_protocol(self) -> str:
        """Return the common protocol that most members like best."""
        common = self._common()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def validate_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member, or raise what Kafka answers to one that is not, or no longer, it."""
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                raise ApiError(ErrorCode.unknown_member_id)
            if current != member_id:
                raise ApiError(ErrorCode.fenced_instance_id)
        if member_id not in self.members:
            raise ApiError(ErrorCode.unknown_member_id)
        return self.members[member_id]

    def validate_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool = False
    ) -> None:
        """Raise what Kafka answers to an offset commit that does not come from a current member."""
        if generation < 0 and self.is_empty:
            return
        if generation < 0 and not member_id and instance_id is None:
            if transactional:  # its producer is fenced by the epoch, and need not say which member it serves
                return
            raise ApiError(ErrorCode.unknown_member_id)
        self.validate_member(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(ErrorCode.illegal_generation)
        if self.state is ClassicState.COMPLETING and not transactional:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Take in a member."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Let a member, or a pending id, go."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def all_joined(self) -> bool:
        """Return whether everybody waits for the next generation."""
        return not self.pending_join and all(m.join_ticket is not None for m in self.members.values())

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one who joined; return whether anyone did."""
        current = self.members.get(self.leader) if self.leader is not None else None
        if current is None or current.join_ticket is None:
            joined = next((m for m in self.members.values() if m.join_ticket is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def rebalance_timeout_ms(self) -> int:
        """Return how long a rebalance may take: as long as the most patient member says."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def described_members(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return what the leader is told about everybody."""
        return tuple((m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that the members consume, or None when the group does not say.

        The first fields of a consumer's metadata are the same in every version of it: a 16-bit
        version, then the topics.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        if self.members and self.protocol is None:
            return None
        for member in self.members.values():
            try:
                reader = Reader(member.metadata(self.protocol))
                reader.i16()
                topics.update(reader.array(reader.string))
            except CorruptGroupRecord:
                return None
        return topics

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member consumes `topic`, as far as can be known."""
        topics = self.subscribed_topics()
        return self.protocol_type == CONSUMER_PROTOCOL if topics is None else topic in topics
