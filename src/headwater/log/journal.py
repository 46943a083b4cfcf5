"""The journal: one small file that a round of syncs writes to, however many partitions it covers.

A sync of a file that grows waits for the file system's own journal as well; a sync of a file whose blocks are all
there waits for the disk alone, and takes half the time. So the ends of the partitions that were just written to are
copied into one file that never changes its size, and that file is synced in place of theirs. What is in the
journal counts as durable. The partitions' own files are synced later, many appends at a time; and after a
power loss what they lack is written to them again (`headwater.log.redo`), before anything else looks at them.

    journal     two halves, each with frames one after the other, of which each begins at a page of its own
    frame       magic, CRC-32C of all that follows, sequence, length, and then its entries
    entry       the partition's directory, the segment, the position in its file, the bytes from there on

Invariants:

- An entry repeats bytes that the segment's file has at that very place. Files of segments only grow, so writing
  an entry to its place again, even twice, or after later ones were written there, changes nothing. A cleaned segment
  is another matter: it has the name of an old one and other bytes. Before it gets that name, a durable checkpoint
  says that the old one was synced (`PartitionLog.rest_on`), and entries before a checkpoint are passed over.
- An entry goes to a segment whose name is durable: what has just been begun is synced itself first. So a file that
  is missing was deleted since. Directories carry the ids of topics and queues: a name is never given twice. The
  directory of what is being deleted has another name, and gets its entries as well: a crash may undo the deletion.
- A half is written to again only when every partition with an entry in it was synced beyond that entry. Where one is
  not, because the disk is slow or its sync has failed, rounds sync the partitions themselves until it is.
- Frames of a half have consecutive sequences. What an earlier pass left behind the newest frame does not continue them.
- No page is written to twice in a pass, so a torn write damages nothing that was acknowledged.
- A journal belongs to one life of a process. A clean stop removes it; a start that finds one writes its entries to
  their places, syncs them, and removes it. Until it is gone for good, the same start may be made again.

A journal that cannot be written or synced is not used again, and the partitions are synced instead.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headwater.log.disk import Disk
from headwater.log.partition import PartitionLog
from headwater.log.segment import Segment
from headwater.record.batch import Buffer

logger = logging.getLogger(__name__)

NAME = "journal"
MOST = 1024 * 1024
"""The largest frame: what is more is written once, to where it belongs, and synced there."""
LEAST_BYTES = 4 * MOST
"""The smallest size of the file."""
PAGE = 4096
MAGIC = b"HWJ1"
FRAME = struct.Struct(">4sIQI")
_CRC = struct.Struct(">I")
CHECKED_FROM = len(MAGIC) + _CRC.size
ENTRY = struct.Struct(">HQQI")
_MOST_LOGS = 1024
"""How many partitions may have entries in a half: each has a file open until it is synced."""


class _Place(NamedTuple):
    """Where a partition's log is durable up to, once a frame is."""

    log: PartitionLog
    segment: Segment
    position: int
    offset: int


class JournalWork:
    """A frame to write and sync; begun and ended on the owner's thread, done on any."""

    __slots__ = ("_at", "_data", "_journal", "error", "places")

    def __init__(self, journal: Journal, places: list[_Place], data: memoryview, at: int) -> None:
        self.places = places
        self.error: OSError | None = None
        self._journal = journal
        self._data = data
        self._at = at

    def run(self) -> None:
        """Write the frame, and return when it is on stable storage."""
        try:
            self._journal.write(self._data, self._at)
        except OSError as error:
            self.error = error

    def sync_instead(self) -> None:
        """Where the journal has failed, sync the partitions themselves, here and now."""
        if self.error is not None:
            for place in self.places:
                place.log.sync()

    def end(self) -> None:
        """Let readers see what is durable now, or give the journal up."""
        if self.error is not None:
            self._journal.give_up(self.error)
            return
        for log, segment, position, offset in self.places:
            if offset > log.high_watermark and log.error is None:
                log.show(segment, position, offset)


