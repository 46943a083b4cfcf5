"""Share sessions: a member names the partitions that it takes records from once, then only what changes.

A session belongs to one member of one group and to the connection that opened it. It ends when the member
says so or loses its connection; what it had acquired is then free again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple, Self
from uuid import UUID

from headwater.core.errors import ApiError, ErrorCode

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_MEMBER_ID = 36
"""Characters of a member's id, which is the text of a UUID."""
_LAST_EPOCH = 2**31 - 1

Slot = tuple[UUID, int]
"""A topic's id and a partition of it."""


class SessionKey(NamedTuple):
    """Whose session it is."""

    group: str
    member: str

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return whose session a request is about, or raise INVALID_REQUEST."""
        group, member = message.group_id, message.member_id
        if group is None or not member or len(member) > MAX_MEMBER_ID:
            raise ApiError(ErrorCode.invalid_request)
        return cls(group, member)


class ShareSession:
    """The partitions of one member, in the order in which they are served."""

    __slots__ = ("connection", "epoch", "key", "slots")

    def __init__(self, key: SessionKey, slots: Iterable[Slot], connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.slots: OrderedDict[Slot, None] = OrderedDict.fromkeys(slots)

    def update(self, wanted: Iterable[Slot], forgotten: Iterable[Slot]) -> None:
        """Take over what a request changes."""
        for slot in wanted:
            self.slots.setdefault(slot)
        for slot in forgotten:
            self.slots.pop(slot, None)

    def served(self, slot: Slot) -> None:
        """Move a partition that gave records behind the others, so that each has its turn."""
        if slot in self.slots:
            self.slots.move_to_end(slot)


class ShareSessions:
    """The sessions of one broker, within a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_connection: dict[object, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, slots: Iterable[Slot], connection: object) -> ShareSession:
        """Open a session in the place of the one that the member had."""
        if key not in self._sessions and len(self._sessions) >= self._limit:
            raise ApiError(ErrorCode.share_session_limit_reached)
        self.close(key)
        self._of_connection.setdefault(connection, set()).add(key)
        session = self._sessions[key] = ShareSession(key, slots, connection)
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Return a member's session, or raise that there is none."""
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(ErrorCode.share_session_not_found)
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session that a request of this epoch continues."""
        session = self.find(key)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.invalid_share_session_epoch)
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """Forget a session, and return it if there was one."""
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._of_connection[session.connection]
            keys.discard(key)
            if not keys:
                del self._of_connection[session.connection]
        return session

    def of_connection(self, connection: object) -> list[SessionKey]:
        """Return whose sessions a connection has opened, and still has."""
        return list(self._of_connection.get(connection, ()))
