"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.

A session remembers the partitions a client fetches and what the client was last told of each, so that a
request names only additions, moves and removals, and a response only partitions with news.
Sessions live in memory and are numbered at random; a client whose session is gone starts another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from headwater.core.errors import ApiError, ErrorCode

Key = tuple[str | bytes, int]

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class Watched:
    """One partition in a session: where the client is, and what it was last told."""

    __slots__ = (
        "high_watermark",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "start_offset",
        "topic",
    )

    def __init__(
        self, topic: str | bytes, partition: int, offset: int, max_bytes: int, leader_epoch: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.high_watermark = -1
        self.start_offset = -1

    @property
    def key(self) -> Key:
        """What names the partition: its topic, by name or id, and its number."""
        return self.topic, self.partition

    def has_news(self, high_watermark: int, start_offset: int) -> bool:
        """Tell whether these bounds are news to the client, and remember them as told."""
        if self.high_watermark == high_watermark and self.start_offset == start_offset:
            return False
        self.high_watermark, self.start_offset = high_watermark, start_offset
        return True


class Session:
    """The partitions of one client's incremental fetches, in the order in which they are served."""

    __slots__ = ("epoch", "id", "partitions", "uses_ids")

    def __init__(self, session_id: int, partitions: Iterable[Watched], *, uses_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.partitions: OrderedDict[Key, Watched] = OrderedDict((w.key, w) for w in partitions)

    def __iter__(self) -> Iterator[Watched]:
        return iter(list(self.partitions.values()))

    def update(self, wanted: Iterable[Watched], forgotten: Iterable[Key]) -> None:
        """Take over what an incremental request changes."""
        for watched in wanted:
            known = self.partitions.get(watched.key)
            if known is None:
                self.partitions[watched.key] = watched
            else:
                known.offset = watched.offset
                known.max_bytes = watched.max_bytes
                known.leader_epoch = watched.leader_epoch
        for key in forgotten:
            self.partitions.pop(key, None)

    def served(self, key: Key) -> None:
        """Move a partition that gave records behind the others, so that each has its turn."""
        if key in self.partitions:
            self.partitions.move_to_end(key)


class FetchSessions:
    """The sessions of one broker, least recently used first, within a limit."""

    def __init__(self, limit: int, random_id: Callable[[], int]) -> None:
        self._limit = limit
        self._random_id = random_id
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: list[Watched], *, uses_ids: bool) -> Session | None:
        """Open a session for a full fetch, or return None when sessions are switched off."""
        if self._limit <= 0:
            return None
        while len(self._sessions) >= self._limit:
            self._sessions.popitem(last=False)
        session_id = self._random_id()
        while session_id in self._sessions or session_id == 0:
            session_id = self._random_id()
        session = self._sessions[session_id] = Session(session_id, partitions, uses_ids=uses_ids)
        return session

    def close(self, session_id: int) -> None:
        """Forget a session."""
        self._sessions.pop(session_id, None)

    def resume(self, session_id: int, epoch: int, *, uses_ids: bool) -> Session:
        """Return the session that an incremental fetch of this epoch continues."""
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_ids != uses_ids:
            raise ApiError(ErrorCode.fetch_session_topic_id_error)
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        self._sessions.move_to_end(session_id)
        return session
