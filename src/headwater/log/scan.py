"""Walking the batches of a segment file with every checksum verified: recovery and `verify` do this.

What does not read as a batch is one of two things, and they are treated differently:

- **A torn tail**: a write that a crash interrupted. Nothing valid follows, or only zeros lie between
  (space that was claimed and never written). None of it was acknowledged, and it is cut off.
- **Damage**: bytes that changed after they were written. A valid batch follows, and what follows may well
  have been acknowledged, so it stays; the damaged range is reported and answers with an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headwater.log.disk import Disk
from headwater.record.batch import CRC_START, HEADER_SIZE, LENGTH_END, MAGIC, MIN_LENGTH, Header, read_header

_CHUNK = 4 * 1024 * 1024


class Found(NamedTuple):
    """A whole batch with a right checksum."""

    position: int
    header: Header


class Damage(NamedTuple):
    """Bytes between two whole batches that are not whole batches."""

    position: int
    end: int
    first_offset: int
    next_offset: int


class Torn(NamedTuple):
    """Where the whole batches end, though the file does not."""

    position: int


class _Window:
    """A sliding view of a file, so that a scan costs one read per chunk and bounded memory."""

    def __init__(self, disk: Disk, fd: int, size: int) -> None:
        self.disk, self.fd, self.size = disk, fd, size
        self.start, self.data = 0, b""

    def at(self, position: int, length: int) -> memoryview:
        """Return `length` bytes at `position`, or fewer at the end of the file."""
        end = min(position + length, self.size)
        if position < self.start or end > self.start + len(self.data):
            self.start = position
            wanted = min(max(length, _CHUNK), self.size - position)
            self.data = self.disk.pread(self.fd, wanted, position)
        return memoryview(self.data)[position - self.start : end - self.start]


def scan(
    disk: Disk, fd: int, size: int, position: int = 0, next_offset: int = 0
) -> Iterator[Found | Damage | Torn]:
    """Yield what lies in a segment file from `position` on, where `next_offset` is the offset expected there."""
    window = _Window(disk, fd, size)
    while position < size:
        header = _whole_batch(window, position, next_offset)
        if header is not None:
            yield Found(position, header)
            position += header.size
            next_offset = header.last_offset + 1
            continue
        following = _resume(window, position, next_offset)
        if following is None:
            yield Torn(position)
            return
        found = read_header(window.at(following, HEADER_SIZE))
        yield Damage(position, following, next_offset, found.base_offset)
        position = following


def _whole_batch(window: _Window, position: int, least_offset: int) -> Header | None:
    fixed = window.at(position, HEADER_SIZE)
    if len(fixed) < HEADER_SIZE:
        return None
    header = read_header(fixed)
    if header.magic != MAGIC or header.length < MIN_LENGTH or header.base_offset < least_offset:
        return None
    if header.last_offset_delta < 0 or position + header.size > window.size:
        return None
    body = window.at(position, header.size)
    if crc32c(body[CRC_START:]) != header.crc:
        return None
    if header.base_offset > least_offset:
        # A gap is what compaction leaves, or a damaged base offset, which no checksum covers: the
        # batch that follows tells.
        following = window.at(position + header.size, HEADER_SIZE)
        if len(following) == HEADER_SIZE and read_header(following).base_offset <= header.last_offset:
            return None
    return header


def _resume(window: _Window, position: int, next_offset: int) -> int | None:
    """Return where the next whole batch begins, or None when the rest is a torn tail."""
    fixed = window.at(position, LENGTH_END)
    if len(fixed) == LENGTH_END:
        length = int.from_bytes(fixed[8:12], "big", signed=True)
        neighbour = position + LENGTH_END + length
        if length >= MIN_LENGTH and neighbour < window.size and _whole_batch(window, neighbour, next_offset):
            return None if _only_zeros(window, position, neighbour) else neighbour
    # The length itself is damaged: look for the next batch by its shape. Offsets that follow share
    # their upper four bytes with the expected one (or have just carried into them).
    high = next_offset >> 32
    shape = re.compile(
        b"(?=(?:%b|%b).{12}\x02)"
        % (re.escape(high.to_bytes(4, "big")), re.escape((high + 1).to_bytes(4, "big"))),
        re.DOTALL,
    )
    start = position + 1
    while start < window.size:
        chunk = bytes(window.at(start, _CHUNK))
        for match in shape.finditer(chunk):
            candidate = start + match.start()
            if _whole_batch(window, candidate, next_offset):
                return None if _only_zeros(window, position, candidate) else candidate
        if start + len(chunk) >= window.size:
            return None
        start += len(chunk) - LENGTH_END - 5
    return None


def _only_zeros(window: _Window, start: int, end: int) -> bool:
    while start < end:
        part = bytes(window.at(start, min(_CHUNK, end - start)))
        if part.count(0) != len(part):
            return False
        start += len(part)
    return True
