from itertools import count

import pytest

from headwater.broker.fetch_sessions import FetchSessions, Watched
from headwater.core.errors import ApiError, ErrorCode


def watched(partition: int, offset: int = 0, topic: str = "t") -> Watched:
    return Watched(topic, partition, offset, 1000, 0)


def sessions(limit: int = 10) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(limit, lambda: next(numbers))


def test_a_session_goes_on_by_epochs() -> None:
    cache = sessions()
    session = cache.open([watched(0), watched(1)], uses_ids=False)
    assert session is not None
    for epoch in (1, 2, 3):
        assert cache.resume(session.id, epoch, uses_ids=False) is session
    with pytest.raises(ApiError) as caught:
        cache.resume(session.id, 3, uses_ids=False)
    assert caught.value.code == ErrorCode.invalid_fetch_session_epoch


def test_the_epoch_after_the_last_is_one() -> None:
    cache = sessions()
    session = cache.open([watched(0)], uses_ids=False)
    assert session is not None
    session.epoch = 2**31 - 1
    cache.resume(session.id, 2**31 - 1, uses_ids=False)
    assert session.epoch == 1


def test_unknown_closed_and_mismatched_sessions_are_refused() -> None:
    cache = sessions()
    session = cache.open([watched(0)], uses_ids=True)
    assert session is not None
    with pytest.raises(ApiError) as caught:
        cache.resume(99, 1, uses_ids=True)
    assert caught.value.code == ErrorCode.fetch_session_id_not_found
    with pytest.raises(ApiError) as caught:
        cache.resume(session.id, 1, uses_ids=False)
    assert caught.value.code == ErrorCode.fetch_session_topic_id_error
    cache.close(session.id)
    with pytest.raises(ApiError) as caught:
        cache.resume(session.id, 1, uses_ids=True)
    assert caught.value.code == ErrorCode.fetch_session_id_not_found


def test_an_update_adds_moves_and_forgets() -> None:
    session = sessions().open([watched(0), watched(1)], uses_ids=False)
    assert session is not None
    session.update([watched(1, 7), watched(2, 3)], [("t", 0), ("t", 9)])
    assert [(w.partition, w.offset) for w in session] == [(1, 7), (2, 3)]


def test_a_served_partition_goes_behind_the_others() -> None:
    session = sessions().open([watched(0), watched(1), watched(2)], uses_ids=False)
    assert session is not None
    session.served(("t", 0))
    assert [w.partition for w in session] == [1, 2, 0]


def test_news_is_news_once() -> None:
    one = watched(0)
    assert one.has_news(5, 0)
    assert not one.has_news(5, 0)
    assert one.has_news(6, 0)
    assert one.has_news(6, 1)


def test_the_least_recently_used_session_makes_room() -> None:
    cache = sessions(limit=2)
    first = cache.open([watched(0)], uses_ids=False)
    second = cache.open([watched(0)], uses_ids=False)
    assert first is not None
    assert second is not None
    cache.resume(first.id, 1, uses_ids=False)
    cache.open([watched(0)], uses_ids=False)
    assert len(cache) == 2
    cache.resume(first.id, 2, uses_ids=False)
    with pytest.raises(ApiError):
        cache.resume(second.id, 1, uses_ids=False)


def test_no_room_is_no_session() -> None:
    assert sessions(limit=0).open([watched(0)], uses_ids=False) is None


def test_a_session_may_begin_without_partitions() -> None:
    session = sessions().open([], uses_ids=False)
    assert session is not None
    session.update([watched(3)], [])
    assert [w.partition for w in session] == [3]
