"""The assignor of share groups, `simple`: partitions may have several members, and all are about equally busy.

With more partitions than members each partition has one member; with more members than partitions each
partition has as many as it takes to give everybody one. What a member has already it keeps as far as
balance allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.broker.groups.assignors import AssignorMember
from headwater.broker.groups.records import Assignment

NAME = "simple"
Slot = tuple[UUID, int]


def assign_simple(members: list[AssignorMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Give every partition to as many of its subscribers as balance asks for."""
    owned: dict[str, set[Slot]] = {member.member_id: set() for member in members}
    # Members that want the same topics balance all of them together, others each topic for itself.
    wishes = {member.topics for member in members}
    groups = wishes if len(wishes) == 1 else {frozenset([topic]) for wish in wishes for topic in wish}
    for topics in sorted(groups, key=sorted):
        subscribers = [member for member in members if topics <= member.topics]
        slots = [(topic, index) for topic in sorted(topics) for index in range(partitions[topic])]
        if slots:
            _balance(subscribers, slots, owned)
    return {member_id: _as_assignment(slots) for member_id, slots in owned.items()}


def _balance(members: list[AssignorMember], slots: list[Slot], owned: dict[str, set[Slot]]) -> None:
    sharing = -(-len(members) // len(slots))  # members of each partition
    total = sharing * len(slots)
    quotas = {
        member.member_id: -(-total * (i + 1) // len(members)) + (-total * i // len(members))
        for i, member in enumerate(members)
    }
    known = set(slots)
    holders: dict[Slot, set[str]] = {slot: set() for slot in slots}
    rooms: dict[str, int] = {}
    for member in members:
        room = quotas[member.member_id]
        for slot in sorted((topic, index) for topic, indexes in member.target.items() for index in indexes):
            if slot in known and room and len(holders[slot]) < sharing:
                holders[slot].add(member.member_id)
                room -= 1
        rooms[member.member_id] = room
    for slot in slots:
        while len(holders[slot]) < sharing:
            free = [name for name, room in rooms.items() if room and name not in holders[slot]]
            if not free:
                break
            # Whoever has most room left, so that the last partitions find members that do not have them yet.
            name = max(free, key=lambda each: rooms[each])
            holders[slot].add(name)
            rooms[name] -= 1
    for slot, names in holders.items():
        for name in names:
            owned[name].add(slot)


def _as_assignment(slots: set[Slot]) -> Assignment:
    topics = {topic for topic, _ in slots}
    return {topic: frozenset(index for each, index in slots if each == topic) for topic in topics}
