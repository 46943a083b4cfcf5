"""What queues have settled, and how far they were delivered, in one log for all of them.

An acknowledgement is not answered in AMQP, so it need not wait for the disk: what was settled is gathered,
written within a few milliseconds, and synced some tens of milliseconds later. A crash brings back what was
acknowledged since.

    key     the lane: a queue's id (16 bytes) and a priority (1 byte)
    value   "S" ranges: they are settled, too
            "A" pairs of an offset and a number: so often was it delivered, where that is more than once
            "D" offset: all before it may have been delivered
            "E" offset: all before it, and nothing else, may have been delivered
            "C" offset: nothing is settled or was delivered from there on, whatever was said before
            none: the lane is gone

The log is written anew, "S", "A" and "E" for each lane, when it has grown to several times that. A crash in between
leaves what is old and some of what is new, and reading both gives the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from headwater.broker.queues.settled import Settled, decode_ranges, encode_ranges, ranges_of
from headwater.broker.state import StateRecord
from headwater.core.clock import Clock
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.net.state_log import stored
from headwater.record.batch import read_header
from headwater.record.records import Record, encode_batch

__all__ = ["Place", "Positions"]

_OFFSET = struct.Struct(">Q")
_BATCH_RECORDS = 1000
_BATCH_BYTES = 256 * 1024
_RANGES = 4096
"""How many ranges a record holds, so that it fits a batch."""
_COMPACT_FROM = 8 * 1024 * 1024
_COMPACT_RATIO = 4


class Place:
    """What is known of one lane."""

    __slots__ = ("attempts", "delivered", "fresh", "ranges", "settled", "tried")

    def __init__(self) -> None:
        self.settled = Settled()
        self.delivered = 0
        """The offset before which messages may have been delivered."""
        self.attempts: dict[int, int] = {}
        """How often messages were delivered that were given back, and are not settled; of queues that count that."""
        self.tried: set[int] = set()
        """The offsets of those of which it changed since the last write."""
        self.fresh: list[int] = []
        """What was settled since the last write,"""
        self.ranges: list[tuple[int, int]] = []
        """and ranges that could not be written."""


class Positions:
    """The settled messages of all lanes that are on disk."""

    def __init__(self, log: PartitionLog, clock: Clock, wrote: Callable[[PartitionLog], object]) -> None:
        self.log = log
        self.places: dict[bytes, Place] = {}
        self.moved: set[bytes] = set()
        """The lanes of which something was settled; whoever frees their space takes them out."""
        self._clock = clock
        self._wrote = wrote
        self._changed: set[bytes] = set()
        self._unsynced = False
        self._compacted = 0

    def load(self) -> None:
        """Read everything that is on disk."""
        for record in stored(self.log):
            self._replay(record.key, record.value)
        for place in self.places.values():
            place.attempts = {at: count for at, count in place.attempts.items() if at not in place.settled}
        self._compacted = self.log.size_bytes()

    def _replay(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.places.pop(key, None)
            return
        place = self.place(key)
        kind, rest = value[:1], value[1:]
        if kind == b"S":
            for start, stop in decode_ranges(rest):
                place.settled.add_range(start, stop)
            return
        if kind == b"A":
            place.attempts.update(decode_ranges(rest))
            return
        offset: int = _OFFSET.unpack(rest)[0]
        if kind == b"C":
            place.settled.clip(offset)
            place.attempts = {at: count for at, count in place.attempts.items() if at < offset}
            place.delivered = min(place.delivered, offset)
        else:
            place.delivered = offset if kind == b"E" else max(place.delivered, offset)

    def place(self, key: bytes) -> Place:
        """Return what is known of a lane."""
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = Place()
        return found

    def settle(self, key: bytes, place: Place, offset: int) -> None:
        """Take note that a message is done with; the next write has it."""
        place.settled.add(offset)
        place.fresh.append(offset)
        if place.attempts:
            place.attempts.pop(offset, None)
        self._changed.add(key)

    def settle_range(self, key: bytes, place: Place, start: int, stop: int) -> None:
        """Take note that a range of messages is done with."""
        if start >= stop:
            return
        place.settled.add_range(start, stop)
        place.attempts = {at: count for at, count in place.attempts.items() if not start <= at < stop}
        self.moved.add(key)
        self._unsynced = True
        try:
            self._write(_settled(key, [(start, stop)]))
        except PartitionError:
            place.ranges.append((start, stop))
            self._changed.add(key)

    def clip(self, key: bytes, place: Place, end: int) -> bool:
        """Unsettle the offsets from `end` on, which the lane gives to other messages; false if there were none.

        A log that a crash has shortened, or a write that failed, leaves such ones. Nothing may be confirmed at
        these offsets before this is on stable storage.
        """
        clipped = place.settled.clip(end)
        if clipped or place.delivered > end:
            place.delivered = min(place.delivered, end)
            place.attempts = {at: count for at, count in place.attempts.items() if at < end}
            place.fresh = [offset for offset in place.fresh if offset < end]
            place.ranges = [(start, min(stop, end)) for start, stop in place.ranges if start < end]
            self._write([StateRecord(key, b"C" + _OFFSET.pack(end))])
        return clipped

    def delivered(self, key: bytes, place: Place, before: int) -> None:
        """Take note, before they go out, that all messages before an offset may be delivered."""
        place.delivered = before
        self._unsynced = True
        self._write([StateRecord(key, b"D" + _OFFSET.pack(before))])

    def tried(self, key: bytes, place: Place, offset: int, count: int) -> None:
        """Take note of how often a message was delivered; the next write has it."""
        place.attempts[offset] = count
        place.tried.add(offset)
        self._changed.add(key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Drop lanes that are gone."""
        known = [key for key in keys if self.places.pop(key, None) is not None]
        self._changed.difference_update(known)
        if known:
            self._write([StateRecord(key, None) for key in known])

    @property
    def dirty(self) -> bool:
        """Whether something waits to be written, or to be synced soon."""
        return bool(self._changed) or self._unsynced

    def flush(self) -> None:
        """Write what was settled since the last time; what the disk does not take is tried again."""
        self._unsynced = False
        places = self.places
        changed = [(key, places[key]) for key in self._changed if key in places]
        if self.log.error is None:
            self._write(record for key, place in changed for record in _news(key, place))
        self.moved.update(self._changed)
        self._changed.clear()
        for _, place in changed:
            place.fresh, place.ranges = [], []
            place.tried.clear()
        size = self.log.size_bytes()
        if size > _COMPACT_FROM and size > _COMPACT_RATIO * self._compacted:
            self.compact()

    def compact(self) -> None:
        """Write all that is known anew, and delete what came before."""
        self.log.roll()
        start = self.log.end_offset
        self._write(record for key, place in self.places.items() for record in _whole(key, place))
        self.log.sync()
        if self.log.error is None:
            self.log.delete_before(start)
        self._compacted = self.log.size_bytes()

    def _write(self, records: Iterable[StateRecord]) -> None:
        now_ms = self._clock.wall_ms()
        rows: list[Record] = []
        size = 0
        for key, value in records:
            rows.append(Record(len(rows), now_ms, key, value))
            size += len(key) + len(value or b"")
            if len(rows) == _BATCH_RECORDS or size > _BATCH_BYTES:
                self._append(rows, now_ms)
                rows, size = [], 0
        if rows:
            self._append(rows, now_ms)
        self._wrote(self.log)

    def _append(self, rows: list[Record], now_ms: int) -> None:
        batch = encode_batch(rows)
        self.log.append(memoryview(batch), read_header(batch), now_ms)


def _settled(key: bytes, ranges: list[tuple[int, int]]) -> Iterator[StateRecord]:
    for first in range(0, len(ranges), _RANGES):
        yield StateRecord(key, b"S" + encode_ranges(ranges[first : first + _RANGES]))


def _attempted(key: bytes, attempts: list[tuple[int, int]]) -> Iterator[StateRecord]:
    for first in range(0, len(attempts), _RANGES):
        yield StateRecord(key, b"A" + encode_ranges(attempts[first : first + _RANGES]))


def _news(key: bytes, place: Place) -> Iterator[StateRecord]:
    yield from _settled(key, [*place.ranges, *ranges_of(place.fresh)])
    yield from _attempted(key, [(at, place.attempts[at]) for at in place.tried if at in place.attempts])


def _whole(key: bytes, place: Place) -> Iterator[StateRecord]:
    yield from _settled(key, [(0, place.settled.head), *place.settled.ranges()])
    yield from _attempted(key, list(place.attempts.items()))
    yield StateRecord(key, b"E" + _OFFSET.pack(place.delivered))
