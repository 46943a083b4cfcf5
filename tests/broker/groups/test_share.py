"""Members of share groups: joining, staying, leaving, and who has which partitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.groups.assignors import AssignorMember
from headwater.broker.groups.records import Assignment
from headwater.broker.groups.share import ShareHeartbeat, ShareReply
from headwater.broker.groups.share_assignor import assign_simple
from headwater.broker.groups.share_group import ShareGroup
from headwater.broker.groups.share_records import SharedTopic
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness

SESSION_MS = 45_000


class ShareHarness(Harness):
    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)

    def share(self, member_id: str, epoch: int = 0, **changes: Any) -> ShareReply:
        values: dict[str, Any] = {"group_id": "g", "client_id": "client", "client_host": "/127.0.0.1"}
        if epoch == 0:
            values |= {"topic_names": frozenset({"t"})}
        request = ShareHeartbeat(member_id=member_id, member_epoch=epoch, **(values | changes))
        return self.reply(self.groups.share.heartbeat(self.now, request))

    def refused(self, member_id: str, epoch: int = 0, **changes: Any) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.share(member_id, epoch, **changes)
        return caught.value.code

    @property
    def group(self) -> ShareGroup:
        return self.groups.share.find("g")


def partitions(assignment: Assignment | None) -> list[int]:
    assert assignment is not None
    return sorted(index for indexes in assignment.values() for index in indexes)


def test_a_member_has_all_until_another_joins() -> None:
    h = ShareHarness()
    h.topics.add("t", 4)
    first = h.share("a")
    assert (first.member_epoch, partitions(first.assignment)) == (1, [0, 1, 2, 3])
    second = h.share("b")
    assert second.member_epoch == 2
    assert len(partitions(second.assignment)) == 2
    moved = h.share("a", 1)
    assert moved.member_epoch == 2
    assert sorted(partitions(moved.assignment) + partitions(second.assignment)) == [0, 1, 2, 3]
    assert h.share("a", 2).assignment is None
    assert h.share("a", 1).assignment is None  # the answer was lost, and nothing has changed since


def test_more_members_than_partitions_share_them() -> None:
    h = ShareHarness()
    h.topics.add("t", 1)
    for member in "abc":
        h.share(member)
    assert [partitions(h.share(member, 0).assignment) for member in "abc"] == [[0]] * 3


def test_new_partitions_are_noticed_with_the_next_heartbeat() -> None:
    h = ShareHarness()
    topic = h.topics.add("t", 1)
    h.share("a")
    topic.partitions = 3
    h.groups.topics_changed()
    reply = h.share("a", 1)
    assert (reply.member_epoch, partitions(reply.assignment)) == (2, [0, 1, 2])
    assert h.group.shared == {topic.id: SharedTopic("t", frozenset({0, 1, 2}))}


def test_a_silent_member_leaves() -> None:
    h = ShareHarness()
    h.topics.add("t", 2)
    h.share("a")
    h.share("b")
    h.advance(SESSION_MS - 1)
    h.share("b", 2)
    h.advance(1)
    assert set(h.group.members) == {"b"}
    assert h.refused("a", 1) is ErrorCode.unknown_member_id
    assert h.share("b", 2).member_epoch == 3
    assert h.share("b", -1).member_epoch == -1
    assert h.group.state == "Empty"


def test_stale_and_impossible_epochs_are_fenced() -> None:
    h = ShareHarness()
    h.topics.add("t", 1)
    assert h.refused("a", 1) is ErrorCode.group_id_not_found
    h.share("a")
    assert h.refused("a", 2) is ErrorCode.fenced_member_epoch
    assert h.refused("b", 1) is ErrorCode.unknown_member_id
    for member in "bcd":
        h.share(member)
    h.share("a", 1)
    h.share("e")
    h.share("a", 4)
    assert h.refused("a", 1) is ErrorCode.fenced_member_epoch
    assert h.share("a", 0).member_epoch == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"topic_names": None},
        {"topic_names": frozenset()},
        {"rack_id": ""},
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -2},
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any]) -> None:
    h = ShareHarness()
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "topic_names": frozenset({"t"}),
    }
    with pytest.raises(ApiError) as caught:
        h.groups.share.heartbeat(h.now, ShareHeartbeat(**(values | changes)))
    assert caught.value.code is ErrorCode.invalid_request


def test_a_full_group_takes_nobody_else() -> None:
    h = ShareHarness(**{"group.share.max.size": 2})
    h.topics.add("t", 1)
    h.share("a")
    h.share("b")
    assert h.refused("c") is ErrorCode.group_max_size_reached
    h.share("a")


def test_groups_of_other_kinds_are_told_apart() -> None:
    h = ShareHarness()
    h.topics.add("t", 1)
    h.share("a")
    ticket = h.join()
    assert h.joined(ticket).error is ErrorCode.inconsistent_group_protocol
    with pytest.raises(ApiError, match="not a consumer group"):
        h.beat("b", 0)
    with pytest.raises(ApiError, match="not a consumer group"):
        h.groups.delete_offsets("g", [("t", 0)])
    h.share("a", -1)
    with pytest.raises(ApiError, match="not a consumer group"):
        h.beat("b", 0)
    h.beat("c", 0, group_id="consumers")
    with pytest.raises(ApiError, match="not a share group"):
        h.share("a", group_id="consumers")


def test_a_restart_keeps_members_and_what_they_have() -> None:
    h = ShareHarness()
    h.topics.add("t", 3)
    h.share("a")
    h.share("b")
    h.share("a", 1)
    before = h.group
    h.restart()
    h.group.seen_topics_version = before.seen_topics_version
    assert h.group == before
    assert h.share("a", 2).assignment is None
    h.advance(SESSION_MS - 1)
    assert set(h.group.members) == {"a", "b"}


def test_an_empty_group_is_deleted_and_one_with_members_is_not() -> None:
    h = ShareHarness()
    h.topics.add("t", 1)
    h.share("a")
    assert h.reply(h.groups.delete_groups(["g"])) == [ErrorCode.non_empty_group]
    h.share("a", -1)
    h.advance(100 * 24 * 3_600_000)
    assert h.reply(h.groups.delete_groups(["g"])) == [ErrorCode.none]
    assert "g" not in h.groups.groups
    h.restart()
    assert "g" not in h.groups.groups


def test_topics_are_shared_before_there_are_members_and_forgotten_after() -> None:
    h = ShareHarness()
    topic = h.topics.add("t", 2)
    h.reply(h.groups.share.share_topics("g", ["t", "unknown"]))
    assert h.group.shared == {topic.id: SharedTopic("t", frozenset({0, 1}))}
    h.share("a")
    with pytest.raises(ApiError) as caught:
        h.groups.share.unshare_topics("g", [topic.id])
    assert caught.value.code is ErrorCode.non_empty_group
    h.share("a", -1)
    h.reply(h.groups.share.unshare_topics("g", [topic.id]))
    h.restart()
    assert h.group.shared == {}


members = st.lists(
    st.tuples(st.frozensets(st.sampled_from("tuv"), min_size=1), st.booleans()), min_size=1, max_size=7
)


@given(members, st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_everybody_is_about_equally_busy(
    wishes: list[tuple[frozenset[str], bool]], some: int, more: int, alike: bool
) -> None:
    h = ShareHarness()
    topics = {"t": h.topics.add("t", some), "u": h.topics.add("u", more), "v": h.topics.add("v", 1)}
    counts = {topic.id: topic.partitions for topic in topics.values()}
    if alike:
        wishes = [(wishes[0][0], keeps) for _, keeps in wishes]

    def spec(targets: dict[str, Assignment]) -> list[AssignorMember]:
        return [
            AssignorMember(
                str(i),
                None,
                frozenset(topics[name].id for name in names),
                targets.get(str(i), {}) if keeps else {},
            )
            for i, (names, keeps) in enumerate(wishes)
        ]

    assigned = assign_simple(spec({}), counts)
    for given_members in (spec(assigned), spec({}), spec({"0": {topics["t"].id: frozenset(range(some))}})):
        found = assign_simple(given_members, counts)
        sizes = [sum(map(len, found[each.member_id].values())) for each in given_members]
        for each in given_members:
            assert found[each.member_id].keys() <= each.topics
            assert all(max(ids) < counts[topic] for topic, ids in found[each.member_id].items())
        for topic in {topic for each in given_members for topic in each.topics}:
            owners = [
                sum(index in found[each.member_id].get(topic, ()) for each in given_members)
                for index in range(counts[topic])
            ]
            assert min(owners) >= 1
        if alike:
            # One more at most, but for a partition that those with room have already.
            assert max(sizes) - min(sizes) <= 2
            assert min(sizes) >= 1
    if all(keeps for _, keeps in wishes):
        assert assign_simple(spec(assigned), counts) == assigned


class ShareGroupMachine(RuleBasedStateMachine):
    """Members that come, go, fall silent and miss answers, against a set of those that ought to be there."""

    def __init__(self) -> None:
        super().__init__()
        self.h = ShareHarness()
        self.h.topics.add("t", 3)
        self.h.topics.add("u", 2)
        self.epochs: dict[str, int] = {}
        self.seen_ms: dict[str, int] = {}
        self.refusals: set[ErrorCode] = set()

    @rule(member=st.sampled_from("abcde"), topics=st.frozensets(st.sampled_from("tu"), min_size=1))
    def join(self, member: str, topics: frozenset[str]) -> None:
        reply = self.h.share(member, 0, topic_names=topics)
        assert reply.assignment is not None
        self._told(member, reply)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), lose=st.booleans())
    def beat(self, data: st.DataObject, lose: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        try:
            reply = self.h.share(member, self.epochs[member])
        except ApiError as error:
            # It missed more than one answer, and has to join again.
            self.refusals.add(error.code)
            self._told(member, self.h.share(member, 0))
            return
        self.seen_ms[member] = self.h.mono_ms
        if not lose:
            self._told(member, reply)

    def _told(self, member: str, reply: ShareReply) -> None:
        assert reply.member_epoch >= self.epochs.get(member, 0)
        self.epochs[member] = reply.member_epoch
        self.seen_ms[member] = self.h.mono_ms

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        self.h.share(member, -1)
        del self.epochs[member], self.seen_ms[member]

    @rule(milliseconds=st.sampled_from([1, 20_000, SESSION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.h.advance(milliseconds)
        for member, seen_ms in list(self.seen_ms.items()):
            if seen_ms + SESSION_MS <= self.h.mono_ms:
                del self.epochs[member], self.seen_ms[member]

    @rule(name=st.sampled_from("tu"), more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        topic = self.h.topics.by_name[name]
        topic.partitions = min(topic.partitions + more, 8)
        self.h.groups.topics_changed()

    @rule()
    def restart(self) -> None:
        self.h.restart()
        self.seen_ms = dict.fromkeys(self.seen_ms, self.h.mono_ms)

    @invariant()
    def those_who_ought_to_be_there_are(self) -> None:
        group = self.h.groups.groups.get("g")
        if group is None:
            assert not self.epochs
            return
        assert isinstance(group, ShareGroup)
        assert self.refusals <= {ErrorCode.fenced_member_epoch}
        assert set(group.members) == set(self.epochs) == set(group.targets)

    def teardown(self) -> None:
        """Once everybody has heard the last news, every partition that is wanted has a member."""
        for _ in range(2):
            for member, epoch in self.epochs.items():
                try:
                    self.epochs[member] = self.h.share(member, epoch).member_epoch
                except ApiError:
                    self.epochs[member] = self.h.share(member, 0).member_epoch
        group = self.h.groups.groups.get("g")
        if not isinstance(group, ShareGroup):
            return
        for name, topic in self.h.topics.by_name.items():
            wanted = any(name in each.subscription.topic_names for each in group.members.values())
            had = set().union(*(each.assigned.get(topic.id, ()) for each in group.members.values()))
            assert had == (set(range(topic.partitions)) if wanted else set())


TestShareGroup = ShareGroupMachine.TestCase
TestShareGroup.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
