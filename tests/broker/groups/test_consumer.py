from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from headwater.broker.groups import ConsumerReply
from headwater.broker.groups.records import Assignment
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.topics.add("t", 4)
    return harness


def partitions(reply: ConsumerReply, h: Harness, topic: str = "t") -> list[int] | None:
    if reply.assignment is None:
        return None
    return sorted(reply.assignment.get(h.topics.by_name[topic].id, ()))


def owned(h: Harness, indexes: Iterable[int], topic: str = "t") -> Assignment:
    found = frozenset(indexes)
    return {h.topics.by_name[topic].id: found} if found else {}


def refused(h: Harness, code: ErrorCode, member: str, epoch: int, **changes: object) -> None:
    with pytest.raises(ApiError) as error:
        h.beat(member, epoch, **changes)
    assert error.value.code is code


def test_the_first_member_gets_everything(h: Harness) -> None:
    reply = h.beat("a", 0)
    assert (reply.member_epoch, partitions(reply, h)) == (1, [0, 1, 2, 3])
    assert reply.heartbeat_interval_ms == 5000
    assert h.consumer().state == "Stable"
    assert h.beat("a", 1).assignment is None, "nothing changed"


def test_a_partition_is_revoked_before_it_is_given_away(h: Harness) -> None:
    h.beat("a", 0)
    b = h.beat("b", 0)
    assert (b.member_epoch, partitions(b, h)) == (2, [])
    a = h.beat("a", 1, owned=owned(h, range(4)))
    kept = partitions(a, h)
    assert a.member_epoch == 1
    assert kept is not None
    assert len(kept) == 2
    assert h.beat("b", 2).assignment is None, "not released yet"
    assert h.consumer().state == "Reconciling"
    a = h.beat("a", 1, owned=owned(h, kept))
    assert a.member_epoch == 2
    b = h.beat("b", 2)
    assert partitions(b, h) == sorted({0, 1, 2, 3} - set(kept))
    assert h.consumer().state == "Stable"


def test_who_does_not_revoke_in_time_is_put_out(h: Harness) -> None:
    h.beat("a", 0)
    h.beat("b", 0)
    h.beat("a", 1, owned=owned(h, range(4)))
    for _ in range(6):
        h.advance(5000)
        if "a" in h.consumer().members:
            h.beat("a", 1, owned=owned(h, range(4)))
        h.beat("b", h.consumer().members["b"].epoch)
    refused(h, ErrorCode.unknown_member_id, "a", 1)
    assert partitions(h.beat("b", h.consumer().members["b"].epoch, **full(h)), h) == [0, 1, 2, 3]


def full(h: Harness) -> dict[str, object]:
    return {"rebalance_timeout_ms": 30_000, "topic_names": frozenset({"t"}), "owned": {}}


def test_silence_ends_a_session(h: Harness) -> None:
    h.beat("a", 0)
    h.beat("b", 0)
    h.advance(44_999)
    h.beat("b", 2)
    h.advance(1)
    refused(h, ErrorCode.unknown_member_id, "a", 1)
    assert partitions(h.beat("b", 2), h) == [0, 1, 2, 3]


def test_leaving_frees_the_partitions_at_once(h: Harness) -> None:
    h.beat("a", 0)
    h.beat("b", 0)
    reply = h.beat("a", -1)
    assert (reply.member_id, reply.member_epoch) == ("a", -1)
    assert partitions(h.beat("b", 2), h) == [0, 1, 2, 3]
    h.beat("b", -1)
    assert h.consumer().state == "Empty"


def test_stale_epochs_are_fenced(h: Harness) -> None:
    h.beat("a", 0)
    refused(h, ErrorCode.fenced_member_epoch, "a", 2)
    h.beat("b", 0)
    kept = partitions(h.beat("a", 1, owned=owned(h, range(4))), h)
    assert kept is not None
    h.beat("a", 1, owned=owned(h, kept))
    lost_answer = h.beat("a", 1, owned=owned(h, kept))
    assert lost_answer.member_epoch == 2
    refused(h, ErrorCode.fenced_member_epoch, "a", 1, owned=owned(h, range(4)))


