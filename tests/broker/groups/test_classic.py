from __future__ import annotations

import pytest

from headwater.broker.groups import MemberIdentity
from headwater.broker.groups.classic_group import ClassicState
from headwater.core.errors import ErrorCode

from .harness import Harness, subscription


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_a_new_member_is_sent_back_for_its_id(h: Harness) -> None:
    first = h.joined(h.join(member_id_required=True))
    assert first.error is ErrorCode.member_id_required
    assert first.member_id.startswith("client-")
    again = h.join(first.member_id, member_id_required=True)
    h.advance(3000)
    assert h.joined(again).error is ErrorCode.none
    assert h.joined(again).member_id == first.member_id


def test_an_id_that_never_comes_back_is_forgotten(h: Harness) -> None:
    first = h.joined(h.join(member_id_required=True))
    h.advance(10_001)
    assert h.joined(h.join(first.member_id)).error is ErrorCode.unknown_member_id


def test_the_first_rebalance_waits_for_more_members(h: Harness) -> None:
    first = h.join()
    h.advance(2000)
    second = h.join()
    h.advance(2000)
    assert not h.replies, "the delay is prolonged when somebody joins"
    h.advance(1000)
    assert not h.replies
    h.advance(1000)
    a, b = h.joined(first), h.joined(second)
    assert a.generation == b.generation == 1
    assert a.leader == b.leader == a.member_id
    assert len(a.members) == 2
    assert b.members == ()


def test_the_delay_ends_with_the_rebalance_timeout(h: Harness) -> None:
    tickets = [h.join(rebalance_timeout_ms=5000)]
    for _ in range(6):
        h.advance(1000)
        tickets.append(h.join(rebalance_timeout_ms=5000))
    h.advance(1000)
    assert h.joined(tickets[0]).generation == 1


def test_no_delay_when_so_set() -> None:
    h = Harness({"group.initial.rebalance.delay.ms": 0})
    ticket = h.join()
    h.advance(0)
    assert h.joined(ticket).generation == 1


def test_members_get_what_the_leader_assigned(h: Harness) -> None:
    tickets = [h.join(), h.join()]
    h.advance(6000)
    leader, follower = (h.joined(t) for t in tickets)
    waiting = h.sync(follower)
    assert waiting not in h.replies
    done = h.sync(leader, {leader.member_id: b"L", follower.member_id: b"F"})
    assert h.synced(done).assignment == b"L"
    assert h.synced(waiting).assignment == b"F"
    assert h.synced(waiting).protocol_name == "range"
    assert h.classic().state is ClassicState.STABLE
    assert h.synced(h.sync(follower)).assignment == b"F"


def test_a_member_the_leader_forgot_gets_nothing(h: Harness) -> None:
    tickets = [h.join(), h.join()]
    h.advance(6000)
    leader, follower = (h.joined(t) for t in tickets)
    waiting = h.sync(follower)
    h.sync(leader, {leader.member_id: b"L"})
    assert h.synced(waiting).assignment == b""


def test_most_votes_choose_the_protocol(h: Harness) -> None:
    both = subscription("t")
    tickets = [
        h.join(protocols=(("range", both), ("sticky", both))),
        h.join(protocols=(("sticky", both), ("range", both))),
        h.join(protocols=(("sticky", both), ("range", both), ("other", both))),
    ]
    h.advance(60_000)
    assert {h.joined(t).protocol_name for t in tickets} == {"sticky"}


def test_protocols_without_anything_in_common_are_refused(h: Harness) -> None:
    h.stable_group(1)
    alien = h.joined(h.join(protocols=(("other", b""),)))
    assert alien.error is ErrorCode.inconsistent_group_protocol
    other_type = h.joined(h.join(protocol_type="connect"))
    assert other_type.error is ErrorCode.inconsistent_group_protocol
    empty = h.joined(h.join(group="new", protocols=()))
    assert empty.error is ErrorCode.inconsistent_group_protocol
    assert "new" not in h.groups.groups


@pytest.mark.parametrize("timeout", [5999, 1_800_001])
def test_session_timeouts_have_bounds(h: Harness, timeout: int) -> None:
    assert h.joined(h.join(session_timeout_ms=timeout)).error is ErrorCode.invalid_session_timeout


