"""One segment of a partition's log: a file of record batches, named after its first offset.

    00000000000000000042.log      whole batches, one after the other, exactly as they will be fetched
    00000000000000000042.index    the sparse index of it, written when the segment is closed or checkpointed

Only the last segment of a partition grows. A segment holds an open file only while it is in use; thousands
of idle partitions hold none. All methods belong to one thread; a sync may run elsewhere on the descriptor
that `pin` has handed out.

Batches appended in this process were verified on their way in. What an earlier process wrote is verified
when it is first read (`read` tracks which bytes), so damage on disk becomes an error and never a record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from headwater.log import index as index_file
from headwater.log.disk import Disk
from headwater.log.errors import DamagedRange
from headwater.log.index import Coverage, SparseIndex
from headwater.log.scan import Damage, Found, Torn, scan
from headwater.record.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    NO_TIMESTAMP,
    Buffer,
    Header,
    read_header,
)

_WALK = 64 * 1024


def segment_name(base_offset: int) -> str:
    """Return the stem of a segment's file names: twenty digits, so that names sort as offsets do."""
    return f"{base_offset:020d}"


class OpenFiles:
    """The files that segments hold open, least recently used first, within a limit."""

    def __init__(self, disk: Disk, limit: int = 1024) -> None:
        self.disk = disk
        self._limit = limit
        self._segments: OrderedDict[Segment, int] = OrderedDict()

    def descriptor(self, segment: Segment) -> int:
        """Return the segment's descriptor, opening its file where necessary."""
        fd = self._segments.get(segment)
        if fd is not None:
            self._segments.move_to_end(segment)
            return fd
        if len(self._segments) >= self._limit:
            self._evict()
        fd = self._segments[segment] = self.disk.open(segment.path)
        return fd

    def close(self, segment: Segment) -> None:
        """Close the segment's file if it is open."""
        fd = self._segments.pop(segment, None)
        if fd is not None:
            self.disk.close(fd)

    def _evict(self) -> None:
        for segment in self._segments:
            if not segment.pins:
                self.close(segment)
                return


