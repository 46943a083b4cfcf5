"""What segments hold open, files and indexes: as few as the limits say, whatever the number of partitions."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from headwater.log.disk import Disk

if TYPE_CHECKING:
    from headwater.log.segment import Segment

_INDEX_BYTES = 32 * 1024 * 1024
"""What the indexes of segments that grow no more may hold: that of 1 GB takes 4 MB."""


class OpenFiles:
    """What segments hold open, files and indexes, least recently used first, each within a limit."""

    def __init__(self, disk: Disk, limit: int = 1024, index_bytes: int = _INDEX_BYTES) -> None:
        self.disk = disk
        self._limit = limit
        self._segments: OrderedDict[Segment, int] = OrderedDict()
        self._index_limit = index_bytes
        self._indexes: OrderedDict[Segment, int] = OrderedDict()
        self._index_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def descriptor(self, segment: Segment) -> int:
        """Return the segment's descriptor, opening its file where necessary."""
        fd = self._segments.get(segment)
        if fd is not None:
            self._segments.move_to_end(segment)
            return fd
        if len(self._segments) >= self._limit:
            self._evict()
        opening = self.disk.open if segment.archive is None else self.disk.open_existing
        fd = self._segments[segment] = opening(segment.path)
        return fd

    def is_open(self, segment: Segment) -> bool:
        """Whether a segment's file is open."""
        return segment in self._segments

    def adopt(self, segment: Segment, fd: int) -> None:
        """Take over the descriptor of a segment that is not open here."""
        if len(self._segments) >= self._limit:
            self._evict()
        self._segments[segment] = fd

    def use_index(self, segment: Segment, size: int) -> None:
        """Take note that an index was used that has a file too; the least recently used make room for it."""
        if segment in self._indexes:
            self._indexes.move_to_end(segment)
            return
        self._indexes[segment] = size
        self._index_bytes += size
        while self._index_bytes > self._index_limit and len(self._indexes) > 1:
            oldest, size = self._indexes.popitem(last=False)
            self._index_bytes -= size
            oldest.drop_index()

    def close(self, segment: Segment) -> None:
        """Close the segment's file if it is open, at once or when the last pin is gone."""
        if segment.pins:
            segment.retired = True
            return
        if segment in self._indexes:
            self._index_bytes -= self._indexes.pop(segment)
            segment.drop_index()
        fd = self._segments.pop(segment, None)
        if fd is not None:
            self.disk.close(fd)

    def unpin(self, segment: Segment) -> None:
        """Let go of a descriptor that another thread was using."""
        segment.pins -= 1
        if segment.retired and not segment.pins:
            self.close(segment)

    def _evict(self) -> None:
        for segment in self._segments:
            if not segment.pins:
                self.close(segment)
                return