def test_bad_group_ids_are_refused(h: Harness) -> None:
    assert h.joined(h.join(group="")).error is ErrorCode.invalid_group_id
    assert h.joined(h.join(group="x" * 40_000)).error is ErrorCode.invalid_group_id
    assert h.joined(h.join(instance_id="x" * 40_000)).error is ErrorCode.invalid_request
    assert not h.groups.groups


def test_a_heartbeat_keeps_a_member_and_silence_loses_it(h: Harness) -> None:
    leader, follower = h.stable_group()
    for _ in range(10):
        h.advance(9000)
        assert h.heartbeat(leader.member_id, 1) is ErrorCode.none
        if follower.member_id not in h.classic().members:
            break
        assert h.heartbeat(follower.member_id, 1) is ErrorCode.none
    h.advance(9000)
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.none
    h.advance(1001)
    assert h.heartbeat(follower.member_id, 1) is ErrorCode.unknown_member_id
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.rebalance_in_progress


def test_a_second_member_makes_the_first_rejoin(h: Harness) -> None:
    (leader,) = h.stable_group(1)
    newcomer = h.join()
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.rebalance_in_progress
    rejoin = h.join(leader.member_id)
    assert h.joined(rejoin).generation == h.joined(newcomer).generation == 2
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.illegal_generation
    assert h.heartbeat(leader.member_id, 2) is ErrorCode.none


