"""The cleaner: a process of its own, of low priority, that compacts segments beside the broker.

The broker writes jobs to its standard input, one JSON object per line, and reads what came of them from its
standard output. The process only reads segments that grow no more and writes files that count for nothing
until the broker puts them in their place (see `swap`): it may be killed at any moment.

A job's segments are cleaned in units. A unit is some segments that follow one another, and the segments that
their remains fit in; it is exchanged as a whole, so a long log needs room for one unit and not for a copy of
itself, and remains of many segments end up in one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crc32c import crc32c

from headwater.log.compaction import MAX_SPAN, Batch, Outcome, Pass, Terms, dense, encode
from headwater.log.disk import Disk
from headwater.log.open_files import OpenFiles
from headwater.log.segment import Segment
from headwater.log.swap import Fresh, Swap, cleaned_paths, sweep
from headwater.log.transactions import Aborted
from headwater.record.batch import HEADER_SIZE, CorruptBatch, Header, checksum, read_header

_CHUNK = 4 * 1024 * 1024
_NICENESS = 10


class SourceDamaged(CorruptBatch):
    """A segment that does not read: cleaning it would make the damage look whole."""


@dataclass(frozen=True, slots=True)
class Source:
    """A segment to be cleaned."""

    base_offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Job:
    """What the cleaner is to do with one partition: all its cleanable segments, oldest first."""

    directory: str
    token: str
    segments: list[Source]
    dirty_from: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval: int
    map_entries: int
    bytes_per_second: float | None = None
    aborted: list[Aborted] = field(default_factory=list)
    last_batches: list[int] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the line that `from_json` reads."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Job:
        """Return the job in a line."""
        content: dict[str, Any] = json.loads(line)
        content["segments"] = [Source(**source) for source in content["segments"]]
        content["aborted"] = [Aborted(*ended) for ended in content["aborted"]]
        return cls(**content)


@dataclass(frozen=True, slots=True)
class Unit:
    """Segments that were cleaned, and may be exchanged; the markers that vanish with that."""

    swap: Swap
    dropped_markers: list[int]


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a job: up to where each key is there once, and when there is more to remove."""

    cleaned_to: int
    horizon_ms: int | None
    records_read: int
    records_kept: int


class Orphaned(Exception):
    """The broker is gone: nobody is there to put anything in place."""