def test_a_fenced_member_joins_again_at_once_and_has_revoked_what_it_was_asked_to(h: Harness) -> None:
    h.beat("a", 0)
    h.beat("b", 0)
    kept = partitions(h.beat("a", 1, owned=owned(h, range(4))), h)
    assert kept is not None
    refused(h, ErrorCode.fenced_member_epoch, "a", 3, owned=owned(h, range(4)))
    again = h.beat("a", 0)
    assert (again.member_epoch, partitions(again, h)) == (2, kept)
    assert partitions(h.beat("b", 2), h) == sorted({0, 1, 2, 3} - set(kept))
    again = h.beat("a", 0)
    assert (again.member_epoch, partitions(again, h)) == (2, kept), (
        "also from where its epoch was not the first"
    )


def test_a_first_heartbeat_may_be_repeated(h: Harness) -> None:
    assert h.beat("a", 0) == h.beat("a", 0)


def test_unknown_groups_and_members(h: Harness) -> None:
    refused(h, ErrorCode.group_id_not_found, "a", 3)
    refused(h, ErrorCode.group_id_not_found, "a", -1)
    h.beat("a", 0)
    refused(h, ErrorCode.unknown_member_id, "x", 3)
    refused(h, ErrorCode.unknown_member_id, "x", -1)


@pytest.mark.parametrize(
    ("epoch", "changes", "code"),
    [
        (0, {"group_id": ""}, ErrorCode.invalid_request),
        (0, {"instance_id": ""}, ErrorCode.invalid_request),
        (0, {"rack_id": ""}, ErrorCode.invalid_request),
        (0, {"rebalance_timeout_ms": -1}, ErrorCode.invalid_request),
        (0, {"owned": None}, ErrorCode.invalid_request),
        (0, {"owned": {UUID(int=1): frozenset({1})}}, ErrorCode.invalid_request),
        (0, {"topic_names": None}, ErrorCode.invalid_request),
        (-2, {}, ErrorCode.invalid_request),
        (-3, {}, ErrorCode.invalid_request),
        (0, {"server_assignor": "mine"}, ErrorCode.unsupported_assignor),
        (0, {"topic_regex": "("}, ErrorCode.invalid_regular_expression),
        (0, {"group_id": "x" * 40_000}, ErrorCode.invalid_request),
    ],
)
def test_contradictions_are_refused(
    h: Harness, epoch: int, changes: dict[str, object], code: ErrorCode
) -> None:
    refused(h, code, "a", epoch, **changes)
    assert not h.log


def test_ids_are_made_for_old_clients_only(h: Harness) -> None:
    refused(h, ErrorCode.invalid_request, "", 0)
    assert h.beat("", 0, member_id_required=False).member_id.startswith("id")


def test_new_topics_and_partitions_reach_the_members(h: Harness) -> None:
    reply = h.beat("a", 0, topic_names=frozenset({"t", "later"}))
    assert reply.member_epoch == 1
    h.topics.add("later", 1)
    h.topics.by_name["t"].partitions = 5
    h.groups.topics_changed()
    reply = h.beat("a", 1)
    assert reply.member_epoch == 2
    assert partitions(reply, h) == [0, 1, 2, 3, 4]
    assert partitions(reply, h, "later") == [0]
    h.topics.drop("later")
    h.run(h.groups.topics_deleted(["later"]))
    reply = h.beat("a", 2, owned=owned(h, range(5)))
    assert reply.member_epoch == 3
    assert set(reply.assignment or ()) == {h.topics.by_name["t"].id}


def test_patterns_follow_the_topics(h: Harness) -> None:
    h.topics.add("app-1", 1)
    h.topics.add("__app-internal", 1).internal = True
    reply = h.beat("a", 0, topic_names=None, topic_regex="(__)?app-.*")
    assert reply.assignment is not None
    assert len(reply.assignment) == 1, "internal topics are consumed by name alone"
    assert partitions(reply, h, "app-1") == [0]
    h.topics.add("app-2", 1)
    h.groups.topics_changed()
    assert partitions(h.beat("a", 1), h, "app-2") == [0]
    none = h.beat("a", 2, topic_regex="", owned={})
    assert none.assignment == {}
    assert h.consumer().members["a"].subscription.topic_regex is None


def test_members_choose_the_assignor(h: Harness) -> None:
    h.topics.add("u", 2)
    both = frozenset({"t", "u"})
    h.beat("a", 0, topic_names=both, server_assignor="range")
    h.beat("b", 0, topic_names=both, server_assignor="range")
    assert h.groups.assignor_of(h.consumer()) == "range"
    target = h.consumer().targets
    t, u = (h.topics.by_name[name].id for name in ("t", "u"))
    assert (sorted(target["a"][t]), sorted(target["a"][u])) == ([0, 1], [0])


