"""A share coordinator with its log in a list, time in a variable, and one partition to share."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups import Moment
from headwater.broker.share.coordinator import Changes, ShareCoordinator
from headwater.broker.share.partition import Ack, AckType, SharePartition
from headwater.broker.share.records import ShareKey
from headwater.broker.share.sessions import SessionKey
from headwater.broker.share.taker import Acquired, Wish
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError
from headwater.core.settings import Value

WALL_MS = 1_700_000_000_000
KEY = ShareKey("g", UUID(int=1), 0)
SETTINGS: dict[str, Value] = {
    "group.share.record.lock.duration.ms": 1000,
    "group.share.partition.max.record.locks": 20,
}

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AckType.ACCEPT,
    AckType.RELEASE,
    AckType.REJECT,
    AckType.RENEW,
    AckType.GAP,
)


class Harness:
    def __init__(self, start_offset: int = 0, *, delivery_limit: int = 5) -> None:
        self.now_ms = 0
        self.log: list[StateRecord] = []
        self.settings = SETTINGS | {"group.share.delivery.count.limit": delivery_limit}
        self.shares = ShareCoordinator(self.settings, GroupConfigs(self.settings))
        self.shares.loaded()
        self.apply(self.shares.initialize(self.at, {KEY: start_offset}))

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms)

    @property
    def partition(self) -> SharePartition:
        return self.shares.partitions[KEY]

    def apply(self, changes: Changes) -> Changes:
        for record in changes.records:
            self.log.append(record)
            self.shares.replay(record)
        return changes

    def restart(self) -> None:
        self.shares = ShareCoordinator(self.settings, GroupConfigs(self.settings))
        for record in self.log:
            self.shares.replay(record)
        self.shares.loaded()

    def fetch(
        self,
        member: str,
        *batches: tuple[int, int],
        most: int = 500,
        batch_size: int = 500,
        exact: bool = False,
        offset: int | None = None,
    ) -> list[Acquired]:
        """Acquire from batches as they are in the log, of which those before the offset are not read."""
        at = self.partition.next_offset() if offset is None else offset
        read = [(first, last) for first, last in batches if last >= at]
        if not read:
            return []
        return self.shares.acquire(self.at, KEY, Wish(member, most, batch_size, exact), at, read)

    def say(self, member: str, *acks: tuple[int, int, AckType | Sequence[AckType]]) -> None:
        """Acknowledge, or raise what is refused."""
        words = [
            Ack(first, last, (types,) if isinstance(types, AckType) else tuple(types))
            for first, last, types in acks
        ]
        changes, refused = self.shares.acknowledge(self.at, member, {KEY: words})
        self.apply(changes)
        if refused:
            raise refused[KEY]

    def refused(self, member: str, *acks: tuple[int, int, AckType | Sequence[AckType]]) -> str:
        before = [(run.first, run.last, run.state, run.owner) for run in self.partition.in_flight]
        try:
            self.say(member, *acks)
        except ApiError as error:
            after = [(run.first, run.last, run.state, run.owner) for run in self.partition.in_flight]
            assert after == before
            return error.code.name
        raise AssertionError("nothing was refused")

    def leave(self, member: str) -> None:
        key = SessionKey(KEY.group, member)
        self.shares.sessions.open(key, [(KEY.topic_id, KEY.partition)], None)
        self.apply(self.shares.end_session(self.at, key)[0])

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        while (deadline := self.shares.next_deadline()) is not None and deadline <= self.now_ms:
            self.apply(self.shares.tick(self.at))