class Journal:
    """The journal of one data directory, used once `prepare` has made its file."""

    def __init__(self, disk: Disk, root: Path, size: int) -> None:
        self.active = False
        self._full: list[PartitionLog] = []
        self._disk = disk
        self._root = root
        self._half_size = max(size, LEAST_BYTES) // 2 // PAGE * PAGE
        self._fd = -1
        self._half = 0
        self._position = 0
        self._sequence = 0
        self._owing: list[dict[PartitionLog, int]] = [{}, {}]
        self._gone: set[PartitionLog] = set()
        self._buffer = memoryview(bytearray())

    def prepare(self) -> None:
        """Make the file, with all its blocks; any thread may do this."""
        path = self._root / NAME
        zeros = bytes(MOST)
        fresh = path.with_name(NAME + ".new")
        fd = self._disk.open(fresh)
        try:
            for start in range(0, 2 * self._half_size, MOST):
                self._disk.write_all(fd, zeros[: 2 * self._half_size - start], start)
            self._disk.sync(fd)
            self._disk.rename(fresh, path)
            self._disk.sync_directory(self._root)
        except OSError:
            self._disk.close(fd)
            self._disk.remove(fresh)
            raise
        self._fd = fd

    def activate(self) -> None:
        """Use the file that was prepared."""
        self.active = self._fd >= 0
        self._buffer = memoryview(bytearray(MOST))

    def take_full(self) -> list[PartitionLog]:
        """Return the partitions that have entries in a half that is full: it can be used again once they are synced."""
        full, self._full = self._full, []
        return full

    def begin(self, logs: Iterable[PartitionLog]) -> JournalWork | None:
        """Return the work that makes all of these logs durable, or None where they have to be synced themselves.

        It has to be done before the next one begins: there is one buffer.
        """
        if not self.active:
            return None
        places: list[_Place] = []
        buffer, at = self._buffer, FRAME.size
        for log in logs:
            if log.error is not None or log.is_durable:
                continue
            tail = log.tail()
            if tail is None:
                return None
            segment, position = tail
            key, length = self._key(log), segment.size - position
            data_at = at + ENTRY.size + len(key)
            if data_at + length > len(buffer):
                return None
            ENTRY.pack_into(buffer, at, len(key), segment.base_offset, position, length)
            buffer[at + ENTRY.size : data_at] = key
            at = data_at + length
            if not segment.read_into(buffer[data_at:at], position):
                return None
            places.append(_Place(log, segment, segment.size, log.end_offset))
        if not places:
            return JournalWork(self, [], buffer[:0], 0)
        if not self._make_room(at):
            return None
        return self._frame(places, buffer[:at])

    def _frame(self, places: list[_Place], frame: memoryview) -> JournalWork:
        self._sequence += 1
        size = len(frame)
        FRAME.pack_into(frame, 0, MAGIC, 0, self._sequence, size - FRAME.size)
        _CRC.pack_into(frame, len(MAGIC), crc32c(frame[CHECKED_FROM:]))
        work = JournalWork(self, places, frame, self._position)
        owing = self._owing[self._half]
        for place in places:
            owing[place.log] = place.offset
        self._position += -(-size // PAGE) * PAGE
        return work

    def _make_room(self, size: int) -> bool:
        owing = self._owing[self._half]
        if self._position + size <= (self._half + 1) * self._half_size and len(owing) < _MOST_LOGS:
            return True
        other = 1 - self._half
        if not self._is_free(self._owing[other]):
            return False
        self._owing[other].clear()
        self._full += owing
        self._half, self._position = other, other * self._half_size
        return True

    def _is_free(self, owing: dict[PartitionLog, int]) -> bool:
        unsynced = {log for log, offset in owing.items() if log.synced_to < offset}
        if any(not log.abandoned for log in unsynced):
            return False
        # That they are deleted is durable one round after it happened, and a crash may undo it until then.
        gone, self._gone = self._gone, unsynced
        return unsynced <= gone

    def _key(self, log: PartitionLog) -> bytes:
        if log.journal_key is None:
            log.journal_key = str(log.directory.relative_to(self._root)).encode()
        return log.journal_key

    def write(self, data: Buffer, at: int) -> None:
        """Write at a place of the file, and return when that is on stable storage."""
        self._disk.write_all(self._fd, data, at)
        self._disk.sync(self._fd)

    def give_up(self, error: OSError) -> None:
        """Use the journal no more; what is in it already stays until its partitions are synced."""
        if self.active:
            self.active = False
            self._full += (log for half in self._owing for log in half)
            logger.error(
                "the journal failed and is not used any more, partitions are synced instead: %s", error
            )

    def close(self) -> None:
        """Remove the file, unless it has something that a partition's own file may lack."""
        if self._fd < 0:
            return
        self.active = False
        self._disk.close(self._fd)
        self._fd = -1
        owing = [log for half in self._owing for log, offset in half.items() if log.synced_to < offset]
        if all(log.abandoned for log in owing):
            self._disk.remove(self._root / NAME)