def test_who_does_not_rejoin_in_time_is_left_behind(h: Harness) -> None:
    leader, follower = h.stable_group(2, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    rejoin = h.join(leader.member_id, rebalance_timeout_ms=20_000)
    h.advance(19_999)
    assert rejoin not in h.replies
    h.advance(1)
    assert h.joined(rejoin).generation == 2
    assert h.heartbeat(follower.member_id, 1) is ErrorCode.unknown_member_id


def test_who_does_not_sync_in_time_is_left_behind(h: Harness) -> None:
    tickets = [h.join(session_timeout_ms=600_000, rebalance_timeout_ms=20_000) for _ in range(2)]
    h.advance(6000)
    leader, follower = (h.joined(t) for t in tickets)
    waiting = h.sync(follower)
    h.advance(20_000)
    assert h.synced(waiting).error is ErrorCode.rebalance_in_progress
    assert leader.member_id not in h.classic().members


def test_a_rebalance_interrupts_those_who_wait_for_an_assignment(h: Harness) -> None:
    tickets = [h.join(), h.join()]
    h.advance(6000)
    follower = h.joined(tickets[1])
    waiting = h.sync(follower)
    h.join()
    assert h.synced(waiting).error is ErrorCode.rebalance_in_progress


def test_a_follower_that_joins_again_unchanged_is_told_the_same(h: Harness) -> None:
    leader, follower = h.stable_group()
    again = h.joined(h.join(follower.member_id))
    assert (again.generation, again.members) == (1, ())
    changed = h.join(follower.member_id, protocols=(("range", subscription("u")),))
    assert changed not in h.replies
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.rebalance_in_progress


def test_a_leader_that_joins_again_rebalances(h: Harness) -> None:
    leader, follower = h.stable_group()
    rejoin = h.join(leader.member_id)
    assert rejoin not in h.replies
    other = h.join(follower.member_id)
    assert h.joined(rejoin).generation == h.joined(other).generation == 2


def test_a_join_that_is_repeated_does_not_leave_the_first_parked(h: Harness) -> None:
    leader, _ = h.stable_group()
    first = h.join(leader.member_id)
    second = h.join(leader.member_id)
    assert h.joined(first).error is ErrorCode.rebalance_in_progress
    assert second in h.open


def test_sync_is_refused_when_it_does_not_fit(h: Harness) -> None:
    (leader,) = h.stable_group(1)
    assert h.synced(h.sync(leader, generation=7)).error is ErrorCode.illegal_generation
    assert h.synced(h.sync(leader, member_id="x")).error is ErrorCode.unknown_member_id
    assert h.synced(h.sync(leader, group_id="none")).error is ErrorCode.unknown_member_id
    assert h.synced(h.sync(leader, group_id="")).error is ErrorCode.invalid_group_id
    assert h.synced(h.sync(leader, protocol_name="x")).error is ErrorCode.inconsistent_group_protocol
    h.join()
    assert h.synced(h.sync(leader)).error is ErrorCode.rebalance_in_progress


def test_leaving_rebalances_at_once_and_the_last_one_empties_the_group(h: Harness) -> None:
    leader, follower = h.stable_group()
    assert h.leave(MemberIdentity(follower.member_id)) == [ErrorCode.none]
    rejoin = h.join(leader.member_id)
    assert h.joined(rejoin).generation == 2
    assert h.leave(MemberIdentity(leader.member_id), MemberIdentity("x")) == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert h.classic().state is ClassicState.EMPTY
    assert h.classic().generation == 3
    h.restart()
    assert h.classic().state is ClassicState.EMPTY
    assert h.classic().generation == 3


def test_leaving_an_unknown_group(h: Harness) -> None:
    assert h.leave(MemberIdentity("x")) == [ErrorCode.unknown_member_id]


def test_a_full_group_refuses_newcomers() -> None:
    h = Harness({"group.max.size": 2})
    h.stable_group(2)
    assert h.joined(h.join()).error is ErrorCode.group_max_size_reached


def test_a_restart_keeps_generation_and_assignments(h: Harness) -> None:
    leader, follower = h.stable_group()
    h.restart()
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.none
    assert h.synced(h.sync(follower)).assignment == follower.member_id.encode()
    h.advance(9999)
    assert h.heartbeat(leader.member_id, 1) is ErrorCode.none
    h.advance(1)
    assert h.heartbeat(follower.member_id, 1) is ErrorCode.unknown_member_id


class TestStaticMembers:
    def test_a_restarted_member_gets_its_place_back_without_a_rebalance(self, h: Harness) -> None:
        tickets = [h.join(instance_id="a"), h.join(instance_id="b")]
        h.advance(6000)
        leader, follower = (h.joined(t) for t in tickets)
        assignments = {leader.member_id: b"L", follower.member_id: b"F"}
        h.sync(follower, instance_id="b")
        h.sync(leader, assignments, instance_id="a")
        back = h.joined(h.join(instance_id="b"))
        assert back.error is ErrorCode.none
        assert back.member_id != follower.member_id
        assert (back.generation, back.skip_assignment) == (1, False)
        assert h.synced(h.sync(back, instance_id="b")).assignment == b"F"
        assert h.heartbeat(leader.member_id, 1, "a") is ErrorCode.none
        assert h.heartbeat(follower.member_id, 1, "b") is ErrorCode.fenced_instance_id
        h.restart()
        assert h.heartbeat(back.member_id, 1, "b") is ErrorCode.none

    def test_a_restarted_leader_skips_the_assignment(self, h: Harness) -> None:
        (leader,) = h.stable_group(1, instance_id="a")
        back = h.joined(h.join(instance_id="a"))
        assert back.skip_assignment
        assert back.leader == back.member_id
        assert len(back.members) == 1
        assert back.member_id != leader.member_id

    def test_an_old_client_is_told_the_old_leader(self, h: Harness) -> None:
        (leader,) = h.stable_group(1, instance_id="a")
        back = h.joined(h.join(instance_id="a", can_skip_assignment=False))
        assert not back.skip_assignment
        assert back.leader == leader.member_id
        assert back.members == ()

    def test_a_duplicate_fences_the_one_that_waits(self, h: Harness) -> None:
        first = h.join(instance_id="a")
        second = h.join(instance_id="a")
        assert h.joined(first).error is ErrorCode.fenced_instance_id
        h.advance(6000)
        assert h.joined(second).error is ErrorCode.none

    def test_changed_protocols_rebalance(self, h: Harness) -> None:
        h.stable_group(1, instance_id="a", protocols=(("range", b""), ("sticky", b"")))
        back = h.join(instance_id="a", protocols=(("sticky", b""),))
        assert h.joined(back).generation == 2

    def test_they_may_leave_by_instance_id_alone(self, h: Harness) -> None:
        h.stable_group(1, instance_id="a")
        assert h.leave(MemberIdentity("wrong", "a")) == [ErrorCode.fenced_instance_id]
        assert h.leave(MemberIdentity("", "other")) == [ErrorCode.unknown_member_id]
        assert h.leave(MemberIdentity("", "a")) == [ErrorCode.none]
        assert h.classic().is_empty

    def test_absent_ones_keep_their_place_through_a_rebalance(self, h: Harness) -> None:
        (absent,) = h.stable_group(
            1, instance_id="a", session_timeout_ms=100_000, rebalance_timeout_ms=20_000
        )
        newcomer = h.join(session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
        h.advance(20_000)
        reply = h.joined(newcomer)
        assert reply.leader == reply.member_id
        assert {member[0] for member in reply.members} == {absent.member_id, reply.member_id}
