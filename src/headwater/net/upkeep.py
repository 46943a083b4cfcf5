"""What a broker does with its logs by itself: retention, moving to the archive, and compaction.

Each looks at every log now and then. Retention deletes on the event loop, a segment's worth at a time;
compaction is a job for the cleaner process, and the event loop only puts its files in place.
The internal topics are left alone: their state machines keep them short.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headwater.core.errors import HeadwaterError
from headwater.log import cleanable
from headwater.log.cleanable import Cleanable, Cleaned
from headwater.log.cleaner import Done, Job, Unit
from headwater.log.compaction import ENTRY_BYTES
from headwater.log.partition import PartitionLog
from headwater.log.retention import SegmentAge, SteadyTime, expired, oversized
from headwater.log.segment import Segment
from headwater.log.swap import sweep
from headwater.net.archiving import Archiving
from headwater.net.cleaner_process import CleanerHindered, CleanerProcess
from headwater.record.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

TIME_FILE = "time"
_TRIM_SECONDS = 1.0
_AT_ONCE = 100


class Upkeep:
    """Retention, archiving and compaction of one broker's logs."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.time = SteadyTime(node.clock, _load_time(node.logs.path / TIME_FILE))
        self.archiving = Archiving(node, _age)
        self._cleaner = CleanerProcess()
        self._cleaned: dict[PartitionLog, Cleaned] = {}
        self._failed: set[PartitionLog] = set()
        self._rolled: set[PartitionLog] = set()
        self._trim: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._exchanging = asyncio.Lock()

    @property
    def cleaner_pid(self) -> int | None:
        """The id of the cleaner process, while there is one."""
        return self._cleaner.pid

    def start(self) -> None:
        """Begin to look after the logs."""
        node = self._node
        node.logs.on_roll = self._note_roll
        node.logs.on_drop = lambda paths: node.loop.run_in_executor(None, node.logs.remove, paths)
        loops = (
            (self.retain_all, "log.retention.check.interval.ms"),
            (self.archive_all, "remote.log.manager.task.interval.ms"),
            (self.compact_all, "log.cleaner.backoff.ms"),
        )
        self._tasks = [self._node.loop.create_task(self._repeat(work, name)) for work, name in loops]

    async def stop(self) -> None:
        """End what is under way; a job of the cleaner is left for the next start."""
        self._node.logs.on_roll = self._node.logs.on_drop = None
        self.archiving.stop()
        _save_time(self._node, self._now_ms())
        if self._trim is not None:
            self._trim.cancel()
        async with self._exchanging:  # an exchange that has begun is quickly done
            for task in self._tasks:
                task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self._cleaner.close()

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval: str) -> None:
        while True:
            await self._pause(interval)
            try:
                await work()
            except Exception:  # one bad round must not be the last
                logger.exception("the upkeep of the logs failed; it goes on")

    async def _pause(self, interval: str) -> None:
        # In slices, so that a changed setting is obeyed soon.
        began = self._node.clock.monotonic_ms()
        await asyncio.sleep(0.001)
        while (left := began + self._node.number(interval) - self._node.clock.monotonic_ms()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, 1000) / 1000)

    def _logs(self) -> Iterator[PartitionLog]:
        topics = self._node.topics.by_name
        for log in list(self._node.logs):
            topic = topics.get(log.topic)
            usable = log.segments and log.error is None and not log.closed
            if usable and topic is not None and not topic.internal:
                yield log

    # -- retention ---------------------------------------------------------------------------------

    async def retain_all(self) -> None:
        """Delete what has expired of every log."""
        now_ms = self._now_ms()
        _save_time(self._node, now_ms)
        for i, log in enumerate(self._logs()):
            # A deletion waits for the disk, so others get their turn after each.
            if self.retain(log, now_ms) or i % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def _now_ms(self) -> int:
        doubted, now_ms = self.time.doubted, self.time.now_ms()
        if self.time.doubted and not doubted:
            logger.warning(
                "the clock is ahead of the time that has passed: nothing is deleted by its word for an hour"
            )
        return now_ms

    def retain(self, log: PartitionLog, now_ms: int | None) -> bool:
        """Delete what has expired of a log; without a time, only what is too much. True where it deleted."""
        config = log.config
        if not config.deleted or (config.retention_ms < 0 and config.retention_bytes < 0):
            return False
        ages = [_age(segment) for segment in log.segments]
        count = oversized(ages, config)
        if now_ms is not None:
            count = max(count, expired(ages, config, now_ms))
        try:
            if count == len(ages):
                log.roll()
                self._node.commit.add(log)
            while count and ages[count - 1].next_offset > log.high_watermark:
                count -= 1
            if count and ages[count - 1].next_offset > log.start_offset:
                start = log.delete_before(ages[count - 1].next_offset)
                logger.info(
                    "%s-%d: retention deleted %d segments", log.topic, log.partition, count,
                    extra={"event": "retention", "topic": log.topic, "partition": log.partition, "start": start},
                )  # fmt: skip
                return True
        except HeadwaterError as error:
            logger.warning("%s-%d: retention failed: %s", log.topic, log.partition, error)
        return False

    def _note_roll(self, log: PartitionLog) -> None:
        if log.config.deleted and log.config.retention_bytes >= 0:
            self._rolled.add(log)
            if self._trim is None:
                self._trim = self._node.loop.call_later(_TRIM_SECONDS, self._trim_rolled)

    def _trim_rolled(self) -> None:
        self._trim = None
        rolled, self._rolled = self._rolled, set()
        for log in rolled:
            if log.segments and log.error is None and not log.closed:
                self.retain(log, None)

    # -- the archive -------------------------------------------------------------------------------

    async def archive_all(self) -> None:
        """Move what is due of every log to the archive."""
        now_ms = self._now_ms()
        for i, log in enumerate(self._logs()):
            await self.archiving.look_at(log, now_ms)
            if i % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    # -- compaction --------------------------------------------------------------------------------

    async def compact_all(self) -> None:
        """Compact what wants it, the dirtiest log first."""
        if not self._node.settings["log.cleaner.enable"]:
            return
        while wanted := await self._wanted(self._now_ms()):
            for log in wanted:
                if not await self._try_clean(log):
                    await self._cleaner.close()
                    return
        await self._cleaner.close()

    async def _try_clean(self, log: PartitionLog) -> bool:
        """Clean a log that wants it; false where the cleaner cannot work now."""
        if log.closed or log.error is not None or not log.segments:
            return True
        found = cleanable.look_at(log, self._cleaned_of(log), self._now_ms())
        if not found.wanted(log.config.min_cleanable_ratio):
            return True
        try:
            await self._clean(log, found)
        except (CleanerHindered, OSError) as error:
            logger.warning("%s-%d is compacted later: %s", log.topic, log.partition, error)
            return False
        except HeadwaterError as error:
            self._failed.add(log)
            logger.error(
                "%s-%d could not be compacted and is left as it is until the next start: %s",
                log.topic, log.partition, error,
            )  # fmt: skip
        return True

    def _cleaned_of(self, log: PartitionLog) -> Cleaned:
        return self._cleaned.get(log) or cleanable.load(log.directory)

    async def _wanted(self, now_ms: int) -> list[PartitionLog]:
        """Return the logs that are worth cleaning, the most urgent first."""
        urgency: dict[PartitionLog, tuple[bool, float]] = {}
        known: dict[PartitionLog, Cleaned] = {}
        for i, log in enumerate(self._logs()):
            if i % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if not log.config.compacted or log in self._failed:
                continue
            cleaned = known[log] = self._cleaned_of(log)
            found = cleanable.look_at(log, cleaned, now_ms)
            if found.wanted(log.config.min_cleanable_ratio):
                urgency[log] = found.overdue, found.ratio
            elif cleanable.wants_roll(log, now_ms):
                log.roll()
                self._node.commit.add(log)
        self._cleaned = known
        return sorted(urgency, key=lambda log: urgency[log], reverse=True)

    async def _clean(self, log: PartitionLog, found: Cleanable) -> None:
        node = self._node
        began = node.clock.monotonic_ms()
        until = found.segments[-1].next_offset
        job = self._job(log, found)
        log.rest_on(until, ())
        async for step in self._cleaner.run(job):
            if log.closed or log.error is not None:
                await self._cleaner.close()
                return
            if isinstance(step, Done):
                self._cleaned[log] = cleaned = Cleaned(step.cleaned_to, step.horizon_ms)
                cleaned.save(log.disk, log.directory)
                logger.info(
                    "%s-%d is compacted up to offset %d: %d of %d records stay, after %d ms",
                    log.topic, log.partition, step.cleaned_to, step.records_kept, step.records_read,
                    node.clock.monotonic_ms() - began,
                    extra={"event": "compacted", "topic": log.topic, "partition": log.partition},
                )  # fmt: skip
            else:
                async with self._exchanging:
                    await self._put(log, step, until)

    async def _put(self, log: PartitionLog, unit: Unit, until: int) -> None:
        swap, disk, directory = unit.swap, log.disk, log.directory
        if unit.dropped_markers:
            log.rest_on(until, unit.dropped_markers)
        try:
            await self._apart(lambda: swap.save(disk, directory))
        except OSError:
            sweep(disk, directory, swap.token)
            raise
        if not log.closed:
            log.exchange(swap)
            await self._apart(lambda: swap.settle(disk, directory))

    async def _apart(self, work: Callable[[], None]) -> None:
        await self._node.loop.run_in_executor(None, work)

    def _job(self, log: PartitionLog, found: Cleanable) -> Job:
        rate = cast(float, self._node.settings["log.cleaner.io.max.bytes.per.second"])
        return cleanable.job_for(
            log,
            found,
            now_ms=self._now_ms(),
            map_entries=max(1, self._node.number("log.cleaner.dedupe.buffer.size") // ENTRY_BYTES),
            bytes_per_second=rate if rate < 2**62 else None,
        )


def _age(segment: Segment) -> SegmentAge:
    newest = segment.max_timestamp
    if newest == NO_TIMESTAMP and segment.size:
        with suppress(OSError):
            path = segment.path if segment.archive is None else segment.index_path
            newest = int(path.stat().st_mtime * 1000)
    return SegmentAge(segment.next_offset, segment.size, newest)


def _load_time(path: Path) -> int | None:
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return None


def _save_time(node: Node, now_ms: int) -> None:
    try:
        node.logs.disk.write_file(node.logs.path / TIME_FILE, b"%d\n" % now_ms, durable=False)
    except OSError as error:
        logger.warning("the time was not noted: %s", error)