def test_a_full_group_refuses_newcomers() -> None:
    h = Harness({"group.consumer.max.size": 1})
    h.topics.add("t", 1)
    h.beat("a", 0)
    refused(h, ErrorCode.group_max_size_reached, "b", 0)
    h.beat("a", 1)


def test_a_restart_keeps_epochs_and_ownership(h: Harness) -> None:
    h.beat("a", 0)
    h.beat("b", 0)
    kept = partitions(h.beat("a", 1, owned=owned(h, range(4))), h)
    assert kept is not None
    before = h.consumer()
    h.restart()
    after = h.consumer()
    after.seen_topics_version = before.seen_topics_version
    assert after == before
    assert h.beat("b", 2).assignment is None
    assert h.beat("a", 1, owned=owned(h, kept)).member_epoch == 2
    assert len(partitions(h.beat("b", 2), h) or ()) == 2
    h.advance(45_000)
    assert h.consumer().state == "Empty"


class TestStaticMembers:
    def test_a_member_that_leaves_for_a_while_finds_its_partitions_again(self, h: Harness) -> None:
        h.beat("a", 0, instance_id="i")
        assert h.beat("a", -2, instance_id="i").member_epoch == -2
        back = h.beat("a2", 0, instance_id="i")
        assert (back.member_epoch, partitions(back, h)) == (1, [0, 1, 2, 3])
        assert h.consumer().epoch == 1, "nobody else was disturbed"
        refused(h, ErrorCode.fenced_instance_id, "a", 1, instance_id="i")

    def test_an_instance_that_is_still_there_is_not_replaced(self, h: Harness) -> None:
        h.beat("a", 0, instance_id="i")
        refused(h, ErrorCode.unreleased_instance_id, "b", 0, instance_id="i")
        refused(h, ErrorCode.unknown_member_id, "b", 1, instance_id="j")

    def test_one_that_does_not_come_back_loses_its_place(self, h: Harness) -> None:
        h.beat("a", 0, instance_id="i")
        h.beat("b", 0)
        h.beat("a", -2, instance_id="i")
        h.advance(44_000)
        assert h.beat("b", 2).assignment is None
        h.advance(1000)
        assert partitions(h.beat("b", 2), h) == [0, 1, 2, 3]

    def test_one_that_leaves_for_good_frees_its_partitions(self, h: Harness) -> None:
        h.beat("a", 0, instance_id="i")
        h.beat("a", -1, instance_id="i")
        assert h.consumer().instances == {}


class TestBothProtocols:
    def test_an_empty_classic_group_becomes_a_consumer_group_and_back(self, h: Harness) -> None:
        (leader,) = h.stable_group(1)
        assert h.commit(5, generation=1, member_id=leader.member_id) == [ErrorCode.none]
        refused(h, ErrorCode.group_id_not_found, "a", 0)
        h.advance(10_000)
        assert h.beat("a", 0).member_epoch == 1
        assert h.committed() == 5
        assert h.heartbeat(leader.member_id, 1) is ErrorCode.unknown_member_id
        h.restart()
        h.beat("a", 1)
        h.beat("a", -1)
        join = h.join()
        h.advance(3000)
        assert h.joined(join).generation == 1
        h.restart()
        assert h.classic().generation == 0
        assert h.committed() == 5

    def test_a_group_of_offsets_alone_becomes_either(self, h: Harness) -> None:
        h.commit(5)
        h.beat("a", 0)
        h.commit(6, group="h")
        join = h.join(group="h")
        h.advance(3000)
        assert h.joined(join).generation == 1
        h.restart()
        assert (h.committed(), h.committed("h")) == (5, 6)


def test_a_groups_own_settings_are_in_force_with_the_next_heartbeat() -> None:
    h = Harness({"group.consumer.heartbeat.interval.ms": 6000, "group.consumer.min.session.timeout.ms": 1000})
    h.topics.add("t", 1)
    joined = h.beat("m", 0)
    assert joined.heartbeat_interval_ms == 6000
    own = {"consumer.session.timeout.ms": "9000", "consumer.heartbeat.interval.ms": "5000"}
    for record in h.configs.alter("g", own):
        h.configs.replay(record)
    h.advance(44_000)
    assert h.beat("m", joined.member_epoch).heartbeat_interval_ms == 5000
    h.advance(9000)
    assert h.consumer().is_empty
