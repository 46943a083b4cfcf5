"""The archive: another directory, on cheaper storage, that old segments move to while they stay readable.

    ARCHIVE/CLUSTER/TOPIC.ID/PARTITION/00000000000000000042.log     the batches, byte for byte
    DATA/topics/TOPIC.ID/PARTITION/00000000000000000042.index       their index, which stays
    DATA/topics/TOPIC.ID/PARTITION/archived                         which segments have moved

A segment moves as a whole, oldest first, so what is in the archive is a beginning of the log. It is copied under
another name, synced and renamed; then `archived` names it, on stable storage; then the file in the data
directory goes. So at every moment one of the two is whole, and `archived` says which counts: a start that finds a
file that has moved removes it. What lies in the archive and is not named is what a crash left, of a copy or of a
deletion; `sweep` removes it.

`archived` also says how far each segment goes, so that opening a log does not touch the archive: a broker starts
while it is away, and only who reads what is there gets an error. What it holds is verified when it is read, like
everything that another process wrote.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headwater.log.disk import Disk
from headwater.log.index import Coverage
from headwater.log.open_files import OpenFiles
from headwater.log.segment import Segment

logger = logging.getLogger(__name__)

NAME = "archived"
UNKNOWN = "no-archive"
"""Stands for the directory of an archive that nobody has named."""
_CHUNK = 1024 * 1024
_COPY = ".new"


class Archived(NamedTuple):
    """A segment in the archive, and all that has to be known of it to read it."""

    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    max_position: int

    def open(self, files: OpenFiles, directory: Path, archive: Path) -> Segment:
        """Return the segment, without a look at the archive."""
        segment = Segment(files, directory, self.base_offset, archive)
        segment.open_archived(
            Coverage(self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.max_position)
        )
        return segment


def load(directory: Path) -> list[Archived] | None:
    """Return the segments of the partition in `directory` that have moved, in order; None where that cannot be told."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return []
    crc, _, body = data.rstrip(b"\n").partition(b" ")
    try:
        if int(crc, 16) == crc32c(body):
            return [Archived(*entry) for entry in json.loads(body)]
    except (ValueError, TypeError):
        pass
    return None


def entry(segment: Segment) -> Archived:
    """Return what has to be known of a segment in the archive."""
    coverage = segment.coverage
    return Archived(
        segment.base_offset,
        coverage.next_offset,
        coverage.position,
        coverage.first_timestamp,
        coverage.max_timestamp,
        coverage.max_position,
    )


def save(disk: Disk, directory: Path, entries: Sequence[Archived]) -> None:
    """Make it a fact, on stable storage, that these segments of the partition in `directory` have moved."""
    body = json.dumps(entries, separators=(",", ":")).encode()
    disk.write_file(directory / NAME, b"%08x %b\n" % (crc32c(body), body), durable=True)


def copy(disk: Disk, source: Path, target: Path, paced: Callable[[int], object]) -> None:
    """Copy a file that nobody writes to any more, and return when the copy is on stable storage.

    `paced` is called with the bytes of each step, and may take its time. Any thread may do this.
    """
    _make_directories(disk, target.parent)
    fresh = target.with_name(target.name + _COPY)
    reading = disk.open_existing(source)
    try:
        writing = disk.open(fresh)
        try:
            disk.truncate(writing, 0)
            position = 0
            while data := disk.pread(reading, _CHUNK, position):
                disk.write_all(writing, data, position)
                position += len(data)
                paced(len(data))
            disk.sync(writing)
        finally:
            disk.close(writing)
    except OSError:
        disk.remove(fresh)
        raise
    finally:
        disk.close(reading)
    disk.rename(fresh, target)
    disk.sync_directory(target.parent)


def _make_directories(disk: Disk, directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        disk.make_directory(path)
        disk.sync_directory(path.parent)


def sweep(disk: Disk, directory: Path, kept: Collection[str]) -> None:
    """Remove what a crash has left in a partition's directory of the archive; any thread may do this."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        if name not in kept and name.endswith((".log", _COPY)):
            disk.remove(directory / name)
