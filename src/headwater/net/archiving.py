"""Moving old segments to the archive: what is due is copied by another thread, and named on the event loop.

A segment is due when it grows no more and `local.retention.ms` or `local.retention.bytes` says so. One segment moves at
a time, and where the archive fails, all that is due stays where it is until the next look.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from headwater.core.errors import HeadwaterError
from headwater.log import archive
from headwater.log.partition import PartitionLog
from headwater.log.retention import SegmentAge, expired, oversized
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

_NO_LIMIT = 2**62
_SLICE_SECONDS = 0.1
_T = TypeVar("_T")


class Archiving:
    """What one broker does about its archive."""

    def __init__(self, node: Node, age: Callable[[Segment], SegmentAge]) -> None:
        self._node = node
        self._age = age
        self._swept: set[PartitionLog] = set()
        self._is_used = False
        self._stopping = False
        self.segments_moved = 0
        self.failures = 0
        self.failure: str | None = None
        """Why the last segment that was due did not move, or None if it did."""

    def stop(self) -> None:
        """Have a copy that is under way end soon; the next start makes it anew."""
        self._stopping = True

    async def look_at(self, log: PartitionLog, now_ms: int) -> None:
        """Move what is due of a log."""
        if log.archive is None:
            return
        try:
            self.reconfigured(log)
            if not log.config.archived:
                return
            due = self._due(log, now_ms) if log.config.archive_grows else []
            if due or log not in self._swept:
                await self._check()
                await self._sweep(log)
            for segment in due:
                if not await self._move(log, segment):
                    return
        except (OSError, HeadwaterError) as error:
            self._failed(log, error)
        else:
            self.failure = None

    @staticmethod
    def reconfigured(log: PartitionLog) -> None:
        """Where a topic is not archived any more, delete what it has in the archive."""
        if not log.config.archived and log.archived and log.error is None:
            start = log.delete_before(log.local_start_offset)
            logger.info("%s-%d is not archived any more: it begins at %d", log.topic, log.partition, start)

    async def _check(self) -> None:
        """Raise `OSError` where the archive is not there: copies would go to the disk that it is to relieve."""
        logs = self._node.logs
        assert logs.archive is not None, "a log has a part of it"
        if not self._is_used:
            self._is_used = any(log.archived for log in logs)
        needed = logs.archive if self._is_used else logs.archive.parent
        if not await self._apart(needed.is_dir):
            raise OSError(errno.ENOENT, f"{needed} is not there: mount the archive, or make that directory")

    async def _sweep(self, log: PartitionLog) -> None:
        """Once in a broker's life, remove what an earlier one has left in the archive."""
        if log in self._swept or log.archive is None:
            return
        directory, kept = log.archive, {segment.path.name for segment in log.archived}
        await self._apart(lambda: archive.sweep(log.disk, directory, kept))
        self._swept.add(log)

    def _due(self, log: PartitionLog, now_ms: int) -> list[Segment]:
        config = log.config
        limits = replace(
            config,
            deleted=True,
            retention_ms=config.local_retention_ms,
            retention_bytes=config.local_retention_bytes,
        )
        local = [segment for segment in log.segments if segment.archive is None]
        ages = [self._age(segment) for segment in local]
        count = max(oversized(ages, limits), expired(ages, limits, now_ms))
        if count == len(local) and local[-1].size:
            log.roll()  # the growing one is due as well, and can move at the next look
            self._node.commit.add(log)
        due: list[Segment] = []
        for segment in local[:count]:
            if not log.may_move(segment):
                break
            due.append(segment)
        return due

    async def _move(self, log: PartitionLog, segment: Segment) -> bool:
        """Move a segment; false where the log has changed meanwhile, and what is due with it."""
        assert log.archive is not None, "it has been looked at"
        target = log.archive / segment.path.name
        await self._apart(lambda: archive.copy(log.disk, segment.path, target, self._pace))
        if log.closed or log.error is not None or segment not in log.segments:
            await self._apart(lambda: log.disk.remove(target))
            return False
        log.moved(segment)
        self._is_used = True
        self.segments_moved += 1
        logger.info(
            "%s-%d: offsets %d to %d have moved to the archive",
            log.topic, log.partition, segment.base_offset, segment.next_offset - 1,
            extra={"event": "archived", "topic": log.topic, "partition": log.partition},
        )  # fmt: skip
        return True

    def _pace(self, size: int) -> None:
        if self._stopping:
            raise OSError(errno.ECANCELED, "the broker stops")
        rate = self._node.number("remote.log.manager.copy.max.bytes.per.second")
        left = size / rate if rate < _NO_LIMIT else 0.0
        while left > 0 and not self._stopping:
            time.sleep(min(left, _SLICE_SECONDS))
            left -= _SLICE_SECONDS

    def _failed(self, log: PartitionLog, error: Exception) -> None:
        if self._stopping or log.closed:
            return
        self.failures += 1
        reason = f"{log.topic}-{log.partition} is archived later: {error}"
        if reason != self.failure:
            self.failure = reason
            logger.warning("%s", reason, extra={"topic": log.topic, "partition": log.partition})

    async def _apart(self, work: Callable[[], _T]) -> _T:
        return await self._node.loop.run_in_executor(None, work)
