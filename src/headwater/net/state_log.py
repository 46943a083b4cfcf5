"""The log behind a state machine: its records on disk, replayed at start and as they are written.

The log stays in proportion to the state: the newest value of every key is known here, and once the log has
grown to several times that, they are all appended again and everything before them is deleted.
A crash between the two leaves both, and replaying both gives the same state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from headwater.broker.state import StateRecord
from headwater.core.clock import Clock
from headwater.core.errors import ApiError, ErrorCode
from headwater.log.commit import GroupCommit
from headwater.log.errors import DamagedRange, DamagedState, PartitionError
from headwater.log.partition import PartitionLog
from headwater.record.batch import batches, read_header
from headwater.record.records import Record, decode_batch, encode_batch

_READ = 1024 * 1024
_BATCH_RECORDS = 1000
_COMPACT_FROM = 16 * 1024 * 1024
_COMPACT_RATIO = 4

Replay = Callable[[StateRecord], object]


async def next_sync(group_commit: GroupCommit) -> None:
    """Return when all that was appended to any log before this moment is synced, or has failed to."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    group_commit.wait(finish)
    await done


def stored(log: PartitionLog) -> Iterator[StateRecord]:
    """Yield everything that is on disk of a log that only its owner writes to; raises `DamagedState`."""
    offset = log.start_offset
    while offset < log.high_watermark:
        try:
            data = log.read(offset, _READ)
        except DamagedRange as error:
            raise DamagedState(
                f"{log.directory} is damaged at offset {offset}, and what it has to tell is needed to start: "
                f"restore the data directory from a backup ({error})"
            ) from error
        for position, header in batches(data):
            for record in decode_batch(data, position):
                if record.key is not None and record.offset >= log.start_offset:
                    yield StateRecord(record.key, record.value)
            offset = header.last_offset + 1


class StateLog:
    """One state machine's records."""

    def __init__(self, log: PartitionLog, replay: Replay, clock: Clock) -> None:
        self.log = log
        self._replay = replay
        self._clock = clock
        self._live: dict[bytes, bytes] = {}
        self._live_bytes = 0

    def load(self) -> None:
        """Replay everything that is on disk."""
        for record in stored(self.log):
            self._apply(record)

    def append(self, records: Sequence[StateRecord]) -> None:
        """Write records and replay them; they are durable with the next sync."""
        now_ms = self._clock.wall_ms()
        try:
            for start in range(0, len(records), _BATCH_RECORDS):
                self._write(records[start : start + _BATCH_RECORDS], now_ms)
        except PartitionError as error:
            raise ApiError(ErrorCode.kafka_storage_error, str(error)) from error
        for record in records:
            self._apply(record)
        size = self.log.size_bytes()
        if size > _COMPACT_FROM and size > _COMPACT_RATIO * self._live_bytes:
            self.compact()

    async def commit(self, records: Sequence[StateRecord], group_commit: GroupCommit) -> None:
        """Write and replay records, and return when they are on disk."""
        if records:
            self.append(records)
        await self.durable(group_commit)

    async def durable(self, group_commit: GroupCommit) -> None:
        """Return when all that was appended is on disk, or raise when it cannot be."""
        group_commit.add(self.log)
        if self.log.synced:
            await next_sync(group_commit)
        if self.log.error is not None:
            raise ApiError(ErrorCode.kafka_storage_error, self.log.error)

    def compact(self) -> None:
        """Append the newest value of every key again, and delete what came before."""
        self.log.roll()
        start = self.log.end_offset
        records = [StateRecord(key, value) for key, value in self._live.items()]
        now_ms = self._clock.wall_ms()
        for i in range(0, len(records), _BATCH_RECORDS):
            self._write(records[i : i + _BATCH_RECORDS], now_ms)
        self.log.sync()
        if self.log.error is None:
            self.log.delete_before(start)

    def _write(self, records: Sequence[StateRecord], now_ms: int) -> None:
        rows = [Record(i, now_ms, record.key, record.value) for i, record in enumerate(records)]
        batch = encode_batch(rows)
        self.log.append(memoryview(batch), read_header(batch), now_ms)

    def _apply(self, record: StateRecord) -> None:
        previous = self._live.pop(record.key, None)
        if previous is not None:
            self._live_bytes -= len(record.key) + len(previous)
        if record.value is not None:
            self._live[record.key] = record.value
            self._live_bytes += len(record.key) + len(record.value)
        self._replay(record)
