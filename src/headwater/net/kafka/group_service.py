"""The event loop's side of the group coordinator: parked requests, durability, timers.

The coordinator is called, its records are appended and replayed, all without giving way to another
request; then the replies wait for the disk. A request that read what another has just written waits
for the same sync, so nobody is told what a crash could take back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headwater.broker.groups import JoinReply, Moment, Outcome, SyncReply
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.alarm import Alarm

if TYPE_CHECKING:
    from headwater.broker.groups import GroupCoordinator
    from headwater.broker.state import StateRecord
    from headwater.core.clock import Clock

logger = logging.getLogger(__name__)

R = TypeVar("R")
Parkable = TypeVar("Parkable", JoinReply, SyncReply)


class GroupNode(Protocol):
    """What the service needs of the node."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""
        ...

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator."""
        ...

    def commit_groups(self, records: Sequence[StateRecord]) -> Awaitable[None]:
        """Append records and replay them at once; the awaitable ends when they are durable."""
        ...


class GroupService:
    """Runs the coordinator of a node."""

    def __init__(self, node: GroupNode) -> None:
        self._node = node
        self._tickets = count(1)
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._last_commit: asyncio.Future[None] | None = None
        self._alarm = Alarm(self._fire)
        self._ticking: asyncio.Task[None] | None = None

    def now(self) -> Moment:
        """Return the time as the coordinator takes it."""
        return Moment(self._node.clock.monotonic_ms(), self._node.clock.wall_ms())

    def start(self) -> None:
        """Begin to serve, once the log has been replayed."""
        self._node.groups.loaded(self.now())
        self._arm()

    def stop(self) -> None:
        """Stop the timers, and send everybody away who waits."""
        self._alarm.cancel()
        if self._ticking is not None:
            self._ticking.cancel()
        for future in self._parked.values():
            if not future.done():
                future.set_exception(ApiError(ErrorCode.coordinator_not_available))
        self._parked.clear()

    async def park(self, call: Callable[[int], Outcome[Parkable]]) -> Parkable:
        """Call the coordinator with a new ticket, and return the reply now or when it comes."""
        ticket = next(self._tickets)
        future: asyncio.Future[Parkable] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        try:
            reply = await self.settle(call(ticket))
            return await future if reply is None else reply
        finally:
            self._parked.pop(ticket, None)

    async def answer(self, outcome: Outcome[R]) -> R:
        """Settle the outcome of a request that is never parked, and return its reply."""
        reply = await self.settle(outcome)
        if reply is None:
            raise RuntimeError("a request that cannot be parked was left without a reply")
        return reply

    async def settle(self, outcome: Outcome[R]) -> R | None:
        """Make an outcome's records durable, let its replies go, and return the request's own."""
        self._arm()
        try:
            await self._commit(outcome.records)
        except ApiError as error:
            code = _unavailable(error.code)
            for ticket, parked in outcome.replies:
                self._release(ticket, replace(parked, error=code))
            raise ApiError(code, error.message) from error
        for ticket, parked in outcome.replies:
            self._release(ticket, parked)
        return outcome.reply

    async def settled(self) -> None:
        """Return when all that is in the coordinator's state is durable."""
        if self._last_commit is not None and not self._last_commit.done():
            try:
                await asyncio.shield(self._last_commit)
            except ApiError as error:
                raise ApiError(_unavailable(error.code), error.message) from error

    async def _commit(self, records: list[StateRecord]) -> None:
        if not records:
            await self.settled()
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_commit = done
        try:
            await self._node.commit_groups(records)
        except ApiError as error:
            done.set_exception(error)
            done.exception()  # it may be that nobody waits: not worth asyncio's warning
            raise
        finally:
            if not done.done():
                done.set_result(None)

    def _release(self, ticket: int, reply: JoinReply | SyncReply) -> None:
        future = self._parked.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(reply)

    def _arm(self) -> None:
        self._alarm.set(self._node.groups.next_deadline(), self._node.clock.monotonic_ms())

    def _fire(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self.run_due())

    async def run_due(self) -> None:
        """Do everything that has fallen due."""
        groups = self._node.groups
        while (deadline_ms := groups.next_deadline()) is not None:
            at = self.now()
            if deadline_ms > at.mono_ms:
                break
            try:
                await self.settle(groups.tick(at))
            except ApiError as error:
                logger.error("what fell due in consumer groups could not be written: %s", error)
        self._arm()


def _unavailable(code: ErrorCode) -> ErrorCode:
    """Return what a client of the coordinator is told when the log behind it fails."""
    if code in (ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower):
        return ErrorCode.not_coordinator
    return ErrorCode.coordinator_not_available
