"""Consumers of the classic protocol as they behave: eager ones give up everything to join, the others bit by bit."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.broker.groups import JoinReply, SyncReply
from headwater.broker.groups.embedded import decode_assignment, decode_subscription, encode_assignment
from headwater.core.errors import ErrorCode

from .harness import Harness

SESSION_MS = 10_000
REBALANCE_MS = 10_000_000
"""Long, so that what puts a member out is its session alone."""

Slot = tuple[str, int]


def by_topic(slots: Iterable[Slot]) -> dict[str, frozenset[int]]:
    result: dict[str, frozenset[int]] = {}
    for topic, partition in slots:
        result[topic] = result.get(topic, frozenset()) | {partition}
    return result


def subscription(topics: Iterable[str], owned: Iterable[Slot]) -> bytes:
    """Return the metadata of a consumer, in the version that has what it owns."""
    out = struct.pack(">h", 1) + _strings(topics) + struct.pack(">i", -1)
    partitions = by_topic(owned)
    out += struct.pack(">i", len(partitions))
    for topic, indexes in sorted(partitions.items()):
        out += struct.pack(">h", len(topic)) + topic.encode()
        out += struct.pack(f">{len(indexes) + 1}i", len(indexes), *sorted(indexes))
    return out


def _strings(names: Iterable[str]) -> bytes:
    listed = sorted(names)
    return struct.pack(">i", len(listed)) + b"".join(
        struct.pack(">h", len(name)) + name.encode() for name in listed
    )


@dataclass
class ClassicClient:
    """A consumer of the classic protocol; `step` does what it does next."""

    h: Harness
    topics: frozenset[str]
    gradual: bool
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    owns: set[Slot] = field(default_factory=set)
    ticket: int | None = None
    has_to_join: bool = True
    seen_ms: int = 0
    dead: bool = False
    leads: bool = False
    assigned_for: list[int] = field(default_factory=list)
    """How many partitions each topic had when it last assigned."""

    @property
    def waits(self) -> bool:
        """Whether a request of its is parked."""
        return self.ticket is not None and self.ticket in self.h.open

    @property
    def heard_ms(self) -> int:
        """When the broker last heard of it, or answered it."""
        if self.waits:
            return self.h.mono_ms
        return max(self.seen_ms, self.h.replied_ms.get(self.ticket or 0, 0))

    @property
    def settled(self) -> bool:
        return not self.dead and not self.has_to_join and self.ticket is None

    def step(self) -> None:
        """Take an answer if there is one, else join if it has to, else send a heartbeat."""
        if self.waits:
            return
        if self.h.mono_ms - self.heard_ms >= SESSION_MS:
            self.expire()
        if self.ticket is not None:
            reply = self.h.replies.get(self.ticket)
            self.ticket = None
            if isinstance(reply, JoinReply):
                self._joined(reply)
            elif isinstance(reply, SyncReply):
                self._synced(reply)
        elif self.has_to_join or (self.leads and self.assigned_for != self._shape()):
            self._join()
        else:
            self._react(self.h.heartbeat(self.member_id, self.generation, self.instance_id))
        self.seen_ms = self.h.mono_ms
        self.h.advance(0)  # the first to join a group waits for nobody else

    def disconnect(self) -> None:
        """Find the broker gone, and what was asked of it unanswered."""
        if self.ticket is not None:
            self.ticket, self.has_to_join = None, True

    def _join(self) -> None:
        if not self.gradual:
            self.owns = set()
        name = "cooperative" if self.gradual else "range"
        self.ticket = self.h.join(
            self.member_id,
            instance_id=self.instance_id,
            protocols=((name, subscription(self.topics, self.owns)),),
            member_id_required=True,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def _joined(self, reply: JoinReply) -> None:
        if reply.error is ErrorCode.member_id_required:
            self.member_id = reply.member_id
        elif reply.error is ErrorCode.none:
            self.member_id, self.generation = reply.member_id, reply.generation
            self.leads = reply.leader == self.member_id
            self.assigned_for = self._shape()
            assignments = self._assign(reply) if self.leads and not reply.skip_assignment else {}
            self.ticket = self.h.sync(
                reply, assignments, protocol_type="consumer", instance_id=self.instance_id
            )
            self.has_to_join = False
        else:
            self._react(reply.error)

    def _synced(self, reply: SyncReply) -> None:
        if reply.error is not ErrorCode.none:
            self._react(reply.error)
            return
        told = {(t, p) for t, ps in decode_assignment(reply.assignment).items() for p in ps}
        self.has_to_join = bool(self.owns - told)
        self.owns = told

    def _react(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.none:
                pass
            case ErrorCode.rebalance_in_progress:
                self.has_to_join = True
            case ErrorCode.illegal_generation:
                self.lose()
            case ErrorCode.unknown_member_id:
                self.member_id = ""
                self.lose()
            case ErrorCode.fenced_instance_id:
                self.dead = True
                self.lose()
            case _:
                raise AssertionError(code)

    def lose(self) -> None:
        """Give up everything, and begin anew."""
        self.owns, self.has_to_join = set(), True

    def expire(self) -> None:
        """Give up everything after a silence, and what was answered before it."""
        self.lose()
        self.ticket = None

    def _shape(self) -> list[int]:
        return [topic.partitions for topic in self.h.topics.by_name.values()]

    def _assign(self, reply: JoinReply) -> dict[str, bytes]:
        """Assign as a leader: everybody its share, and what another one still owns to nobody yet."""
        told = {member_id: decode_subscription(data) for member_id, _, data in reply.members}
        owner = {(t, p): member_id for member_id, s in told.items() for t, ps in s.owned.items() for p in ps}
        shares: dict[str, set[Slot]] = {member_id: set() for member_id in told}
        for name, topic in sorted(self.h.topics.by_name.items()):
            takers = sorted(member_id for member_id, s in told.items() if name in s.topics)
            for partition in range(topic.partitions if takers else 0):
                taker = takers[partition % len(takers)]
                if owner.get((name, partition), taker) == taker:
                    shares[taker].add((name, partition))
        metadata = {member_id: data for member_id, _, data in reply.members}
        return {
            member_id: encode_assignment(metadata[member_id], by_topic(slots))
            for member_id, slots in shares.items()
        }
