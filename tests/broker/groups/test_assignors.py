from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups.assignors import ASSIGNORS, AssignorMember, assign_range, assign_uniform
from headwater.broker.groups.records import Assignment

TOPICS = [UUID(int=n) for n in range(1, 5)]


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[AssignorMember], dict[UUID, int]]:
    counts = {topic: draw(st.integers(0, 7)) for topic in TOPICS}
    members = []
    for n in range(draw(st.integers(1, 6))):
        topics = draw(st.frozensets(st.sampled_from(TOPICS), min_size=1))
        target = draw(
            st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 8), min_size=1, max_size=4))
        )
        instance = draw(st.none() | st.just(f"i{n}"))
        members.append(AssignorMember(f"m{n}", instance, topics, target))
    return members, counts


def _check_complete(
    members: list[AssignorMember], counts: dict[UUID, int], result: dict[str, Assignment]
) -> None:
    assert set(result) == {m.member_id for m in members}
    owned = [(topic, p) for a in result.values() for topic, partitions in a.items() for p in partitions]
    assert len(owned) == len(set(owned)), "a partition has two owners"
    wanted = set().union(*(m.topics for m in members))
    assert set(owned) == {(topic, p) for topic in wanted for p in range(counts[topic])}
    for member in members:
        assert set(result[member.member_id]) <= member.topics


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(situation=situations())
def test_every_partition_goes_to_one_subscriber(
    name: str, situation: tuple[list[AssignorMember], dict[UUID, int]]
) -> None:
    members, counts = situation
    _check_complete(members, counts, ASSIGNORS[name](members, counts))


def _size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


@given(situations(), st.booleans())
def test_uniform_is_even_and_keeps_what_it_can(
    situation: tuple[list[AssignorMember], dict[UUID, int]], same: bool
) -> None:
    members, counts = situation
    if same:
        members = [AssignorMember(m.member_id, None, frozenset(TOPICS), m.target) for m in members]
    result = assign_uniform(members, counts)
    if same:
        sizes = [_size(a) for a in result.values()]
        assert max(sizes) - min(sizes) <= 1
    again = [AssignorMember(m.member_id, None, m.topics, result[m.member_id]) for m in members]
    assert assign_uniform(again, counts) == result, "an even assignment was changed"


def test_uniform_moves_only_what_a_newcomer_gets() -> None:
    topic = TOPICS[0]
    members = [
        AssignorMember("a", None, frozenset({topic}), {topic: frozenset({0, 1, 2})}),
        AssignorMember("b", None, frozenset({topic}), {topic: frozenset({3, 4, 5})}),
        AssignorMember("c", None, frozenset({topic}), {}),
    ]
    result = assign_uniform(members, {topic: 6})
    assert result["a"][topic] < {0, 1, 2}
    assert result["b"][topic] < {3, 4, 5}
    assert len(result["c"][topic]) == 2


def test_range_gives_the_same_run_of_every_topic() -> None:
    both = frozenset(TOPICS[:2])
    members = [AssignorMember(name, None, both, {}) for name in ("b", "a", "c")]
    result = assign_range(members, {TOPICS[0]: 7, TOPICS[1]: 7})
    assert [sorted(result[name][TOPICS[0]]) for name in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(a[TOPICS[0]] == a[TOPICS[1]] for a in result.values())


def test_range_puts_static_members_first() -> None:
    topic = frozenset(TOPICS[:1])
    members = [AssignorMember("a", None, topic, {}), AssignorMember("z", "instance", topic, {})]
    result = assign_range(members, {TOPICS[0]: 2})
    assert result["z"][TOPICS[0]] == {0}
