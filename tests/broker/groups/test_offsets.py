from __future__ import annotations

from typing import Any

import pytest

from headwater.broker.groups import MemberIdentity
from headwater.core.errors import ApiError, ErrorCode

from .harness import Harness

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.topics.add("t", 4)
    return harness


def refused(h: Harness, code: ErrorCode, **changes: Any) -> None:
    with pytest.raises(ApiError) as error:
        h.commit(1, **changes)
    assert error.value.code is code


def test_a_commit_without_a_group_makes_a_simple_one(h: Harness) -> None:
    assert h.commit(7, metadata="m") == [ErrorCode.none]
    assert h.committed() == 7
    assert h.classic().is_simple
    h.restart()
    assert h.committed() == 7
    value = h.groups.fetch_offset("g", "t", 0)
    assert value is not None
    assert value.metadata == "m"


def test_a_generation_without_a_group_is_refused(h: Harness) -> None:
    refused(h, ErrorCode.group_id_not_found, generation=3, version=9)
    refused(h, ErrorCode.illegal_generation, generation=3, version=8)


def test_only_members_of_the_generation_commit(h: Harness) -> None:
    (leader,) = h.stable_group(1)
    assert h.commit(7, generation=1, member_id=leader.member_id) == [ErrorCode.none]
    refused(h, ErrorCode.unknown_member_id)
    refused(h, ErrorCode.unknown_member_id, generation=1, member_id="x")
    refused(h, ErrorCode.illegal_generation, generation=2, member_id=leader.member_id)
    refused(h, ErrorCode.unknown_member_id, generation=1, member_id=leader.member_id, instance_id="i")
    ticket = h.join(leader.member_id)
    assert h.joined(ticket).generation == 2
    refused(h, ErrorCode.rebalance_in_progress, generation=2, member_id=leader.member_id)


def test_a_commit_keeps_a_classic_session(h: Harness) -> None:
    (leader,) = h.stable_group(1)
    for _ in range(3):
        h.advance(9000)
        assert h.commit(7, generation=1, member_id=leader.member_id) == [ErrorCode.none]


def test_only_members_of_the_epoch_commit_and_fetch(h: Harness) -> None:
    h.beat("a", 0)
    assert h.commit(7, generation=1, member_id="a") == [ErrorCode.none]
    refused(h, ErrorCode.stale_member_epoch, generation=2, member_id="a")
    refused(h, ErrorCode.unknown_member_id, generation=1, member_id="x")
    refused(h, ErrorCode.unknown_member_id)
    refused(h, ErrorCode.unsupported_version, generation=1, member_id="a", version=8)
    h.groups.check_fetch("g", None, -1)
    h.groups.check_fetch("g", "a", 1)
    with pytest.raises(ApiError):
        h.groups.check_fetch("g", "a", 2)
    h.beat("a", -1)
    assert h.commit(8) == [ErrorCode.none]


def test_long_metadata_is_refused(h: Harness) -> None:
    assert h.commit(1, metadata="x" * 4096) == [ErrorCode.none]
    assert h.commit(2, metadata="x" * 4097) == [ErrorCode.offset_metadata_too_large]
    assert h.committed() == 1


def test_offsets_of_a_simple_group_expire_after_their_commit(h: Harness) -> None:
    h.commit(1)
    h.advance(6 * DAY_MS)
    h.commit(2, partition=1)
    h.advance(DAY_MS + 600_000)
    assert (h.committed(), h.committed(partition=1)) == (None, 2)
    h.advance(7 * DAY_MS)
    assert "g" not in h.groups.groups
    h.restart()
    assert not h.groups.groups


def test_offsets_of_a_group_expire_after_it_became_empty(h: Harness) -> None:
    (leader,) = h.stable_group(1, session_timeout_ms=1_800_000)
    h.commit(1, generation=1, member_id=leader.member_id)
    for _ in range(9 * 72):
        h.advance(DAY_MS // 72)
        assert h.heartbeat(leader.member_id, 1) is ErrorCode.none
    assert h.committed() == 1
    h.leave(MemberIdentity(leader.member_id))
    h.advance(7 * DAY_MS - 600_000)
    assert h.committed() == 1
    h.restart()
    h.advance(600_000 * 3)
    assert h.committed() is None
    assert not h.groups.groups


def test_a_client_may_choose_how_long(h: Harness) -> None:
    h.commit(1, retention_ms=3_600_000, version=2)
    h.advance(3_000_000)
    assert h.committed() == 1
    h.advance(1_200_000)
    assert h.committed() is None


def test_topics_that_are_consumed_keep_their_offsets(h: Harness) -> None:
    h.topics.add("u", 1)
    h.beat("a", 0)
    h.commit(1, generation=1, member_id="a")
    h.commit(1, topic="u", generation=1, member_id="a")
    for _ in range(8 * 24 * 120):
        h.advance(30_000)
        h.beat("a", 1)
    assert (h.committed(), h.committed(topic="u")) == (1, None)


def test_deleting_offsets(h: Harness) -> None:
    (leader,) = h.stable_group(1)
    h.commit(1, generation=1, member_id=leader.member_id)
    h.commit(1, topic="u", generation=1, member_id=leader.member_id)
    codes = h.reply(h.groups.delete_offsets("g", [("t", 0), ("u", 0), ("u", 9)]))
    assert codes == [ErrorCode.group_subscribed_to_topic, ErrorCode.none, ErrorCode.none]
    assert (h.committed(), h.committed(topic="u")) == (1, None)
    with pytest.raises(ApiError) as error:
        h.groups.delete_offsets("none", [("t", 0)])
    assert error.value.code is ErrorCode.group_id_not_found


def test_deleting_offsets_of_other_protocols_needs_an_empty_group(h: Harness) -> None:
    h.stable_group(1, protocol_type="connect")
    with pytest.raises(ApiError) as error:
        h.groups.delete_offsets("g", [("t", 0)])
    assert error.value.code is ErrorCode.non_empty_group


def test_deleting_groups(h: Harness) -> None:
    h.commit(1, group="simple")
    (leader,) = h.stable_group(1)
    codes = h.reply(h.groups.delete_groups(["simple", "g", "none"]))
    assert codes == [ErrorCode.none, ErrorCode.non_empty_group, ErrorCode.group_id_not_found]
    assert h.committed("simple") is None
    h.leave(MemberIdentity(leader.member_id))
    h.beat("a", 0, group_id="c")
    assert h.reply(h.groups.delete_groups(["g", "c"])) == [ErrorCode.none, ErrorCode.non_empty_group]
    h.beat("a", -1, group_id="c")
    assert h.reply(h.groups.delete_groups(["c"])) == [ErrorCode.none]
    assert not h.groups.groups
    h.restart()
    assert not h.groups.groups


def test_deleted_topics_take_their_offsets_along(h: Harness) -> None:
    h.commit(1)
    h.commit(2, topic="u")
    h.commit(3, group="h")
    h.run(h.groups.topics_deleted(["t"]))
    assert (h.committed(), h.committed(topic="u"), h.committed("h")) == (None, 2, None)


def test_idle_groups_have_no_timers(h: Harness) -> None:
    for n in range(1000):
        h.commit(1, group=f"g{n}")
    assert len(h.groups._timers) == 1
