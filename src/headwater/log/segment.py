"""One segment of a partition's log: a file of record batches, named after its first offset.

    00000000000000000042.log      whole batches, one after the other, exactly as they will be fetched
    00000000000000000042.index    the sparse index of it, written when the segment is closed or checkpointed

Only the last segment of a partition grows. A segment holds an open file only while it is in use; thousands
of idle partitions hold none. All methods belong to one thread; a sync may run elsewhere on the descriptor
that a pin keeps open.

A log is dense: each batch begins at the offset where the one before it ends, so the base offset of every
batch is known beforehand, and a damaged one, which no checksum covers, is found out.
Batches appended in this process were verified on their way in. What an earlier process wrote is verified
when it is first read (`read` tracks which bytes), so damage on disk becomes an error and never a record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from headwater.log import index as index_file
from headwater.log.cold import HOT_BYTES, NotCached
from headwater.log.errors import DamagedRange
from headwater.log.index import ENTRY_SIZE, Coverage, SparseIndex
from headwater.log.open_files import OpenFiles
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

logger = logging.getLogger(__name__)

_WALK = 64 * 1024
_REBUILT_INTERVAL = 4096


def segment_name(base_offset: int) -> str:
    """Return the stem of a segment's file names: twenty digits, so that names sort as offsets do."""
    return f"{base_offset:020d}"