class _Throttle:
    """Keeps reading within a rate, and ends it when the parent process has."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._parent = os.getppid()
        self._began = time.monotonic()
        self._bytes = 0

    def spend(self, size: int) -> None:
        if os.getppid() != self._parent:
            raise Orphaned
        if self._rate is not None:
            self._bytes += size
            ahead = self._bytes / self._rate - (time.monotonic() - self._began)
            if ahead > 0:
                time.sleep(ahead)


class _Output(Segment):
    """A segment under the name it has until it is put in place."""

    __slots__ = ("_token",)

    def __init__(self, files: OpenFiles, directory: Path, base_offset: int, token: str) -> None:
        super().__init__(files, directory, base_offset)
        self._token = token

    @property
    def path(self) -> Path:
        """Where the batches are."""
        return cleaned_paths(self._directory, self.base_offset, self._token)[0]

    @property
    def index_path(self) -> Path:
        """Where the index file is."""
        return cleaned_paths(self._directory, self.base_offset, self._token)[1]


class Cleaning:
    """One job under way."""

    def __init__(self, job: Job, disk: Disk | None = None) -> None:
        self._job = job
        self._disk = disk or Disk()
        self._directory = Path(job.directory)
        self._files = OpenFiles(self._disk, 4)
        self._throttle = _Throttle(job.bytes_per_second)
        self._read_crc = self._written_crc = 0
        self._pass = Pass(
            Terms(
                dirty_from=job.dirty_from,
                now_ms=job.now_ms,
                delete_retention_ms=job.delete_retention_ms,
                map_entries=job.map_entries,
                aborted=tuple(job.aborted),
                last_batches=frozenset(job.last_batches),
            )
        )

    @property
    def outcome(self) -> Outcome:
        """What has been done so far."""
        return self._pass.outcome

    def run(self) -> Iterator[Unit | Done]:
        """Yield each unit once its files are on stable storage, then the end."""
        self._learn()
        sources = [source for source in self._job.segments if source.base_offset < self._pass.mapped_to]
        while sources:
            count, outputs = self._clean_unit(sources)
            cleaned, sources = sources[:count], sources[count:]
            swap = Swap(
                self._job.token,
                [source.base_offset for source in cleaned],
                [Fresh(output.base_offset, output.next_offset, output.size) for output in outputs],
            )
            dropped, self.outcome.dropped_markers = self.outcome.dropped_markers, []
            if self._unchanged(cleaned, outputs):
                for output in outputs:
                    self._disk.remove(output.path)
                    self._disk.remove(output.index_path)
                continue
            yield Unit(swap, dropped)
        outcome = self.outcome
        yield Done(self._pass.mapped_to, outcome.horizon_ms, outcome.records_read, outcome.records_kept)

    def _learn(self) -> None:
        for source in self._job.segments:
            if source.next_offset <= self._job.dirty_from:
                continue
            for data, start, header in self._batches(source):
                if header.last_offset < self._job.dirty_from:
                    continue
                if self._pass.full:
                    return
                self._pass.learn(data, start, header)

    def _unchanged(self, cleaned: list[Source], outputs: list[Segment]) -> bool:
        before = [(source.base_offset, source.size) for source in cleaned]
        after = [(output.base_offset, output.size) for output in outputs]
        return before == after and self._read_crc == self._written_crc

    def _clean_unit(self, sources: list[Source]) -> tuple[int, list[Segment]]:
        """Clean segments until what is left of them fills one; return how many, and what was written."""
        outputs: list[Segment] = []
        writer = _Writer(self._job, self._files, self._directory, outputs)
        self._read_crc = 0
        consumed: list[Source] = []

        def remains() -> Iterator[Batch]:
            for source in sources:
                consumed.append(source)
                yield from self._cleaned(source)
                if writer.written >= self._job.segment_bytes:
                    return

        writer.write(dense(remains(), sources[0].base_offset, lambda: consumed[-1].next_offset))
        for output in outputs:
            output.save_index(output.coverage)
            self._disk.sync(output.descriptor)
            self._files.close(output)
        self._disk.sync_directory(self._directory)
        self._written_crc = writer.crc
        return len(consumed), outputs

    def _cleaned(self, source: Source) -> Iterator[Batch]:
        for data, start, header in self._batches(source):
            self._read_crc = crc32c(memoryview(data)[start : start + header.size], self._read_crc)
            batch = self._pass.clean(data, start, header)
            if batch is not None:
                yield batch

    def _batches(self, source: Source) -> Iterator[tuple[bytes, int, Header]]:
        """Yield (bytes, position in them, header) of every batch of a segment, each verified."""
        segment = Segment(self._files, self._directory, source.base_offset)
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            position, expected = 0, source.base_offset
            while position < source.size:
                data = self._disk.pread(fd, min(_CHUNK, source.size - position), position)
                if len(data) >= HEADER_SIZE and read_header(data).size > len(data):
                    wanted = min(read_header(data).size, source.size - position)
                    data = self._disk.pread(fd, wanted, position)
                self._throttle.spend(len(data))
                at = 0
                while at + HEADER_SIZE <= len(data):
                    header = read_header(data, at)
                    if at + header.size > len(data):
                        break
                    if (
                        header.base_offset != expected
                        or header.size < HEADER_SIZE
                        or checksum(data, at, at + header.size) != header.crc
                    ):
                        raise _damaged(segment, position + at)
                    yield data, at, header
                    at += header.size
                    expected = header.last_offset + 1
                if at == 0:
                    raise _damaged(segment, position)
                position += at
            if expected != source.next_offset:
                raise _damaged(segment, position)
        finally:
            os.close(fd)


class _Writer:
    """Writes batches into as many segments as they take."""

    def __init__(self, job: Job, files: OpenFiles, directory: Path, outputs: list[Segment]) -> None:
        self._job, self._files, self._directory = job, files, directory
        self._outputs = outputs
        self.written = 0
        self.crc = 0

    def write(self, batches: Iterable[tuple[Batch, int]]) -> None:
        """Write batches, each with the last offset that it covers."""
        for batch, last_offset in batches:
            data, header = encode(batch, last_offset)
            output = self._output(header)
            output.append(data, header, header.base_offset, self._job.index_interval)
            self.written += len(data)
            self.crc = crc32c(data, self.crc)

    def _output(self, header: Header) -> Segment:
        if self._outputs:
            last = self._outputs[-1]
            fits = last.size + header.size <= self._job.segment_bytes
            if fits and header.last_offset - last.base_offset <= MAX_SPAN:
                return last
        output = _Output(self._files, self._directory, header.base_offset, self._job.token)
        self._files.disk.remove(output.path)
        self._outputs.append(output)
        return output


def _damaged(segment: Segment, position: int) -> SourceDamaged:
    return SourceDamaged(f"{segment.path.name} does not read at byte {position}")


def main() -> None:
    """Do the jobs on standard input, and tell on standard output what came of them."""
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the broker who ends this process
    for line in sys.stdin:
        job = Job.from_json(line)
        try:
            for step in Cleaning(job).run():
                _say(type(step).__name__.lower(), asdict(step))
        except Orphaned:
            return
        except (CorruptBatch, OSError) as error:
            sweep(Disk(), Path(job.directory), job.token)
            _say("failed", {"reason": str(error), "passing": isinstance(error, OSError)})


def _say(kind: str, content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({kind: content}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
