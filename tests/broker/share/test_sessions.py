from uuid import UUID

import pytest

from headwater.broker.share.sessions import SessionKey, ShareSessions
from headwater.core.errors import ApiError, ErrorCode

KEY = SessionKey("g", "m")
SLOTS = [(UUID(int=1), 0), (UUID(int=1), 1)]


def test_a_session_goes_on_by_epochs() -> None:
    sessions = ShareSessions(10)
    session = sessions.open(KEY, SLOTS, None)
    for epoch in (1, 2):
        assert sessions.resume(KEY, epoch) is session
    with pytest.raises(ApiError) as caught:
        sessions.resume(KEY, 2)
    assert caught.value.code is ErrorCode.invalid_share_session_epoch
    session.epoch = 2**31 - 1
    sessions.resume(KEY, 2**31 - 1)
    assert session.epoch == 1
    assert sessions.close(KEY) is session
    with pytest.raises(ApiError) as caught:
        sessions.resume(KEY, 1)
    assert caught.value.code is ErrorCode.share_session_not_found


def test_partitions_come_go_and_take_turns() -> None:
    session = ShareSessions(10).open(KEY, SLOTS, None)
    session.served(SLOTS[0])
    assert list(session.slots) == [SLOTS[1], SLOTS[0]]
    other = (UUID(int=2), 0)
    session.update([other, SLOTS[0]], [SLOTS[1], (UUID(int=9), 9)])
    assert list(session.slots) == [SLOTS[0], other]
    session.served(SLOTS[1])
    assert SLOTS[1] not in session.slots


def test_a_connection_knows_its_sessions_until_another_has_them() -> None:
    sessions = ShareSessions(10)
    sessions.open(KEY, SLOTS, "first")
    sessions.open(SessionKey("h", "m"), SLOTS, "first")
    assert sorted(sessions.of_connection("first")) == [KEY, SessionKey("h", "m")]
    sessions.open(KEY, SLOTS, "second")
    assert sessions.of_connection("first") == [SessionKey("h", "m")]
    sessions.close(KEY)
    assert sessions.of_connection("second") == []


def test_there_is_a_limit_which_a_member_that_begins_again_does_not_meet() -> None:
    sessions = ShareSessions(1)
    sessions.open(KEY, SLOTS, None)
    sessions.open(KEY, SLOTS, None)
    with pytest.raises(ApiError) as caught:
        sessions.open(SessionKey("g", "other"), SLOTS, None)
    assert caught.value.code is ErrorCode.share_session_limit_reached
    assert len(sessions) == 1
