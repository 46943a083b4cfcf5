"""Groups that move between the protocols while they have members."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.broker.groups import JoinReply, MemberIdentity
from headwater.broker.groups.embedded import (
    by_id,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from headwater.broker.groups.records import MemberState
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness
from .harness import subscription as old_subscription
from .mixed_clients import subscription

ALL = {("t", p) for p in range(4)}


@pytest.fixture
def h() -> Harness:
    return _harness()


def _harness(**settings: Any) -> Harness:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    h = Harness({"group.initial.rebalance.delay.ms": 0, **named})
    h.topics.add("t", 4)
    return h


def settled(
    h: Harness, member_id: str = "", owned: set[tuple[str, int]] | None = None, **changes: Any
) -> JoinReply:
    """Join a group by the classic protocol, and fetch what it assigns; alone in a classic group, take all of it."""
    metadata = subscription(["t"], owned or set())
    ticket = h.join(member_id, **{"protocols": (("range", metadata),), **changes})
    h.advance(0)
    reply = h.joined(ticket)
    assert reply.error is ErrorCode.none, reply
    mine = {reply.member_id: encode_assignment(metadata, {"t": frozenset(range(4))})}
    assert h.synced(h.sync(reply, mine if reply.leader else None)).error is ErrorCode.none
    return reply


def fetched(h: Harness, reply: JoinReply) -> list[int]:
    return sorted(decode_assignment(h.synced(h.sync(reply)).assignment).get("t", ()))


def beat(h: Harness, member_id: str, epoch: int, **changes: Any) -> list[int] | None:
    assignment = h.beat(member_id, epoch, **changes).assignment
    return None if assignment is None else sorted(p for ps in assignment.values() for p in ps)


def refused(h: Harness, member_id: str, epoch: int) -> tuple[ErrorCode, str]:
    with pytest.raises(ApiError) as caught:
        h.beat(member_id, epoch)
    return caught.value.code, caught.value.message


class TestUpgrade:
    def test_partitions_pass_from_one_protocol_to_the_other(self, h: Harness) -> None:
        old = settled(h)
        assert beat(h, "new", 0) == []
        group = h.consumer()
        assert (group.epoch, group.members[old.member_id].epoch, group.state) == (2, 1, "Reconciling")
        assert h.heartbeat(old.member_id, 1) is ErrorCode.rebalance_in_progress
        again = settled(h, old.member_id)
        assert (again.generation, again.leader, again.members) == (2, "", ())
        assert (fetched(h, again), beat(h, "new", 2)) == ([0, 1], [2, 3])
        assert h.heartbeat(old.member_id, 2) is ErrorCode.none
        assert h.consumer().state == "Stable"

    def test_one_that_keeps_its_partitions_gives_up_the_others_first(self, h: Harness) -> None:
        old = settled(h)
        h.beat("new", 0)
        again = settled(h, old.member_id, ALL)
        assert (again.generation, fetched(h, again)) == (1, [0, 1])
        assert beat(h, "new", 2) is None, "the old one may still have what it shall give up"
        assert h.heartbeat(old.member_id, 1) is ErrorCode.rebalance_in_progress
        again = settled(h, old.member_id, {("t", 0), ("t", 1)})
        assert again.generation == 2
        assert beat(h, "new", 2) == [2, 3]

    def test_who_waits_is_asked_to_join_again(self, h: Harness) -> None:
        old = settled(h)
        newer = h.join()
        assert newer in h.open
        h.beat("new", 0)
        assert h.joined(newer).error is ErrorCode.rebalance_in_progress
        assert h.heartbeat(old.member_id, 1) is ErrorCode.rebalance_in_progress
        assert set(h.consumer().members) >= {old.member_id, "new"}

    def test_what_a_member_had_counts_even_while_its_group_rebalances(self, h: Harness) -> None:
        old = settled(h)
        h.join()
        h.join(old.member_id)  # both wait for an assignment now
        h.join()  # and begin anew
        assert beat(h, "new", 0) == []
        held = by_id({"t": frozenset(range(4))}, h.topics)
        assert h.consumer().members[old.member_id].assigned == held

    def test_what_a_member_said_to_own_counts_until_it_joins_again(self, h: Harness) -> None:
        metadata = subscription(["t"], ALL)
        ticket = h.join(protocols=(("range", metadata),))
        h.advance(0)
        joined = h.joined(ticket)
        h.sync(joined, {joined.member_id: encode_assignment(metadata, {"t": frozenset({0, 1})})})
        assert beat(h, "new", 0) == []
        member = h.consumer().members[joined.member_id]
        assert member.state is MemberState.UNREVOKED_PARTITIONS
        settled(h, joined.member_id, {("t", 0), ("t", 1)})
        assert beat(h, "new", 2) == [2, 3]

    def test_sessions_are_the_members_own(self, h: Harness) -> None:
        old = settled(h, session_timeout_ms=7000)
        h.beat("new", 0)
        h.advance(6999)
        assert old.member_id in h.consumer().members
        h.advance(1)
        assert set(h.consumer().members) == {"new"}

    def test_one_that_does_not_join_again_in_time_is_put_out(self, h: Harness) -> None:
        old = settled(h, rebalance_timeout_ms=8000)
        h.beat("new", 0)
        h.heartbeat(old.member_id, 1)
        h.advance(5000)
        h.heartbeat(old.member_id, 1)
        h.advance(3000)
        assert set(h.consumer().members) == {"new"}

    def test_one_that_does_not_sync_in_time_is_put_out(self, h: Harness) -> None:
        h.beat("new", 0)
        old = h.joined(h.join(rebalance_timeout_ms=8000))
        h.advance(5000)
        h.heartbeat(old.member_id, old.generation)
        h.advance(3000)
        assert set(h.consumer().members) == {"new"}

    def test_one_that_changes_its_protocol_under_its_id_has_to_sync_no_more(self, h: Harness) -> None:
        h.beat("new", 0)
        old = h.joined(h.join(rebalance_timeout_ms=8000))
        epoch = h.beat(old.member_id, 0).member_epoch
        h.advance(8000)
        assert set(h.consumer().members) == {"new", old.member_id}
        assert h.heartbeat(old.member_id, epoch) is ErrorCode.unknown_member_id

    def test_a_restart_resumes_the_mix(self, h: Harness) -> None:
        old = settled(h)
        h.beat("new", 0)
        h.restart()
        assert h.heartbeat(old.member_id, 1) is ErrorCode.rebalance_in_progress
        again = settled(h, old.member_id)
        h.restart()
        assert beat(h, "new", 2) == [2, 3]
        assert h.heartbeat(old.member_id, again.generation) is ErrorCode.none
        h.restart()
        h.beat("new", -1)
        assert h.classic().members.keys() == {old.member_id}

    def test_a_static_member_is_replaced_at_once(self, h: Harness) -> None:
        old = settled(h, instance_id="i")
        assert beat(h, "new", 0, instance_id="i") == [0, 1, 2, 3]
        assert h.consumer().epoch == 1, "nobody's partitions moved"
        assert h.heartbeat(old.member_id, 1, "i") is ErrorCode.fenced_instance_id
        assert h.heartbeat(old.member_id, 1) is ErrorCode.unknown_member_id
        h.advance(20_000)
        assert set(h.consumer().members) == {"new"}

    def test_what_cannot_move_says_why(self) -> None:
        h = _harness()
        h.stable_group(1, protocol_type="connect", protocols=(("default", b"x"),))
        code, why = refused(h, "new", 0)
        assert (code, "does not use the consumer embedded protocol" in why) == (
            ErrorCode.group_id_not_found,
            True,
        )
        h = _harness()
        h.stable_group(1)  # whose assignments are no consumers'
        assert "is malformed" in refused(h, "new", 0)[1]
        h = _harness(group_consumer_max_size=1)
        h.stable_group(2)
        assert "exceeds the consumer group maximum size" in refused(h, "new", 0)[1]
        assert len(h.classic().members) == 2
        h.advance(9000)
        assert len(h.classic().members) == 2, "their sessions are as they were"

    def test_an_assignor_of_its_own_tells_more_than_partitions(self, h: Harness) -> None:
        for name in ("stream", "cooperative-sticky"):
            ticket = h.join(group=name, protocols=((name, subscription(["t"], ())),))
            h.advance(0)
            joined = h.joined(ticket)
            told = encode_assignment(b"\0\1", {"t": frozenset({0})})[:-4] + b"\0\0\0\1x"
            h.sync(joined, {joined.member_id: told}, group_id=name)
        with pytest.raises(ApiError, match="an unsupported custom assignor is in use"):
            h.beat("new", 0, group_id="stream")
        h.beat("new", 0, group_id="cooperative-sticky")
        assert len(h.consumer("cooperative-sticky").members) == 2

    @pytest.mark.parametrize("policy", ["disabled", "DOWNGRADE"])
    def test_a_policy_may_forbid_it(self, policy: str) -> None:
        h = _harness(group_consumer_migration_policy=policy)
        settled(h)
        assert refused(h, "new", 0) == (
            ErrorCode.group_id_not_found,
            "Cannot upgrade classic group g to consumer group because online upgrade is disabled.",
        )


class TestInTheMix:
    def test_joins_that_do_not_fit(self, h: Harness) -> None:
        settled(h)
        h.beat("new", 0)

        def code(**changes: Any) -> ErrorCode:
            return h.joined(h.join(**changes)).error

        assert code(protocol_type="connect") is ErrorCode.inconsistent_group_protocol
        assert code(protocols=(("other", subscription(["t"], ())),)) is ErrorCode.inconsistent_group_protocol
        assert code(protocols=(("range", b"\0"),)) is ErrorCode.inconsistent_group_protocol
        assert code(protocols=()) is ErrorCode.inconsistent_group_protocol
        assert code(member_id="x", instance_id="i") is ErrorCode.unknown_member_id
        given = h.joined(h.join(member_id_required=True))
        assert given.error is ErrorCode.member_id_required
        assert len(h.consumer().members) == 2
        full = _harness(group_consumer_max_size=1)
        full.beat("new", 0)
        assert full.joined(full.join()).error is ErrorCode.group_max_size_reached

    def test_requests_out_of_turn(self, h: Harness) -> None:
        h.beat("new", 0)
        old = settled(h)

        def synced(**changes: Any) -> ErrorCode:
            return h.synced(h.sync(old, **changes)).error

        assert synced(generation=9) is ErrorCode.illegal_generation
        assert synced(protocol_type="connect") is ErrorCode.inconsistent_group_protocol
        assert synced(protocol_name="other") is ErrorCode.inconsistent_group_protocol
        assert synced(member_id="new") is ErrorCode.unknown_member_id
        assert synced(member_id="nobody") is ErrorCode.unknown_member_id
        assert h.heartbeat(old.member_id, 9) is ErrorCode.illegal_generation
        assert h.heartbeat("new", 1) is ErrorCode.unknown_member_id
        h.beat("another", 0)
        assert synced() is ErrorCode.rebalance_in_progress

    def test_offsets_are_committed_by_both(self, h: Harness) -> None:
        h.beat("new", 0)
        old = settled(h)
        assert h.commit(5, generation=old.generation, member_id=old.member_id, version=8) == [ErrorCode.none]
        with pytest.raises(ApiError) as caught:
            h.commit(6, generation=9, member_id=old.member_id)
        assert caught.value.code is ErrorCode.illegal_generation
        with pytest.raises(ApiError) as caught:
            h.commit(6, generation=1, member_id="new", version=8)
        assert caught.value.code is ErrorCode.unsupported_version
        assert h.committed() == 5

    def test_a_topic_that_grows_reaches_a_group_of_classic_members_alone(self) -> None:
        h = _harness(group_consumer_migration_policy="upgrade")
        old = settled(h)
        h.beat("new", 0)
        h.beat("new", -1)
        again = settled(h, old.member_id)
        assert fetched(h, again) == [0, 1, 2, 3]
        assert h.heartbeat(old.member_id, again.generation) is ErrorCode.none
        h.topics.add("other", 1)
        h.groups.topics_changed()
        assert h.heartbeat(old.member_id, again.generation) is ErrorCode.none, "it is not theirs"
        h.topics.by_name["t"].partitions = 5
        h.groups.topics_changed()
        assert h.heartbeat(old.member_id, again.generation) is ErrorCode.rebalance_in_progress
        assert fetched(h, settled(h, old.member_id)) == [0, 1, 2, 3, 4]

    def test_anybody_is_removed_by_leave_group(self, h: Harness) -> None:
        h.beat("new", 0)
        h.beat("static", 0, instance_id="i")
        old = settled(h)
        assert h.leave(MemberIdentity("nobody"), MemberIdentity("x", "i"), MemberIdentity("", "j")) == [
            ErrorCode.unknown_member_id,
            ErrorCode.fenced_instance_id,
            ErrorCode.unknown_member_id,
        ]
        assert h.leave(MemberIdentity("", "i"), MemberIdentity(old.member_id)) == [ErrorCode.none] * 2
        assert set(h.consumer().members) == {"new"}


class TestDowngrade:
    def test_the_last_of_the_consumer_protocol_leaves_a_classic_group(self, h: Harness) -> None:
        old = settled(h)
        h.beat("new", 0)
        again = settled(h, old.member_id)
        h.beat("new", 2)
        h.beat("new", -1)
        assert h.heartbeat(old.member_id, again.generation) is ErrorCode.rebalance_in_progress
        last = settled(h, old.member_id)
        assert (last.generation, last.leader, len(last.members)) == (3, old.member_id, 1)
        h.restart()
        assert h.heartbeat(old.member_id, 3) is ErrorCode.none
        assert refused(h, "new", 2)[0] is ErrorCode.group_id_not_found

    def test_also_when_its_session_ends_or_an_administrator_removes_it(self, h: Harness) -> None:
        h.beat("new", 0)
        old = settled(h, session_timeout_ms=100_000)
        h.advance(45_000)
        assert h.classic().members.keys() == {old.member_id}
        h.beat("new", 0)
        assert h.leave(MemberIdentity("new")) == [ErrorCode.none]
        assert h.classic().members.keys() == {old.member_id}

    def test_what_members_have_goes_with_them(self, h: Harness) -> None:
        old = settled(h)
        h.beat("new", 0)
        again = settled(h, old.member_id, ALL)
        assert fetched(h, again) == [0, 1], "of four, two of which it is still to give up"
        h.beat("new", -1)
        [stored] = h.classic().members.values()
        assert decode_assignment(stored.assignment) == {"t": frozenset(range(4))}
        assert beat(h, "another", 0) == []

    def test_a_static_member_that_comes_back_by_the_classic_protocol_keeps_what_it_had(
        self, h: Harness
    ) -> None:
        h.beat("new", 0, instance_id="i")
        h.beat("new", -2, instance_id="i")
        back = h.joined(h.join(instance_id="i"))
        assert (back.error, back.generation) == (ErrorCode.none, 1)
        assert fetched(h, back) == [0, 1, 2, 3]
        h.restart()
        assert h.heartbeat(back.member_id, 1, "i") is ErrorCode.none
        assert beat(h, "newer", 0, instance_id="i") == [0, 1, 2, 3]

    def test_it_waits_for_the_others_where_partitions_are_on_their_way(self, h: Harness) -> None:
        old = settled(h)
        h.beat("new", 0, instance_id="i")  # and has nothing yet
        back = h.join(instance_id="i")
        assert back in h.open
        assert h.heartbeat(old.member_id, 2) is ErrorCode.rebalance_in_progress
        h.join(old.member_id)
        assert h.joined(back).generation == 3

    @pytest.mark.parametrize("policy", ["disabled", "upgrade"])
    def test_a_policy_may_forbid_it(self, policy: str) -> None:
        h = _harness(group_consumer_migration_policy=policy)
        h.beat("new", 0, instance_id="i")
        old = settled(h)
        h.beat("new", -1, instance_id="i")
        assert set(h.consumer().members) == {old.member_id}
        assert h.heartbeat(old.member_id, old.generation) is ErrorCode.rebalance_in_progress
        assert fetched(h, settled(h, old.member_id)) == [0, 1, 2, 3]
        h.leave(MemberIdentity(old.member_id))
        assert h.consumer().is_empty
        h.beat("new", 0, instance_id="i")
        back = settled(h, instance_id="i")
        assert set(h.consumer().members) == {back.member_id}

    def test_a_group_too_large_for_the_classic_protocol_stays(self) -> None:
        h = _harness(group_max_size=1)
        h.beat("new", 0)
        settled(h)
        settled(h)
        h.beat("new", -1)
        assert len(h.consumer().members) == 2


def test_embedded_subscriptions_of_every_version() -> None:
    assert decode_subscription(old_subscription("t", "u")).topics == {"t", "u"}
    with_owned = subscription(["t"], {("t", 1)})
    assert decode_subscription(with_owned).owned == {"t": {1}}
    third = b"\0\3" + with_owned[2:] + b"\0\0\0\7" + b"\0\1r"
    assert decode_subscription(third).rack_id == "r"
    newer = b"\0\7" + third[2:] + b"more"
    assert decode_subscription(newer) == decode_subscription(third)
    assert encode_assignment(newer, {})[:2] == b"\0\3"
