"""The log of one lane: what a queue keeps on disk, written a turn at a time and read back a chunk at a time.

Each record is a message as it was published. A message that was found on start comes back flagged if it may
have been delivered before; one that was not to survive is settled when it is met.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.core.errors import ApiError, HeadwaterError
from headwater.log.errors import DamagedRange, PartitionError
from headwater.log.partition import PartitionLog
from headwater.log.scan import Damage, Found, scan
from headwater.net.amqp.positions import Place
from headwater.record.amqp.message import Message, decode_value
from headwater.record.batch import Buffer, CorruptBatch, batches
from headwater.record.values import decode_values, encode_values

if TYPE_CHECKING:
    from headwater.net.amqp.storage import QueueStorage

__all__ = ["Expiry", "LaneLog", "TransientLog"]

logger = logging.getLogger(__name__)

_SEGMENT = 32 * 1024 * 1024
"""Where the next segment begins; one that holds a single large batch is longer."""
_IDLE_SEGMENT = 8 * 1024 * 1024
"""How much of a log is kept in which everything is settled."""
_BATCH = 1024 * 1024
_AHEAD = 1000
"""How far beyond what is delivered the mark goes that a crash finds: it is written that much less often."""
_ADDRESSES = 1024
"""How many addresses are kept, so that the messages of one do not have a copy each."""
_SHRINK_EACH = 10_000

Expiry = Callable[[Message, int], int | None]
"""Tells when a message expires that was published at a time."""


class LaneLog:
    """The log of one lane."""

    def __init__(
        self, storage: QueueStorage, key: bytes, log: PartitionLog, place: Place, expiry: Expiry
    ) -> None:
        self.log = log
        self.end = log.end_offset
        self.key = key
        self._storage = storage
        self._place = place
        self._expiry = expiry
        self._pending: list[Message] = []
        self._found = log.end_offset
        """What is before this was there on start: transient messages among it are gone."""
        self._flagged = place.delivered
        self._marked = place.delivered
        self.sent = place.delivered
        """The offset before which messages have been delivered."""
        place.settled.add_range(0, log.start_offset)
        self._addresses: dict[bytes, bytes] = {}

    def append(self, message: Message) -> int:
        """Write a message with the next flush, and return the offset that it gets."""
        if not self._pending:
            self._storage.touched.append(self)
        self._pending.append(message)
        offset = self.end
        self.end = offset + 1
        return offset

    def flush(self, now_ms: int) -> None:
        """Write what was appended; raises `PartitionError` or `ApiError` where the disk takes nothing."""
        pending, self._pending = self._pending, []
        values: list[bytes] = []
        size = 0
        try:
            for message in pending:
                value = message.address + message.frames
                if size + len(value) > _BATCH and values:
                    self._write(values, now_ms)
                    values, size = [], 0
                values.append(value)
                size += len(value)
            if values:
                self._write(values, now_ms)
        except (PartitionError, ApiError):
            self._take_back(pending)
            raise

    def _write(self, values: list[bytes], now_ms: int) -> None:
        log = self.log
        if log.segments and log.segments[-1].size > _SEGMENT:
            log.roll()
        batch, header = encode_values(values, now_ms)
        log.append(memoryview(batch), header, now_ms)
        if log.wants_sync:
            self._storage.node.commit.add(log)

    def _take_back(self, pending: list[Message]) -> None:
        """Know that the last messages were not written: others get their offsets."""
        end = self.log.end_offset
        for message in pending[end - self.end :]:
            message.offset = -1
        self.end = end
        self._storage.clip(self.key, self._place, end)

    def read(self, offset: int, size: int) -> tuple[list[Message], int]:
        """Return messages from an offset on that are not settled, and the offset after them."""
        log = self.log
        offset = max(offset, self._place.settled.head)
        if self._pending and log.end_offset <= offset and not log.synced:
            self._storage.write(self)
        if offset >= log.high_watermark:
            return [], offset
        try:
            return self._decoded(log.read(offset, size), offset)
        except (DamagedRange, CorruptBatch) as error:
            return self._read_past(offset, error)
        except PartitionError:  # the log has said why
            return [], offset

    def _decoded(self, data: Buffer, offset: int) -> tuple[list[Message], int]:
        settled, addresses = self._place.settled, self._addresses
        found, flagged, expiry = self._found, self._flagged, self._expiry
        attempts = self._place.attempts
        messages: list[Message] = []
        for position, header in batches(data):
            number = header.base_offset
            for value in decode_values(data, position, header):
                if number >= offset and number not in settled:
                    message = decode_value(value, addresses)
                    message.offset = number
                    message.expires_ms = expiry(message, header.base_timestamp)
                    if number >= found:
                        messages.append(message)
                    elif message.facts.persistent:
                        message.deliveries = attempts.get(number, int(number < flagged))
                        messages.append(message)
                    else:
                        self.settle(number)
                number += 1
            offset = number
        if len(addresses) > _ADDRESSES:
            addresses.clear()
        return messages, offset

    def _read_past(self, offset: int, error: HeadwaterError) -> tuple[list[Message], int]:
        """Return the batch that holds an offset which the index does not lead to, or give up what does not read."""
        log = self.log
        segment = next(segment for segment in reversed(log.segments) if segment.base_offset <= offset)
        relative, position = segment.index.floor(offset - segment.base_offset)
        first, after = segment.base_offset + relative, segment.next_offset
        for item in scan(log.disk, segment.descriptor, segment.size, position, first, until=after):
            if isinstance(item, Found) and item.header.last_offset >= offset:
                end = item.position + item.header.size
                return self._decoded(segment.read(item.position, 1, end, item.header.base_offset), offset)
            if isinstance(item, Damage) and item.next_offset > offset:
                after = item.next_offset
                break
        after = min(after, log.high_watermark)
        logger.error(
            "%d messages of %s are lost, offsets %d to %d: %s", after - offset, log.topic, offset, after - 1, error,
            extra={"topic": log.topic, "partition": log.partition, "reason": "damaged", "offset": offset},
        )  # fmt: skip
        self.settle_range(offset, after)
        return [], after

    def settle(self, offset: int) -> None:
        """Know that a message is done with."""
        self._storage.positions.settle(self.key, self._place, offset)

    def settle_range(self, start: int, stop: int) -> None:
        """Know that all messages from an offset to before another are done with."""
        self._storage.positions.settle_range(self.key, self._place, start, stop)

    def waiting(self, offset: int) -> int:
        """Return how many messages from an offset on are not settled."""
        return self._place.settled.unsettled(offset, self.end)

    def delivered(self, offset: int) -> None:
        """Know that a message goes out now: should we crash, it comes back as redelivered."""
        if offset >= self.sent:
            self.sent = offset + 1
        if offset >= self._marked:
            marked = min(self.end, offset + _AHEAD)
            try:
                self._storage.positions.delivered(self.key, self._place, marked)
            except PartitionError:  # the next one tries again
                return
            self._marked = marked

    def tried(self, offset: int, count: int) -> None:
        """Know that a message goes out again: should we crash, it was tried that often."""
        self._storage.positions.tried(self.key, self._place, offset, count)

    def shrink(self) -> None:
        """Delete the segments in which everything is settled."""
        log, head = self.log, min(self._place.settled.head, self.log.high_watermark)
        if log.error is not None or not log.segments:
            return
        if head == log.end_offset and log.segments[-1].size > _IDLE_SEGMENT:
            log.roll()
        if len(log.segments) > 1 and head >= log.segments[1].base_offset:
            log.delete_before(head)

    @property
    def failed(self) -> str | None:
        """Why the log takes nothing any more, or None."""
        return self.log.error


class TransientLog(LaneLog):
    """What a transient queue has no memory for; nothing of it is known after a restart."""

    def settle(self, offset: int) -> None:
        """Know that a message is done with."""
        self._place.settled.add(offset)
        if not offset % _SHRINK_EACH:
            self._free()

    def settle_range(self, start: int, stop: int) -> None:
        """Know that all messages from an offset to before another are done with."""
        self._place.settled.add_range(start, stop)
        self._free()

    def delivered(self, offset: int) -> None:
        """Nothing comes back."""

    def tried(self, offset: int, count: int) -> None:
        """Nothing comes back."""

    def _free(self) -> None:
        try:
            self.shrink()
        except PartitionError as error:
            logger.warning("no segment of %s was deleted: %s", self.log.topic, error)
