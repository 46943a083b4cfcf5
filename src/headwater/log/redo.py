"""After a crash: what the journal has is written to the segments it belongs to, before anything else looks at them.

What a journal is made of, and why all of this may be done twice, is said at the head of `headwater.log.journal`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headwater.log import checkpoint as checkpoint_file
from headwater.log.disk import Disk
from headwater.log.journal import CHECKED_FROM, ENTRY, FRAME, MAGIC, NAME, PAGE
from headwater.log.partition import DROPPED
from headwater.log.segment import segment_name

logger = logging.getLogger(__name__)

_MOST_OPEN = 64


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


class Lack(NamedTuple):
    """Bytes that a segment lacks, and where they belong."""

    path: Path
    position: int
    data: memoryview


def lacking(disk: Disk, root: Path) -> Iterator[Lack]:
    """Yield what `redo` would write that is not there yet, in its order, without changing anything."""
    try:
        fd = disk.open_existing(root / NAME)
    except FileNotFoundError:
        return
    try:
        targets = _Targets(disk, root)
        for entries in _in_order(disk, fd):
            for entry in entries:
                path = targets.place(entry)
                if path is not None and _read(disk, path, entry) != entry.data:
                    yield Lack(path, entry.position, entry.data)
    finally:
        disk.close(fd)


def _read(disk: Disk, path: Path, entry: _Entry) -> bytes:
    fd = disk.open_existing(path)
    try:
        return disk.pread(fd, len(entry.data), entry.position)
    finally:
        disk.close(fd)


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
    while position + FRAME.size <= end:
        head = disk.pread(fd, FRAME.size, position)
        if len(head) < FRAME.size:
            return
        magic, crc, sequence, length = FRAME.unpack(head)
        if magic != MAGIC or expected not in (None, sequence) or length > end - position - FRAME.size:
            return
        data = head + disk.pread(fd, length, position + FRAME.size)
        if len(data) < FRAME.size + length or crc32c(memoryview(data)[CHECKED_FROM:]) != crc:
            return
        yield sequence, list(_entries(memoryview(data)[FRAME.size :]))
        expected = sequence + 1
        position += -(-len(data) // PAGE) * PAGE


def _entries(body: memoryview) -> Iterator[_Entry]:
    at = 0
    while at < len(body):
        key_size, segment, position, length = ENTRY.unpack_from(body, at)
        key_at = at + ENTRY.size
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

    def place(self, entry: _Entry) -> Path | None:
        """Return the file that an entry belongs to, unless it was synced there, or that is gone."""
        if (entry.segment, entry.position + len(entry.data)) <= self._synced_to(entry.directory):
            return None
        path = self._directory(entry.directory) / f"{segment_name(entry.segment)}.log"
        return path if path in self._open or path.exists() else None

    def write(self, entry: _Entry) -> None:
        """Write an entry to its place, where it has one."""
        path = self.place(entry)
        if path is None:
            return
        fd = self._open.get(path)
        if fd is None:
            if len(self._open) == _MOST_OPEN:
                self._disk.close(self._open.pop(next(iter(self._open))))
                self._closed = True
            fd = self._open[path] = self._disk.open(path)
        if self._disk.pread(fd, len(entry.data), entry.position) != entry.data:
            self._restored += len(entry.data)
        # Also what reads as it should: it may be in the page cache alone, of a file whose sync has failed.
        self._disk.write_all(fd, entry.data, entry.position)

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