class Segment:
    """A file of record batches and what is known about it."""

    __slots__ = (
        "_checked",
        "_files",
        "_index",
        "_indexed_to",
        "base_offset",
        "first_timestamp",
        "max_position",
        "max_timestamp",
        "next_offset",
        "path",
        "pins",
        "size",
        "trusted_from",
    )

    def __init__(self, files: OpenFiles, directory: Path, base_offset: int) -> None:
        self._files = files
        self.path = directory / f"{segment_name(base_offset)}.log"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_position = 0
        self.pins = 0
        # Bytes from `trusted_from` on were verified by this process as they came; of those before,
        # the range `_checked` has been verified since.
        self.trusted_from = 0
        self._checked = (0, 0)
        self._index: SparseIndex | None = None
        self._indexed_to = 0

    @property
    def index_path(self) -> Path:
        """Where the index file is."""
        return self.path.with_suffix(".index")

    @property
    def descriptor(self) -> int:
        """The open file."""
        return self._files.descriptor(self)

    @property
    def index(self) -> SparseIndex:
        """The index, read from its file or made again by a scan when it is first needed."""
        if self._index is None:
            self._index = self._load_index() if self.size else SparseIndex()
        return self._index

    # -- writing ---------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: Header, base_offset: int, index_interval: int) -> None:
        """Write a batch that already carries `base_offset`; on failure the segment is as it was."""
        position = self.size
        fd = self._files.descriptor(self)
        disk = self._files.disk
        total = len(batch)
        try:
            written = disk.pwrite(fd, batch, position)
            while written < total:
                written += disk.pwrite(fd, memoryview(batch)[written:], position + written)
        except OSError:
            disk.truncate(fd, position)
            raise
        self._note(position, total, header, base_offset, index_interval)

    def _note(self, position: int, size: int, header: Header, base_offset: int, index_interval: int) -> None:
        timestamp = header.max_timestamp
        index = self.index
        if position - self._indexed_to >= index_interval:
            index.add(base_offset - self.base_offset, position, self.max_timestamp)
            self._indexed_to = position
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_position = position
        if self.first_timestamp == NO_TIMESTAMP:
            self.first_timestamp = timestamp
        self.size = position + size
        self.next_offset = base_offset + header.last_offset_delta + 1

    # -- opening ---------------------------------------------------------------------------------

    def open_closed(self, size: int, next_offset: int) -> None:
        """Take a segment that is no longer written to as it is; its index is read when needed."""
        self.size = self.trusted_from = size
        self.next_offset = next_offset
        coverage = self._read_coverage()
        if coverage is None or coverage.position != size:
            self.rebuild()
        else:
            self._take(coverage)

    def open_at(self, size: int, position: int) -> int:
        """Trust the file up to `position` as far as an index covers it; return where a scan must begin."""
        self.size = self.trusted_from = 0
        self.next_offset = self.base_offset
        if position == 0:
            return 0
        loaded = self._read_index()
        if loaded is None or not 0 < loaded[1].position <= min(size, position):
            return 0
        self._index, coverage = loaded
        self._take(coverage)
        self.size = self.trusted_from = coverage.position
        self.next_offset = coverage.next_offset
        self._indexed_to = self._index.positions[-1] if len(self._index) else 0
        return coverage.position

    def recover(self, size: int, index_interval: int) -> tuple[list[Found], list[Damage], Torn | None]:
        """Read all that lies beyond what is known, and cut off a torn tail."""
        found: list[Found] = []
        damaged: list[Damage] = []
        torn: Torn | None = None
        fd = self.descriptor
        for item in scan(self._files.disk, fd, size, self.size, self.next_offset):
            if isinstance(item, Found):
                found.append(item)
                self._note(
                    item.position, item.header.size, item.header, item.header.base_offset, index_interval
                )
            elif isinstance(item, Damage):
                damaged.append(item)
                self.index.add(item.next_offset - self.base_offset, item.end, self.max_timestamp)
                self._indexed_to = self.size = item.end
                self.next_offset = item.next_offset
            else:
                torn = item
                self._files.disk.truncate(fd, item.position)
        if damaged:
            self.trusted_from = self.size  # the scan walked past the damage; reads must see it
        return found, damaged, torn

    def rebuild(self) -> None:
        """Make the index again from the batches; a torn end of a closed segment is left as damage."""
        size = self._files.disk.size(self.descriptor)
        next_offset = self.next_offset
        self._index = SparseIndex()
        self.size, self.next_offset, self._indexed_to = 0, self.base_offset, 0
        self.first_timestamp = self.max_timestamp = NO_TIMESTAMP
        for item in scan(self._files.disk, self.descriptor, size, 0, self.base_offset):
            if isinstance(item, Found):
                self._note(item.position, item.header.size, item.header, item.header.base_offset, 4096)
            elif isinstance(item, Damage):
                self._index.add(item.next_offset - self.base_offset, item.end, self.max_timestamp)
                self._indexed_to = item.end
        self.size = self.trusted_from = size
        self.next_offset = max(next_offset, self.next_offset)
        self.save_index()

    def save_index(self) -> None:
        """Write the index file; it is checked when read, so it need not be synced."""
        coverage = Coverage(
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.max_position
        )
        self._files.disk.write_file(self.index_path, self.index.encode(coverage), durable=False)

    def forget_index(self) -> None:
        """Drop the index from memory; it is on disk."""
        self._index = None

    def _take(self, coverage: Coverage) -> None:
        self.first_timestamp = coverage.first_timestamp
        self.max_timestamp = coverage.max_timestamp
        self.max_position = coverage.max_position

    def _read_coverage(self) -> Coverage | None:
        try:
            with self.index_path.open("rb") as file:
                header = file.read(index_file.HEADER_SIZE)
                return index_file.read_coverage(header, self.index_path.stat().st_size)
        except FileNotFoundError:
            return None

    def _read_index(self) -> tuple[SparseIndex, Coverage] | None:
        try:
            return index_file.decode(self.index_path.read_bytes())
        except FileNotFoundError:
            return None

    def _load_index(self) -> SparseIndex:
        loaded = self._read_index()
        if loaded is None:
            self.rebuild()
            assert self._index is not None
            return self._index
        return loaded[0]

    # -- reading ---------------------------------------------------------------------------------

    def locate(self, offset: int, end: int) -> int:
        """Return the position of the batch that holds `offset`, or of the next one after a gap.

        `end` bounds the walk. Raises `DamagedRange` where the offset lies in bytes that do not read.
        """
        relative, position = self.index.floor(offset - self.base_offset)
        if self.base_offset + relative == offset:
            return position
        return self._walk(
            position, self.base_offset + relative, end, lambda h: h.last_offset >= offset, offset
        )

    def locate_time(self, timestamp: int, end: int) -> int:
        """Return the position of the first batch with a record at or after `timestamp`, or `end`."""
        relative, position = self.index.before_time(timestamp)
        return self._walk(
            position, self.base_offset + relative, end, lambda h: h.max_timestamp >= timestamp, None
        )

    def _walk(
        self, position: int, least: int, end: int, wanted: Callable[[Header], bool], offset: int | None
    ) -> int:
        disk, fd = self._files.disk, self.descriptor
        data, start = b"", position
        while position + HEADER_SIZE <= end:
            if position + HEADER_SIZE > start + len(data):
                start = position
                data = disk.pread(fd, min(_WALK, end - position), position)
            header = read_header(data, position - start)
            if not _plausible(header, least, self.next_offset) or position + header.size > end:
                least, position = self._past_damage(position, offset, end)
                continue
            if wanted(header):
                return position
            position += header.size
            least = header.last_offset + 1
        return end

    def _past_damage(self, position: int, offset: int | None, end: int) -> tuple[int, int]:
        resume = self.index.ceiling(position)
        following, place = (
            (self.next_offset, end) if resume is None else (self.base_offset + resume[0], resume[1])
        )
        if offset is not None and offset < following:
            raise DamagedRange(f"the batch that holds offset {offset} is damaged on disk at byte {position}")
        return following, place

    def read(self, position: int, size: int, end: int) -> bytes | memoryview:
        """Return up to `size` bytes of batches at `position`, at least one whole batch, not beyond `end`.

        The last batch may be cut off, as in every Kafka fetch. Raises `DamagedRange` when the first
        batch fails its checksum; a later one that fails ends the bytes before it.
        """
        disk, fd = self._files.disk, self.descriptor
        wanted = min(size, end - position)
        data = disk.pread(fd, max(wanted, LENGTH_END), position)
        whole = LENGTH_END + int.from_bytes(data[8:12], "big", signed=True)
        if whole > len(data) and HEADER_SIZE <= whole <= end - position:
            data = disk.pread(fd, whole, position)
        if position >= self.trusted_from or (
            self._checked[0] <= position and self._checked[1] >= position + len(data)
        ):
            return data
        return self._verified(data, position)

    def _verified(self, data: bytes, position: int) -> memoryview:
        view = memoryview(data)
        at, total, least = 0, len(data), self.base_offset
        while total - at >= HEADER_SIZE:
            header = read_header(data, at)
            following = at + header.size
            if not _plausible(header, least, self.next_offset) or following > total:
                break
            if crc32c(view[at + CRC_START : following]) != header.crc:
                break
            # The base offset is outside the checksum: the batch after it must not contradict it.
            if (
                total - following >= HEADER_SIZE
                and read_header(data, following).base_offset <= header.last_offset
            ):
                break
            at, least = following, header.last_offset + 1
        if at == 0:
            raise DamagedRange(f"a batch is damaged on disk at byte {position} of {self.path.name}")
        low, high = self._checked
        self._checked = (low, position + at) if low <= position <= high else (position, position + at)
        return view[:at]


def _plausible(header: Header, least_offset: int, next_offset: int) -> bool:
    """Whether a header can stand where offsets from `least_offset` up to `next_offset` are expected."""
    return (
        header.magic == MAGIC
        and header.length >= MIN_LENGTH
        and header.last_offset_delta >= 0
        and least_offset <= header.base_offset < next_offset
    )
