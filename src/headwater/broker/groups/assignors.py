"""The server-side assignors of the consumer protocol: `uniform` and `range`.

Both are functions of the members' subscriptions, the partition counts, and (to move as little as
possible) the target assignment so far. Every partition of a subscribed topic goes to exactly one of
the members that subscribe to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.broker.groups.records import Assignment


@dataclass(frozen=True)
class AssignorMember:
    """What an assignor knows of a member."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: Assignment


Assignor = Callable[[list[AssignorMember], Mapping[UUID, int]], dict[str, Assignment]]


def assign_range(members: list[AssignorMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Give each member a run of every topic it subscribes to, so that equal keys of two topics meet.

    Members come in the order of their instance ids, then of their ids: the order does not depend on
    who joined first, so a member keeps its run when it comes back.
    """
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    result: dict[str, dict[UUID, frozenset[int]]] = {m.member_id: {} for m in members}
    for topic in sorted(set().union(*(m.topics for m in members))):
        subscribers = [m.member_id for m in ordered if topic in m.topics]
        quota, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + quota + (index < extra)
            if start < end:
                result[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(result)


def assign_uniform(members: list[AssignorMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Give every member the same number of partitions, give or take one, and move as few as possible."""
    if not members:
        return {}
    if len({m.topics for m in members}) == 1:
        return _uniform_homogeneous(members, partitions)
    return _uniform_heterogeneous(members, partitions)


Slot = tuple[UUID, int]


def _kept(member: AssignorMember, partitions: Mapping[UUID, int]) -> list[Slot]:
    """Return what a member has of the topics that it subscribes to, as far as they still exist."""
    return [
        (topic, index)
        for topic in sorted(member.target)
        if topic in member.topics
        for index in sorted(member.target[topic])
        if index < partitions[topic]
    ]


def _uniform_homogeneous(
    members: list[AssignorMember], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    topics = sorted(members[0].topics)
    slots = [(topic, index) for topic in topics for index in range(partitions[topic])]
    quota, extra = divmod(len(slots), len(members))
    owned: dict[str, list[Slot]] = {}
    taken: set[Slot] = set()
    # Those that have most go first: the extra partitions stay with members that already have one.
    for member in sorted(members, key=lambda m: (-len(_kept(m, partitions)), m.member_id)):
        room = quota + (extra > 0)
        extra -= extra > 0
        keep = [slot for slot in _kept(member, partitions) if slot not in taken][:room]
        taken.update(keep)
        owned[member.member_id] = keep
    free = iter([slot for slot in slots if slot not in taken])
    extra = len(slots) % len(members)
    extra -= sum(len(keep) > quota for keep in owned.values())
    for keep in owned.values():
        while len(keep) < quota:
            keep.append(next(free))
    for keep in owned.values():
        if extra > 0 and len(keep) == quota:
            keep.append(next(free))
            extra -= 1
    return {member_id: _as_assignment(keep) for member_id, keep in owned.items()}


def _uniform_heterogeneous(
    members: list[AssignorMember], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Assign what is free to the least loaded subscriber, then even out along single moves."""
    topics = sorted(set().union(*(m.topics for m in members)))
    owned: dict[str, set[Slot]] = {m.member_id: set() for m in members}
    taken: set[Slot] = set()
    for member in sorted(members, key=lambda m: m.member_id):
        keep = [slot for slot in _kept(member, partitions) if slot not in taken]
        owned[member.member_id].update(keep)
        taken.update(keep)
    subscribers = {topic: sorted(m.member_id for m in members if topic in m.topics) for topic in topics}

    def load(member_id: str) -> tuple[int, str]:
        return len(owned[member_id]), member_id

    # Topics with the fewest subscribers leave the least choice, so they are placed first.
    for topic in sorted(topics, key=lambda t: (len(subscribers[t]), t)):
        for index in range(partitions[topic]):
            if (topic, index) not in taken:
                owned[min(subscribers[topic], key=load)].add((topic, index))
    _even_out(owned, topics, subscribers)
    return {member_id: _as_assignment(sorted(slots)) for member_id, slots in owned.items()}


def _even_out(owned: dict[str, set[Slot]], topics: list[UUID], subscribers: Mapping[UUID, list[str]]) -> None:
    """Move partitions from a topic's most to its least loaded subscriber while they differ by two.

    Each move lowers the sum of the squares of the loads, so this ends; the bound is for the time.
    """
    moves = sum(map(len, owned.values())) * 2
    moved = True
    while moved and moves > 0:
        moved = False
        for topic in topics:
            names = subscribers[topic]
            owners = [name for name in names if any(slot[0] == topic for slot in owned[name])]
            if not owners:
                continue
            most = max(owners, key=lambda name: len(owned[name]))
            least = min(names, key=lambda name: len(owned[name]))
            while len(owned[most]) - len(owned[least]) > 1 and moves > 0:
                slot = max((s for s in owned[most] if s[0] == topic), default=None)
                if slot is None:
                    break
                owned[most].remove(slot)
                owned[least].add(slot)
                moves -= 1
                moved = True
                least = min(names, key=lambda name: len(owned[name]))


def _as_assignment(slots: list[Slot]) -> Assignment:
    by_topic: dict[UUID, set[int]] = {}
    for topic, index in slots:
        by_topic.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in by_topic.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
