"""The event loop's side of the share coordinator: durability, locks that end, fetches that wait for records.

As with groups, a change is appended and replayed at once, without giving way to another request, and whoever
caused it is answered when it is on disk. What is released is given to others before that: should a crash
take the release back, its records are available all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.broker.groups import Moment
from headwater.broker.share.coordinator import Changes, Refusals
from headwater.broker.share.partition import Ack
from headwater.broker.share.records import ShareKey
from headwater.broker.share.sessions import SessionKey
from headwater.core.errors import ApiError
from headwater.net.kafka.alarm import Alarm

if TYPE_CHECKING:
    from headwater.net.node import Node

logger = logging.getLogger(__name__)


class ShareService:
    """Runs the share coordinator of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[ShareKey, dict[object, Callable[[], None]]] = {}
        self._alarm = Alarm(self.run_due)

    def now(self) -> Moment:
        """Return the time as the coordinator takes it."""
        return Moment(self._node.clock.monotonic_ms(), self._node.clock.wall_ms())

    def start(self) -> None:
        """Begin to serve, once the log has been replayed, without what a crash kept from being forgotten."""
        node = self._node
        node.shares.loaded()
        topics = {key.topic_id for key in node.shares.partitions} - node.topics.by_id.keys()
        groups = {key.group for key in node.shares.partitions} - node.groups.groups.keys()
        self.apply(node.shares.forget_topics(topics))
        self.apply(node.shares.forget(groups))

    def stop(self) -> None:
        """Stop the timer."""
        self._alarm.cancel()

    # -- changes ---------------------------------------------------------------------------------

    def apply(self, changes: Changes) -> bool:
        """Append and replay a change, wake those who wait for it, and return whether there was one."""
        if changes.records:
            self._node.append_shares(changes.records)
        for key in changes.woken:
            for wake in list(self._waiting.get(key, {}).values()):
                wake()
        return bool(changes.records)

    def acknowledge(self, member: str, acks: Mapping[ShareKey, Sequence[Ack]]) -> tuple[bool, Refusals]:
        """Take a member's words; return whether there is something to wait for, and what is refused."""
        changes, refused = self._node.shares.acknowledge(self.now(), member, acks)
        return self.apply(changes), refused

    def end_session(self, group_id: str, member_id: str) -> None:
        """Forget a member's session, and free what it has acquired."""
        changes, session = self._node.shares.end_session(self.now(), SessionKey(group_id, member_id))
        if session is None:
            return
        try:
            self.apply(changes)
        except ApiError as error:
            logger.error("what member %s of %s held could not be released: %s", member_id, group_id, error)

    def disconnected(self, connection: object) -> None:
        """End the sessions that a connection has opened."""
        for key in self._node.shares.sessions.of_connection(connection):
            self.end_session(*key)

    async def forget(self, group_ids: list[str]) -> None:
        """Forget what those of the groups that were deleted have shared, and return when that is on disk."""
        gone = [group_id for group_id in group_ids if group_id not in self._node.groups.groups]
        if self.apply(self._node.shares.forget(gone)):
            await self._node.shares_durable()

    # -- waiting ---------------------------------------------------------------------------------

    def watch(self, key: ShareKey, who: object, wake: Callable[[], None]) -> None:
        """Have `wake` called when records of a share partition become available again."""
        self._waiting.setdefault(key, {})[who] = wake

    def unwatch(self, key: ShareKey, who: object) -> None:
        """Call no more."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.pop(who, None)
            if not waiting:
                del self._waiting[key]

    # -- time ------------------------------------------------------------------------------------

    def arm(self) -> None:
        """See to it that the next lock that ends is noticed."""
        self._alarm.set(self._node.shares.next_deadline(), self._node.clock.monotonic_ms())

    def run_due(self) -> None:
        """Free what members have held for too long."""
        try:
            self.apply(self._node.shares.tick(self.now()))
        except ApiError as error:
            logger.error("what fell due in share groups could not be written: %s", error)
        self.arm()
