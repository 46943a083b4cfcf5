"""What delayed exchanges hold: a log of messages with their times, and a timer for the next one.

A message that a delayed exchange holds back is written to a log of its own (DATA/delayed) as a durable queue's
is: a publisher's confirm waits for it. When its time comes it is read back, routed anew from the exchange,
and settled once what it was routed to is on disk. A crash in between delivers it once more.

The log shrinks from its start. One message that waits for months would hold everything behind it, so when little of
the log still waits, what waits at its start is written to its end again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.broker.queues.delays import MAX_DELAY_MS, Timetable, decode_delayed, due_of, encode_delayed
from headwater.broker.queues.routing import delay_of
from headwater.broker.queues.settled_bits import SettledBits
from headwater.core.amqp import AmqpError
from headwater.core.errors import HeadwaterError
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.record.amqp.message import Message, decode_value
from headwater.record.batch import batches
from headwater.record.values import decode_values, encode_values

if TYPE_CHECKING:
    from headwater.net.amqp.service import QueueService

__all__ = ["DelayedMessages"]

logger = logging.getLogger(__name__)

_DIRECTORY = "delayed"
_KEY = b"delayed"
"""Where positions know what was routed; the keys of lanes are longer."""
_BATCH_RECORDS, _BATCH_BYTES = 32, 64 * 1024
"""Small batches: a message that is due is read back with all others of its batch."""
_INDEX_INTERVAL = 4096
_CACHED = 16
_SLICE = 64
_READ = 1024 * 1024
_LONGEST_SLEEP = 60.0
_NOT_SYNCED_YET = 0.002
_TIDY_FROM = 32 * 1024 * 1024
_TIDY_RATIO = 4
_MOST_STALE = 10_000
_SEGMENT = 16 * 1024 * 1024
_AGAIN_MS = 1000
"""After how long a message is tried again that could not be written where it goes."""


class DelayedMessages:
    """All messages of a node that wait for their time."""

    def __init__(self, service: QueueService) -> None:
        self._service = service
        self._node = service.node
        self._storage = service.storage
        self._place = self._storage.positions.place(_KEY)
        self._place.settled = SettledBits()
        self._table = Timetable()
        self._pending: list[tuple[int, bytes]] = []
        self._cache: deque[dict[int, bytes]] = deque(maxlen=_CACHED)
        self._routed: dict[int, int] = {}
        """What is routed and not settled, and the size of each."""
        self._stale = 0
        """How many entries of the timetable are of messages that were written elsewhere since."""
        self._tidying = False
        self._live_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_ms = 0
        self._opened = self._loaded = False
        self._closed = False
        self.log: PartitionLog

    def __len__(self) -> int:
        """Return how many messages wait, about."""
        return len(self._table) - self._stale + len(self._pending)

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the log; what waits in it is read a slice at a time while the broker serves."""
        self.log = self._storage.open_apart(_DIRECTORY)
        self.log.config = replace(self.log.config, index_interval_bytes=_INDEX_INTERVAL)
        self._storage.clip(_KEY, self._place, self.log.end_offset)
        self._storage.clip(_KEY, self._place, self.log.end_offset)
        self._place.settled.add_range(0, self.log.start_offset)
        self._opened = True
        start, end = max(self._place.settled.head, self.log.start_offset), self.log.end_offset
        if start < end:
            self._load(start, end)
        else:
            self._loaded = True

    def _load(self, offset: int, end: int) -> None:
        if self._closed:
            return
        settled = self._place.settled
        try:
            start = offset
            for found, value in self._values(start, _READ):
                offset = found + 1
                if found < start or found >= end or found in settled:
                    continue
                due_ms, persistent = due_of(value)
                if persistent:
                    self._table.add(due_ms, found)
                    self._live_bytes += len(value)
                else:
                    self._storage.positions.settle(_KEY, self._place, found)
            if offset == start:
                offset = end
        except HeadwaterError as error:
            after = min((s.base_offset for s in self.log.segments if s.base_offset > offset), default=end)
            logger.error("delayed messages at offsets %d to %d cannot be read: %s", offset, after - 1, error)
            offset = after
        if offset < end:
            self._node.loop.call_soon(self._load, offset, end)
        else:
            self._loaded = True
            self._arm()

    def close(self) -> None:
        """Close the log."""
        if not self._opened:
            return
        for offset in self._routed:  # closing syncs where they went
            self._storage.positions.settle(_KEY, self._place, offset)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.log.close()

    # -- keeping ---------------------------------------------------------------------------------

    def keep(self, vhost: str, exchanges: Sequence[str], message: Message, delay_ms: int) -> None:
        """Hold a message back; the turn's end writes it."""
        due_ms = self._service.now_ms() + min(delay_ms, MAX_DELAY_MS)
        for exchange in exchanges:
            self._append(due_ms, encode_delayed(due_ms, vhost, exchange, message))

    def _append(self, due_ms: int, value: bytes) -> None:
        if not self._pending:
            self._storage.touched.append(self)
        self._pending.append((due_ms, value))

    def flush(self, now_ms: int) -> None:
        """Write what is to be kept; raises `PartitionError` or `ApiError` where the disk takes nothing."""
        pending, self._pending = self._pending, []
        batch: list[tuple[int, bytes]] = []
        size = 0
        for entry in pending:
            if batch and (len(batch) == _BATCH_RECORDS or size + len(entry[1]) > _BATCH_BYTES):
                self._write(batch, now_ms)
                batch, size = [], 0
            batch.append(entry)
            size += len(entry[1])
        self._write(batch, now_ms)
        self._arm()

    def _write(self, entries: list[tuple[int, bytes]], now_ms: int) -> None:
        batch, header = encode_values([value for _, value in entries], now_ms)
        offset = self.log.append(memoryview(batch), header, now_ms)
        if self.log.wants_sync:
            self._node.commit.add(self.log)
        for due_ms, value in entries:
            self._table.add(due_ms, offset)
            self._live_bytes += len(value)
            offset += 1
        if self.log.segments[-1].size > _SEGMENT:
            self.log.roll()

    # -- letting go ------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Wake up when the next message is due."""
        due_ms = self._table.next_due()
        if due_ms is None or not self._loaded or self._closed:
            return
        if self._timer is not None:
            if self._wakes_ms <= due_ms:
                return
            self._timer.cancel()
        seconds = min(max(due_ms - self._service.now_ms(), 0) / 1000, _LONGEST_SLEEP)
        self._wake_in(seconds, due_ms)

    def _wake_in(self, seconds: float, due_ms: int) -> None:
        self._wakes_ms = due_ms
        self._timer = self._node.loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now_ms, failures = self._service.now_ms(), self._service.write_failures
        entries = self._table.take(now_ms, _SLICE)
        released: list[int] = []
        size = 0
        for i, (due_ms, offset) in enumerate(entries):
            unsynced = offset >= self.log.high_watermark and self.log.error is None
            if unsynced or size > _READ:
                for early in entries[i:]:
                    self._table.add(*early)
                self._wake_in(_NOT_SYNCED_YET if unsynced else 0, due_ms)
                break
            if offset in self._routed or offset in self._place.settled:
                self._stale -= 1
                continue
            try:
                value = self._read(offset)
            except HeadwaterError as error:
                logger.error("a delayed message at offset %d cannot be read: %s", offset, error)
                continue
            if value is not None:
                self._route(value)
                released.append(offset)
                self._routed[offset] = len(value)
                size += len(value)
        self._service.end_turn()
        if failures != self._service.write_failures:
            for offset in released:
                self._table.add(now_ms + _AGAIN_MS, offset)
                del self._routed[offset]
        elif released:
            self._after_sync(lambda: self._settle(released))
        self._arm()

    def _after_sync(self, then: Callable[[], None]) -> None:
        if self._node.logs.synced:
            self._node.commit.wait(then)
        else:
            then()

    def _read(self, offset: int) -> bytes | None:
        for values in self._cache:
            if offset in values:
                return values[offset]
        values = dict(self._values(offset, 1))
        if len(values) > 1:  # a large message is a batch by itself
            self._cache.append(values)
        return values.get(offset)

    def _values(self, offset: int, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield about so many bytes of offsets and values, from the batch with an offset on."""
        data = self.log.read(offset, size)
        for position, header in batches(data):
            yield from enumerate(decode_values(data, position, header), header.base_offset)

    def _route(self, value: bytes) -> None:
        service = self._service
        _, vhost, exchange, stored = decode_delayed(value)
        message = decode_value(stored)
        properties = message.properties()
        headers = dict(properties.headers or {})
        headers["x-delay"] = -delay_of(headers)
        properties.headers = headers
        copies = headers.get("CC")
        try:
            route = service.definitions.route(
                vhost,
                exchange,
                message.routing_key,
                lambda: headers,
                copies=[key for key in copies if isinstance(key, str)] if isinstance(copies, list) else (),
                property_named=lambda name: getattr(properties, name, None),
            )
            service.forward(vhost, message.rewritten(message.address, properties), route)
        except AmqpError as error:
            logger.info("a delayed message of exchange %r goes nowhere: %s", exchange, error)

    def _settle(self, released: list[int]) -> None:
        if self._closed:
            return
        for offset in released:
            self._storage.positions.settle(_KEY, self._place, offset)
            self._live_bytes -= self._routed.pop(offset)
        if not self._table:
            self._cache.clear()
        self._shrink()
        self._service.end_turn()

    # -- shrinking -------------------------------------------------------------------------------

    def _shrink(self) -> None:
        log = self.log
        if len(log.segments) < 2 or log.error is not None:
            return
        head = min(self._place.settled.head, log.high_watermark)
        if head >= log.segments[1].base_offset:
            try:
                log.delete_before(head)
            except PartitionError as error:
                logger.warning("no segment of delayed messages was deleted: %s", error)
        elif not self._tidying and log.size_bytes() > max(_TIDY_FROM, _TIDY_RATIO * self._live_bytes):
            self._tidy(max(head, log.start_offset))

    def _tidy(self, offset: int) -> None:
        """Write what waits at the start of the log to its end again, a slice at a time."""
        moved: dict[int, int] = {}
        try:
            found = list(self._values(offset, _READ))
        except HeadwaterError as error:
            logger.warning("the log of delayed messages does not shrink: %s", error)
            return
        for old, value in found:
            if old not in self._place.settled and old not in self._routed:
                self._append(due_of(value)[0], value)
                moved[old] = len(value)
        if not moved:
            return
        failures = self._service.write_failures
        self._service.end_turn()
        if failures == self._service.write_failures:
            self._tidying = True
            self._stale += len(moved)
            self._routed.update(moved)
            self._after_sync(lambda: self._end_tidy(list(moved)))

    def _end_tidy(self, moved: list[int]) -> None:
        self._tidying = False
        if self.log.error is None:
            self._settle(moved)
        if self._stale > max(_MOST_STALE, len(self)):
            settled = self._place.settled
            self._table.keep(lambda offset: offset not in settled)
            self._stale = 0