class Segment:
    """A file of record batches and what is known about it."""

    __slots__ = (
        "_checked",
        "_directory",
        "_files",
        "_index",
        "_indexed_to",
        "_saved_to",
        "archive",
        "base_offset",
        "first_timestamp",
        "max_position",
        "max_timestamp",
        "next_offset",
        "pins",
        "retired",
        "size",
        "trusted_from",
        "warm",
    )

    def __init__(
        self, files: OpenFiles, directory: Path, base_offset: int, archive: Path | None = None
    ) -> None:
        self._files = files
        self._directory = directory
        self.archive = archive
        """The directory that the batches have moved to; their index stays where it was."""
        self.warm = (0, 0)
        """The range of an archived segment that was last brought into the page cache."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_position = 0
        self.pins = 0
        self.retired = False
        # Bytes from `trusted_from` on were verified by this process as they came; of those before,
        # the range `_checked` has been verified since.
        self.trusted_from = 0
        self._checked = (0, 0)
        self._index: SparseIndex | None = None
        self._indexed_to = 0
        self._saved_to = -1

    @property
    def path(self) -> Path:
        """Where the batches are."""
        return (self.archive or self._directory) / f"{segment_name(self.base_offset)}.log"

    @property
    def index_path(self) -> Path:
        """Where the index file is."""
        return self._directory / f"{segment_name(self.base_offset)}.index"

    @property
    def descriptor(self) -> int:
        """The open file."""
        return self._files.descriptor(self)

    @property
    def index(self) -> SparseIndex:
        """The index, read from its file or made again by a scan when it is first needed."""
        index = self._index
        if index is None:
            index = self._index = self._load_index() if self.size else SparseIndex()
        if self._saved_to == self.size:
            self._files.use_index(self, ENTRY_SIZE * len(index))
        return index

    @property
    def coverage(self) -> Coverage:
        """What is known of the segment as it is now."""
        return Coverage(
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.max_position
        )

    # -- writing ---------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: Header, base_offset: int, index_interval: int) -> None:
        """Write a batch that already carries `base_offset`; on failure the segment is as it was."""
        position = self.size
        fd = self._files.descriptor(self)
        disk = self._files.disk
        try:
            disk.write_all(fd, batch, position)
        except OSError:
            disk.truncate(fd, position)
            raise
        self._note(position, len(batch), header, base_offset, index_interval)

    def read_into(self, buffer: memoryview, position: int) -> bool:
        """Fill a buffer with bytes that were just appended; false where they cannot be read."""
        try:
            return self._files.disk.pread_into(self.descriptor, buffer, position) == len(buffer)
        except OSError:
            return False

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
        if coverage is None or coverage.position != size or coverage.next_offset != next_offset:
            self.rebuild()
        else:
            self._take(coverage)

    def open_archived(self, coverage: Coverage) -> None:
        """Take a segment of the archive as it was when it moved there."""
        self.size = self.trusted_from = coverage.position
        self.next_offset = coverage.next_offset
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
        if loaded[1].next_offset <= self.base_offset:
            return 0  # the index of another segment
        self._index, coverage = loaded
        self._take(coverage)
        self.size = self.trusted_from = coverage.position
        self.next_offset = coverage.next_offset
        self._indexed_to = self._index.positions[-1] if len(self._index) else 0
        return coverage.position

    def recover(
        self, size: int, vouched: int, vouched_offset: int, index_interval: int
    ) -> Iterator[Found | Damage | Torn]:
        """Read all that lies beyond what is known, telling what was found, and cut off a torn tail.

        The first `vouched` bytes were on stable storage once, and end at `vouched_offset`.
        """
        disk, fd = self._files.disk, self.descriptor
        if self.size < vouched:
            region = scan(disk, fd, min(size, vouched), self.size, self.next_offset, until=vouched_offset)
            yield from self._learn(region, index_interval)
        for item in self._learn(scan(disk, fd, size, self.size, self.next_offset), index_interval):
            if isinstance(item, Torn):
                disk.truncate(fd, item.position)
            yield item

    def rebuild(self) -> None:
        """Make the index again from the batches of a segment that is no longer written to."""
        size, next_offset = self._files.disk.size(self.descriptor), self.next_offset
        self._index = SparseIndex()
        self.size, self.next_offset, self._indexed_to = 0, self.base_offset, 0
        self.first_timestamp = self.max_timestamp = NO_TIMESTAMP
        self.max_position = 0
        region = scan(self._files.disk, self.descriptor, size, 0, self.base_offset, until=next_offset)
        for _ in self._learn(region, _REBUILT_INTERVAL):
            pass
        self.size = self.trusted_from = size
        self.next_offset = next_offset
        self.save_index(self.coverage)

    def remake_index(self) -> None:
        """Make a missing index file of a segment that grows no more; any thread may do this."""
        if not self.index_path.exists():
            files = OpenFiles(self._files.disk)
            twin = Segment(files, self._directory, self.base_offset, self.archive)
            twin.next_offset = self.next_offset
            try:
                twin.rebuild()
            finally:
                files.close(twin)

    def _learn(
        self, items: Iterator[Found | Damage | Torn], index_interval: int
    ) -> Iterator[Found | Damage | Torn]:
        for item in items:
            if isinstance(item, Found):
                header = item.header
                self._note(item.position, header.size, header, header.base_offset, index_interval)
            elif isinstance(item, Damage):
                # The entry lets look-ups of what follows pass the damage by.
                self.index.add(item.next_offset - self.base_offset, item.end, self.max_timestamp)
                self._indexed_to = self.size = item.end
                self.next_offset = item.next_offset
                self.trusted_from = item.end  # the scan went past the damage; reads must see it
            yield item

    def save_index(self, coverage: Coverage) -> None:
        """Write the index file; it is checked when read, and can be made again, so it need not be synced."""
        if coverage.position == self._saved_to:
            return
        try:
            self._files.disk.write_file(self.index_path, self.index.encode(coverage), durable=False)
        except OSError as error:
            logger.warning("the index %s could not be written: %s", self.index_path, error)
        else:
            self._saved_to = coverage.position

    def close_index(self) -> None:
        """Write the index of a segment that grows no more, and drop it from memory."""
        if self._saved_to != self.size:
            self.save_index(self.coverage)
            self.drop_index()

    def drop_index(self) -> None:
        """Drop the index from memory, unless it holds more than its file."""
        if self._saved_to == self.size:
            self._index = None

    def _take(self, coverage: Coverage) -> None:
        self.first_timestamp = coverage.first_timestamp
        self.max_timestamp = coverage.max_timestamp
        self.max_position = coverage.max_position
        self._saved_to = coverage.position

    def _read_coverage(self) -> Coverage | None:
        try:
            with self.index_path.open("rb") as file:
                header = file.read(index_file.HEADER_SIZE)
                return index_file.read_coverage(header, self.index_path.stat().st_size)
        except OSError:
            return None

    def _read_index(self) -> tuple[SparseIndex, Coverage] | None:
        try:
            return index_file.decode(self.index_path.read_bytes())
        except OSError:
            return None

    def _load_index(self) -> SparseIndex:
        loaded = self._read_index()
        if loaded is None or loaded[1].position != self.size:
            self._saved_to = -1
            self.rebuild()
            assert self._index is not None
            return self._index
        return loaded[0]

    # -- reading ---------------------------------------------------------------------------------

    def probe(self, offset: int, size: int, end: int, *, grows: bool) -> None:
        """Raise `NotCached` where reading `size` bytes from an offset on would wait for the disk."""
        self._probe_index()
        position = self.index.floor(offset - self.base_offset)[1]
        if grows and end - position <= HOT_BYTES:
            return
        self._probe_range(position, min(size, end - position), end)

    def _probe_index(self) -> None:
        if self._index is None and self.size:
            raise NotCached(self, 0, 0, 0)

    def _probe_range(self, position: int, size: int, end: int) -> None:
        if self.archive is not None:
            # Its file system may be one that cannot tell, and far away.
            cached = self._files.is_open(self) and self.warm[0] <= position <= position + size <= self.warm[1]
        else:
            disk, fd = self._files.disk, self.descriptor
            cached = disk.cached(fd, position) and disk.cached(fd, position + max(size, 1) - 1)
        if not cached:
            raise NotCached(self, position, size, end)

    def locate(self, offset: int, end: int) -> tuple[int, int]:
        """Return the position and base offset of the batch that holds `offset`.

        `end` bounds the walk. Raises `DamagedRange` where the offset lies in bytes that do not read.
        """
        index = self.index
        relative, position = index.floor(offset - self.base_offset)
        base_offset = self.base_offset + relative
        if base_offset == offset:
            return position, base_offset
        following = index.ceiling(position)
        if following is not None and following[1] < end:
            end = following[1]
        for place, header in self._headers(position, base_offset, end):
            if header.last_offset >= offset:
                return place, header.base_offset
        raise self._damaged(position)

    def since(self, timestamp: int, end: int, *, probe: bool = False) -> Iterator[tuple[int, int]]:
        """Yield the position and base offset of each batch with a record at or after `timestamp`."""
        if probe:
            self._probe_index()
        relative, position = self.index.before_time(timestamp)
        if probe:
            self._probe_range(position, min(_WALK, end - position), end)
        for place, header in self._headers(position, self.base_offset + relative, end):
            if header.max_timestamp >= timestamp:
                yield place, header.base_offset

    def latest(self, offset: int, end: int, *, probe: bool = False) -> list[tuple[int, int]]:
        """Return the position and base offset of the batches among which the largest timestamp is.

        Only records from `offset` on count, in batches before the position `end`: a batch that begins
        before `offset` may or may not have it in a record that counts.
        """
        if probe:
            self._probe_index()
            self._probe_range(self.max_position, min(_WALK, end - self.max_position), end)
        if self.base_offset >= offset and self.max_position < end:
            relative, place = self.index.at_or_before(self.max_position)
            for position, header in self._headers(place, self.base_offset + relative, end):
                if position == self.max_position:
                    return [(position, header.base_offset)]
        best: list[tuple[int, int]] = []
        cut: list[tuple[int, int]] = []
        largest = NO_TIMESTAMP
        for position, header in self._headers(*self.locate(max(offset, self.base_offset), end), end):
            if header.base_offset < offset:
                cut = [(position, header.base_offset)]
            elif header.max_timestamp > largest:
                largest, best = header.max_timestamp, [(position, header.base_offset)]
        return cut + best

    def _headers(self, position: int, base_offset: int, end: int) -> Iterator[tuple[int, Header]]:
        """Yield the batches' headers from a place on; raise `DamagedRange` at one that cannot be there."""
        disk, fd = self._files.disk, self.descriptor
        data, start = b"", position
        while position < end:
            if position + HEADER_SIZE > start + len(data):
                start = position
                data = disk.pread(fd, min(_WALK, end - position), position)
            if position + HEADER_SIZE > start + len(data):
                raise self._damaged(position)
            header = read_header(data, position - start)
            if not self._belongs(header, base_offset) or position + header.size > end:
                raise self._damaged(position)
            yield position, header
            position += header.size
            base_offset = header.last_offset + 1

    def read(self, position: int, size: int, end: int, base_offset: int) -> bytes | memoryview:
        """Return up to `size` bytes of batches at `position`, at least one whole batch, not beyond `end`.

        The first one ought to begin at `base_offset`. The last one may be cut off, as in every Kafka
        fetch. Raises `DamagedRange` when the first batch is damaged; a later one that is ends the bytes
        before it.
        """
        if position >= end:
            raise self._damaged(position)  # the file lost its end, and the batch with it
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
        return self._verified(data, position, base_offset)

    def _verified(self, data: bytes, position: int, base_offset: int) -> memoryview:
        view = memoryview(data)
        at, total = 0, len(data)
        while total - at >= HEADER_SIZE:
            header = read_header(data, at)
            following = at + header.size
            if not self._belongs(header, base_offset) or following > total:
                break
            if crc32c(view[at + CRC_START : following]) != header.crc:
                break
            at, base_offset = following, header.last_offset + 1
        if at == 0:
            raise self._damaged(position)
        low, high = self._checked
        end = position + at
        self._checked = (low, max(high, end)) if low <= position <= high else (position, end)
        return view[:at]

    def _belongs(self, header: Header, base_offset: int) -> bool:
        """Whether a header can be the one of the batch that begins at `base_offset`."""
        return (
            header.base_offset == base_offset
            and header.magic == MAGIC
            and header.length >= MIN_LENGTH
            and 0 <= header.last_offset_delta < self.next_offset - base_offset
        )

    def _damaged(self, position: int) -> DamagedRange:
        return DamagedRange(
            f"a batch is damaged on disk at byte {position} of {segment_name(self.base_offset)}.log"
        )
