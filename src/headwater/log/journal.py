"""The journal: one small file that a round of syncs writes to, however many partitions it covers.

A sync of a file that grows waits for the file system's own journal as well; a sync of a file whose blocks are all
there waits for the disk alone, and takes half the time. So the ends of the partitions that were just written to are
copied into one file that never changes its size, and that file is synced in place of theirs. What is in the
journal counts as durable. The partitions' own files are synced later, many appends at a time; and after a
power loss what they lack is written to them again, from the journal, before anything else looks at them.

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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headwater.log import checkpoint as checkpoint_file
from headwater.log.disk import Disk
from headwater.log.partition import DROPPED, PartitionLog
from headwater.log.segment import Segment, segment_name
from headwater.record.batch import Buffer

logger = logging.getLogger(__name__)

NAME = "journal"
MOST = 1024 * 1024
"""The largest frame: what is more is written once, to where it belongs, and synced there."""
LEAST_BYTES = 4 * MOST
"""The smallest size of the file."""
_PAGE = 4096
_MAGIC = b"HWJ1"
_FRAME = struct.Struct(">4sIQI")
_CRC = struct.Struct(">I")
_CHECKED_FROM = len(_MAGIC) + _CRC.size
_ENTRY = struct.Struct(">HQQI")
_MOST_LOGS = 1024
"""How many partitions may have entries in a half: each has a file open until it is synced."""
_MOST_OPEN = 64


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
        self._half_size = max(size, LEAST_BYTES) // 2 // _PAGE * _PAGE
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
                _write(self._disk, fd, zeros[: 2 * self._half_size - start], start)
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
        buffer, at = self._buffer, _FRAME.size
        for log in logs:
            if log.error is not None or log.is_durable:
                continue
            tail = log.tail()
            if tail is None:
                return None
            segment, position = tail
            key, length = self._key(log), segment.size - position
            data_at = at + _ENTRY.size + len(key)
            if data_at + length > len(buffer):
                return None
            _ENTRY.pack_into(buffer, at, len(key), segment.base_offset, position, length)
            buffer[at + _ENTRY.size : data_at] = key
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
        _FRAME.pack_into(frame, 0, _MAGIC, 0, self._sequence, size - _FRAME.size)
        _CRC.pack_into(frame, len(_MAGIC), crc32c(frame[_CHECKED_FROM:]))
        work = JournalWork(self, places, frame, self._position)
        owing = self._owing[self._half]
        for place in places:
            owing[place.log] = place.offset
        self._position += -(-size // _PAGE) * _PAGE
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
        unsynced = {log for log, offset in owing.items() if log.owes_sync_of(offset)}
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
        _write(self._disk, self._fd, data, at)
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
        owing = [log for half in self._owing for log, offset in half.items() if log.owes_sync_of(offset)]
        if all(log.abandoned for log in owing):
            self._disk.remove(self._root / NAME)


def _write(disk: Disk, fd: int, data: Buffer, at: int) -> None:
    written = disk.pwrite(fd, data, at)
    while written < len(data):
        written += disk.pwrite(fd, memoryview(data)[written:], at + written)


# -- after a crash -----------------------------------------------------------------------------------


class _Entry(NamedTuple):
    directory: str
    segment: int
    position: int
    data: memoryview


def redo(disk: Disk, root: Path) -> None:
    """Write what a journal has to where it belongs, and remove it; where there is none, do nothing."""
    path = root / NAME
    disk.remove(path.with_name(NAME + ".new"))
    if not path.exists():
        return
    fd = disk.open(path)
    try:
        with _Targets(disk, root) as targets:
            for entries in _in_order(disk, fd):
                for entry in entries:
                    targets.write(entry)
            targets.sync()
    finally:
        disk.close(fd)
    disk.remove(path)
    disk.sync_directory(root)


def _in_order(disk: Disk, fd: int) -> Iterator[list[_Entry]]:
    half = disk.size(fd) // 2
    starts = sorted(
        (0, half), key=lambda start: next((s for s, _ in _frames(disk, fd, start, start + half)), 0)
    )
    for start in starts:
        for _, entries in _frames(disk, fd, start, start + half):
            yield entries


def _frames(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, list[_Entry]]]:
    """Yield the sequences and entries of the frames of a half, as far as they continue one another."""
    expected: int | None = None
    while position + _FRAME.size <= end:
        head = disk.pread(fd, _FRAME.size, position)
        if len(head) < _FRAME.size:
            return
        magic, crc, sequence, length = _FRAME.unpack(head)
        if magic != _MAGIC or expected not in (None, sequence) or length > end - position - _FRAME.size:
            return
        data = head + disk.pread(fd, length, position + _FRAME.size)
        if len(data) < _FRAME.size + length or crc32c(memoryview(data)[_CHECKED_FROM:]) != crc:
            return
        yield sequence, list(_entries(memoryview(data)[_FRAME.size :]))
        expected = sequence + 1
        position += -(-len(data) // _PAGE) * _PAGE


def _entries(body: memoryview) -> Iterator[_Entry]:
    at = 0
    while at < len(body):
        key_size, segment, position, length = _ENTRY.unpack_from(body, at)
        key_at = at + _ENTRY.size
        data_at = key_at + key_size
        at = data_at + length
        yield _Entry(bytes(body[key_at:data_at]).decode(), segment, position, body[data_at:at])


class _Targets:
    """The segments that entries belong to."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._known: dict[str, tuple[int, int]] = {}
        self._open: dict[Path, int] = {}
        self._closed = False
        self._restored = 0

    def __enter__(self) -> _Targets:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open.values():
            self._disk.close(fd)

    def write(self, entry: _Entry) -> None:
        """Write an entry to its place, unless that was synced, or is gone."""
        if (entry.segment, entry.position + len(entry.data)) <= self._synced_to(entry.directory):
            return
        path = self._directory(entry.directory) / f"{segment_name(entry.segment)}.log"
        fd = self._open.get(path)
        if fd is None:
            if not path.exists():
                return
            if len(self._open) == _MOST_OPEN:
                self._disk.close(self._open.pop(next(iter(self._open))))
                self._closed = True
            fd = self._open[path] = self._disk.open(path)
        if self._disk.pread(fd, len(entry.data), entry.position) != entry.data:
            self._restored += len(entry.data)
        # Also what reads as it should: it may be in the page cache alone, of a file whose sync has failed.
        _write(self._disk, fd, entry.data, entry.position)

    def _synced_to(self, directory: str) -> tuple[int, int]:
        """Return the segment and the position up to which a checkpoint says that the partition was synced."""
        if directory not in self._known:
            saved = checkpoint_file.load(self._directory(directory))
            self._known[directory] = (-1, 0) if saved is None else (saved.segment, saved.position)
        return self._known[directory]

    def _directory(self, name: str) -> Path:
        """Return a partition's directory, also where its topic or queue was about to be deleted."""
        path = self._root / name
        if path.exists():
            return path
        topic = path.parent
        moved = [topic.with_name(each + DROPPED) for each in (topic.name, topic.name.rpartition(".")[2])]
        return next((each / path.name for each in moved if each.exists()), path)

    def sync(self) -> None:
        """Make all that was written durable."""
        if self._closed:
            self._disk.sync_all()  # one call, where a sync of each would take a second per five thousand
        else:
            for fd in self._open.values():
                self._disk.sync(fd)
        if self._restored:
            logger.info("the journal had %d bytes that a power loss took from segments", self._restored)
