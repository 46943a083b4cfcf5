"""Checking a data directory against itself, without changing it: every batch, every index, every checkpoint.

A broker may be running on the directory: files are opened for reading only, the end of a partition is where
it was when the check came to it, and a file that retention removes meanwhile is passed over.

What is found is of four kinds. `damage` is bytes that were whole once and do not read any more; their
offsets answer with an error. `torn` is a write that a crash interrupted, never acknowledged, which the next
start cuts off; or an exchange of compacted files (`swap`), which it completes. `journal` is what a loss of power took
from a segment and the journal still has: the next start writes it, and the check goes on as if it had. `index` is an
index file that disagrees with its segment; the broker makes a damaged one again by itself, but one that reads well
and leads elsewhere it would believe.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from headwater.log import archive as archive_file
from headwater.log import checkpoint as checkpoint_file
from headwater.log import index as index_file
from headwater.log import swap as swap_file
from headwater.log.checkpoint import Checkpoint
from headwater.log.disk import Disk
from headwater.log.errors import UnknownFormat
from headwater.log.index import SparseIndex
from headwater.log.redo import Lack, lacking
from headwater.log.scan import Damage, Found, Torn, scan
from headwater.record.batch import read_header

_SEGMENT = re.compile(r"([0-9]{20})\.log")
_TOPIC = re.compile(r"(.+)\.[0-9a-f]{32}")
_REPORT_BYTES = 8 * 1024 * 1024
_SETTLE_TRIES = 20
_SETTLE_SECONDS = 0.1


class Kind(StrEnum):
    """What may be wrong."""

    DAMAGE = "damage"
    TORN = "torn"
    JOURNAL = "journal"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class Finding:
    """A range of one file that is not as it ought to be."""

    kind: Kind
    topic: str
    partition: int
    file: str
    position: int
    end: int
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Progress:
    """So much more was checked."""

    bytes: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment on disk, and what is known about where it ends."""

    topic: str
    partition: int
    path: Path
    base_offset: int
    following: int | None
    """The base offset of the next segment."""
    saved: Checkpoint
    live: bool
    """Whether a broker may be writing to the partition."""
    archived: int | None = None
    """How large it was when it moved to the archive, if it has."""
    directory: Path | None = None
    """The partition's directory, where that is not the one of the file."""
    lacks: tuple[Lack, ...] = ()
    """What it lacks and the journal has."""

    @property
    def index_path(self) -> Path:
        """Where its index is."""
        return (self.directory or self.path.parent) / self.path.with_suffix(".index").name

    @property
    def is_last(self) -> bool:
        """Whether it is the one that grows."""
        return self.following is None


