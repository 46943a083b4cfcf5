"""Reading a range of one partition: fetches one ahead, over broker restarts, to exactly its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from headwater.client import EARLIEST, LATEST, BrokerError, Cluster, Unreachable
from headwater.client.fetch import Fetched, begin_fetch, end_fetch
from headwater.core.errors import ErrorCode
from headwater.pipeline.source.errors import RecordsLost, SourceError
from headwater.pipeline.source.opened import OpenedFetch, Records
from headwater.record.batch import read_header

__all__ = ["RangeReader"]

logger = logging.getLogger(__name__)

FETCH_BYTES = 8 * 1024 * 1024
_WAIT_MS = 500
_EMPTY_ANSWERS = 3
"""So many empty answers, though the log goes on, mean that compaction has left nothing here."""
_PAUSE = 0.05
_SLACK = 64 * 1024


class RangeReader:
    """Reads `topic`-`partition` from offset `start` up to and without `end`.

    The next fetch is on its way while the caller works on the last one's records; those are gone when the
    next are asked for, because every fetch is received into the same memory.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, start: int, end: int, *, skip_lost: bool
    ) -> None:
        self._cluster = cluster
        self._place = (topic, partition)
        self._end = end
        self._skip_lost = skip_lost
        self._position = start
        self._node: int | None = None
        self._memory = memoryview(_memory(min(FETCH_BYTES, max(end - start, 1) * 1024) + _SLACK))
        self.bytes_read = 0
        self.skipped = 0

    def __iter__(self) -> Iterator[Records]:
        deadline = time.monotonic() + self._cluster.deadline_seconds
        empty = 0
        try:
            while self._position < self._end:
                try:
                    opened = self._next()
                except (Unreachable, BrokerError) as error:
                    if isinstance(error, BrokerError) and not error.retriable:
                        raise
                    if time.monotonic() > deadline:
                        raise
                    self._abandon()
                    self._cluster.forget()
                    time.sleep(_PAUSE)
                    continue
                if opened is None:
                    empty += 1
                    if empty >= _EMPTY_ANSWERS:
                        return
                    if time.monotonic() > deadline:
                        raise SourceError(f"{self._name}: nothing comes at offset {self._position}")
                    continue
                empty = 0
                deadline = time.monotonic() + self._cluster.deadline_seconds
                first, self._position = self._position, opened.next_offset or self._end
                if self._position < self._end:
                    self._begin()
                yield from opened.records(first, self._end)
        finally:
            self._abandon()

    @property
    def _name(self) -> str:
        return f"{self._place[0]}-{self._place[1]}"

    def _begin(self) -> None:
        node = self._cluster.leader(*self._place)
        connection = self._cluster.connection(node)
        begin_fetch(connection, {self._place: self._position}, max_bytes=FETCH_BYTES, max_wait_ms=_WAIT_MS)
        self._node = node

    def _next(self) -> OpenedFetch | None:
        if self._node is None:
            self._begin()
        assert self._node is not None
        found = end_fetch(self._cluster.connection(self._node), self._memory).get(self._place)
        self._node = None
        if found is None:
            return None  # throttled
        if found.error_code == ErrorCode.offset_out_of_range:
            self._lost()
            return None
        if found.error_code:
            raise BrokerError(found.error_code, self._name)
        return self._opened(found)

    def _opened(self, found: Fetched) -> OpenedFetch | None:
        opened = OpenedFetch(found.records, found.aborted)
        if opened.next_offset is None:
            if found.last_stable_offset >= self._end:
                return None
            raise BrokerError(ErrorCode.offset_not_available, self._name)
        # An answer may begin before the range and go far beyond it: it is what the range has of it that counts.
        begins = min(read_header(found.records).base_offset, self._position)
        taken = min(opened.next_offset, self._end) - self._position
        self.bytes_read += len(found.records) * taken // (opened.next_offset - begins)
        return opened

    def _lost(self) -> None:
        topic, partition = self._place
        first = self._cluster.offsets(topic, {partition: EARLIEST})[partition]
        end = self._cluster.offsets(topic, {partition: LATEST})[partition]
        if not self._skip_lost or self._position > end:
            raise RecordsLost(topic, partition, self._position, first, end)
        logger.warning("%s: offsets %d to %d are gone and are skipped", self._name, self._position, first)
        self.skipped += min(first, self._end) - self._position
        self._position = first

    def _abandon(self) -> None:
        """Hang up where an answer is still to come: the next user of the connection must not get it."""
        if self._node is not None:
            self._cluster.drop(self._node)
            self._node = None


_reused = bytearray()


def _memory(size: int) -> bytearray:
    """Return memory to receive into, kept for the next range: fresh pages cost as much as the copy."""
    global _reused
    if len(_reused) < size:
        _reused = bytearray(size)
    return _reused