@contextmanager
def hold(data: Path) -> Iterator[bool]:
    """Keep a broker from starting on the directory meanwhile; false where one is running."""
    if not (data / "format").is_file():
        inside = data / "broker"  # where `headwater up` has its broker keep the log
        hint = f"; there is a broker's in {inside}" if (inside / "format").is_file() else ""
        raise UnknownFormat(
            f"{data} is not a data directory of Headwater's: there is no file named format{hint}"
        )
    try:
        fd = os.open(data / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def in_archive(data: Path, topic: str | None = None) -> int:
    """Return how many segments are in an archive."""
    return sum(
        len(archive_file.load(partition) or ())
        for directory in (data / "topics").iterdir()
        if (match := _TOPIC.fullmatch(directory.name)) and topic in (None, match[1])
        for partition in directory.iterdir()
    )


def segments(
    data: Path, topic: str | None = None, *, live: bool, archive: Path | None = None
) -> list[SegmentFile]:
    """Return the segments of all topics, or of one; the broker's own state is a topic here too.

    Those that have moved to an archive are among them where it is given.
    """
    found: list[SegmentFile] = []
    moved = None if archive is None else archive / json.loads((data / "format").read_bytes())["cluster_id"]
    for directory in sorted((data / "topics").iterdir()):
        match = _TOPIC.fullmatch(directory.name)
        if match and topic in (None, match[1]):
            for partition in sorted(directory.iterdir(), key=lambda path: path.name.zfill(10)):
                if moved is not None:
                    there = moved / directory.name / partition.name
                    found += _in_archive(partition, there, match[1], int(partition.name), live=live)
                found += _of_partition(partition, match[1], int(partition.name), live=live)
    for directory in sorted((data / "state").iterdir()):
        if topic in (None, directory.name):
            found += _of_partition(directory, directory.name, 0, live=live)
    # A broker that runs has written to its segments whatever it has written to the journal.
    lacks: dict[Path, list[Lack]] = {}
    for lack in () if live else lacking(Disk(), data):
        lacks.setdefault(lack.path, []).append(lack)
    return [replace(each, lacks=tuple(lacks.get(each.path, ()))) for each in found]


def _in_archive(directory: Path, there: Path, topic: str, partition: int, *, live: bool) -> list[SegmentFile]:
    saved = checkpoint_file.load(directory) or Checkpoint(segment=-1)
    return [
        SegmentFile(
            topic,
            partition,
            there / f"{entry.base_offset:020d}.log",
            entry.base_offset,
            entry.next_offset,
            saved,
            live,
            entry.size,
            directory,
        )
        for entry in archive_file.load(directory) or ()
        if entry.next_offset > saved.start_offset
    ]


def _of_partition(directory: Path, topic: str, partition: int, *, live: bool) -> list[SegmentFile]:
    swap = directory / swap_file.NAME
    for _ in range(_SETTLE_TRIES if live else 0):
        if not swap.exists():
            break
        time.sleep(_SETTLE_SECONDS)  # the broker is in the middle of exchanging files
    # The checkpoint comes first: what it vouches for is then within the files that are listed.
    saved = checkpoint_file.load(directory) or Checkpoint(segment=-1)
    bases = sorted(int(match[1]) for name in os.listdir(directory) if (match := _SEGMENT.fullmatch(name)))
    if swap.exists():
        # A crash stopped an exchange: only a start knows which of the files count.
        return [SegmentFile(topic, partition, swap, 0, None, saved, live)]
    following = [*bases[1:], None]
    return [
        SegmentFile(topic, partition, directory / f"{base:020d}.log", base, after, saved, live)
        for base, after in zip(bases, following, strict=True)
    ]


def verify(segment: SegmentFile) -> Iterator[Finding | Progress]:
    """Yield now and then how much of a segment was checked, and in the end what is wrong with it."""
    if segment.path.name == swap_file.NAME:
        yield Finding(Kind.TORN, segment.topic, segment.partition, segment.path.name, 0, 0, 0, 0)
        return
    checked: SegmentFile | None = segment
    findings: list[Finding] = []
    while checked is not None:
        try:
            fd = os.open(checked.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if segment.archived is not None:
                yield _lost(segment, 0)
            return  # retention or compaction was here, or the archive is away
        findings = []
        try:
            for item in _Check(checked, fd).run():
                if isinstance(item, Finding):
                    findings.append(item)
                elif checked is segment:
                    yield item
            if segment.archived is not None:
                checked = None
                if os.fstat(fd).st_size < segment.archived and not findings:
                    findings.append(_lost(segment, os.fstat(fd).st_size))
            else:
                checked = _replacement(checked, fd) if findings and segment.live else None
        finally:
            os.close(fd)
    yield from findings


def _lost(segment: SegmentFile, size: int) -> Finding:
    assert segment.archived is not None
    assert segment.following is not None
    name, first, following = segment.path.name, segment.base_offset, segment.following
    return Finding(
        Kind.DAMAGE, segment.topic, segment.partition, name, size, segment.archived, first, following
    )


def _replacement(segment: SegmentFile, fd: int) -> SegmentFile | None:
    """Return the segment that compaction put in the place of the open one meanwhile: then nothing said counts."""
    try:
        if os.path.samestat(os.fstat(fd), os.stat(segment.path)):
            return None
    except FileNotFoundError:
        pass
    listed = _of_partition(segment.path.parent, segment.topic, segment.partition, live=True)
    return next((other for other in listed if other.base_offset == segment.base_offset), None)


class _Redone(Disk):
    """A segment's file as it is once it has what it lacks."""

    def __init__(self, lacks: Sequence[Lack]) -> None:
        self._lacks = lacks

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = bytearray(super().pread(fd, size, position))
        for lack in self._lacks:
            start = max(lack.position, position)
            end = min(lack.position + len(lack.data), position + size)
            if start < end:
                data.extend(bytes(max(0, start - position - len(data))))
                data[start - position : end - position] = lack.data[
                    start - lack.position : end - lack.position
                ]
        return bytes(data)


class _Check:
    """The check of one segment."""

    def __init__(self, segment: SegmentFile, fd: int) -> None:
        self._segment = segment
        self._fd = fd
        self._disk = _Redone(segment.lacks) if segment.lacks else Disk()
        self._index, self._indexed = _load_index(segment)
        self._entry = 0
        self._at, self._next_offset = 0, segment.base_offset
        self._batches = self._records = self._reported = 0

    def run(self) -> Iterator[Finding | Progress]:
        """Yield all there is to say."""
        segment = self._segment
        size = max(os.fstat(self._fd).st_size, *(_end(lack) for lack in segment.lacks), 0)
        if segment.lacks:
            yield self._lacking()
        if self._index is None and self._indexed:
            yield self._finding(Kind.INDEX, 0, 0, segment.base_offset, segment.base_offset)
        vouched, until = self._vouched(size)
        if vouched:
            yield from self._walk(min(vouched, size), until)
        yield from self._walk(size, None)
        yield self._progress()

    def _vouched(self, size: int) -> tuple[int, int | None]:
        """Return how many bytes were on stable storage once, and at which offset they end."""
        segment, saved = self._segment, self._segment.saved
        if segment.following is not None and segment.base_offset < saved.segment:
            return max(size, 1), segment.following
        if segment.base_offset == saved.segment:
            return saved.position, saved.next_offset
        return 0, None

    def _walk(self, size: int, until: int | None) -> Iterator[Finding | Progress]:
        tries = _SETTLE_TRIES if self._segment.live and self._segment.is_last else 1
        while tries:
            tries -= 1
            for item in scan(self._disk, self._fd, size, self._at, self._next_offset, until=until):
                if isinstance(item, Found):
                    header = item.header
                    if self._entry_disagrees(item.position, header.base_offset):
                        yield self._finding(
                            Kind.INDEX, item.position, item.position, header.base_offset, header.base_offset
                        )
                    self._at = item.position + header.size
                    self._next_offset = header.last_offset + 1
                    self._batches += 1
                    self._records += header.record_count
                    if self._at - self._reported >= _REPORT_BYTES:
                        yield self._progress()
                elif isinstance(item, Damage):
                    yield self._finding(
                        Kind.DAMAGE, item.position, item.end, item.first_offset, item.next_offset
                    )
                    self._at, self._next_offset = item.end, item.next_offset
                    self._index = None  # the entries around it are of no use to compare
                elif tries:
                    time.sleep(_SETTLE_SECONDS)  # the broker may be in the middle of writing this batch
                else:
                    yield self._torn(item, size)
            if self._at >= size:
                return

    def _lacking(self) -> Finding:
        lacks = self._segment.lacks
        first, last = min(lacks, key=lambda lack: lack.position), max(lacks, key=_end)
        at = 0
        while at < len(last.data):
            header = read_header(last.data, at)
            at += header.size
        begins = read_header(first.data).base_offset
        return self._finding(Kind.JOURNAL, first.position, _end(last), begins, header.last_offset + 1)

    def _torn(self, item: Torn, size: int) -> Finding:
        return self._finding(Kind.TORN, item.position, size, self._next_offset, self._next_offset)

    def _entry_disagrees(self, position: int, base_offset: int) -> bool:
        """Whether the next index entry is not about the batch that begins where it says one begins."""
        index = self._index
        if index is None or self._entry >= len(index) or index.positions[self._entry] > position:
            return False
        relative = base_offset - self._segment.base_offset
        agrees = index.positions[self._entry] == position and index.offsets[self._entry] == relative
        self._entry += 1
        if not agrees:
            self._index = None  # one line is enough: all that follows may be off
        return not agrees

    def _finding(self, kind: Kind, position: int, end: int, first: int, following: int) -> Finding:
        segment = self._segment
        name = segment.path.with_suffix(".index").name if kind is Kind.INDEX else segment.path.name
        return Finding(kind, segment.topic, segment.partition, name, position, end, first, following)

    def _progress(self) -> Progress:
        progress = Progress(self._at - self._reported, self._batches, self._records)
        self._reported, self._batches, self._records = self._at, 0, 0
        return progress


def _end(lack: Lack) -> int:
    return lack.position + len(lack.data)


def _load_index(segment: SegmentFile) -> tuple[SparseIndex | None, bool]:
    """Return the index of a segment, and whether there is a file that ought to hold one."""
    try:
        data = segment.index_path.read_bytes()
    except FileNotFoundError:
        return None, False
    loaded = index_file.decode(data)
    return (None, True) if loaded is None else (loaded[0], True)
