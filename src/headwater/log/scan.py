"""Walking the batches of a segment file with every checksum verified: recovery and `verify` do this.

A log is dense: each batch begins at the offset where the one before it ends. So the offset of every batch
is known beforehand, and a base offset that changed on disk, which no checksum covers, is found out.

What does not read as the batch that ought to be there is one of two things, and they are treated differently:

- **A torn tail**: a write that a crash interrupted. The file ends within the batch, or a block of it that was
  claimed and never written reads as zeros. None of it was acknowledged, nor was anything after it,
  because a sync makes durable all that comes before: it is cut off.
- **Damage**: bytes that changed after they were written. They may have been acknowledged, as may what
  follows them, so all of it stays; the damaged range is reported and answers with an error.

Where a checkpoint vouches that a part of the file was on stable storage, nothing in that part is torn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headwater.log.disk import Disk
from headwater.record.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    Header,
    read_header,
    write_header,
)

_CHUNK = 4 * 1024 * 1024
_BLOCK = 4096
"""What file systems allocate and write as one."""


class Found(NamedTuple):
    """A whole batch with a right checksum, at the offset where it belongs."""

    position: int
    header: Header


class Damage(NamedTuple):
    """Bytes that held the offsets from `first_offset` up to `next_offset`, and do not read."""

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

    def crc(self, start: int, end: int, value: int = 0) -> int:
        """Return the CRC-32C of a range after `value`, however long a damaged header says it is."""
        while start < end:
            part = self.at(start, min(end - start, _CHUNK))
            if not part:
                break
            value = crc32c(part, value)
            start += len(part)
        return value

    def zeros(self, start: int, end: int) -> bool:
        """Whether a range of at most one block holds nothing but zeros."""
        part = bytes(self.at(start, end - start))
        return part.count(0) == len(part)


def scan(
    disk: Disk, fd: int, size: int, position: int = 0, next_offset: int = 0, *, until: int | None = None
) -> Iterator[Found | Damage | Torn]:
    """Yield what lies in a segment file from `position` on, where `next_offset` is the offset expected there.

    `until` is the offset at which the region of `size` bytes ends, where something vouches for it:
    whatever of it does not read is then damage, even at its end.
    """
    window = _Window(disk, fd, size)
    while position < size:
        header = _intact(window, position)
        if header is not None and header.base_offset == next_offset:
            yield Found(position, header)
            position += header.size
            next_offset = header.last_offset + 1
            continue
        damage = _damage(window, position, next_offset, header, until)
        if damage is None:
            yield Torn(position)
            return
        yield damage
        position, next_offset = damage.end, damage.next_offset
    if until is not None and next_offset < until:
        yield Damage(size, size, next_offset, until)  # the file lost its end


def _intact(window: _Window, position: int) -> Header | None:
    """Return the header of a whole batch with a right checksum, whatever offset it claims."""
    fixed = window.at(position, HEADER_SIZE)
    if len(fixed) < HEADER_SIZE:
        return None
    header = read_header(fixed)
    if header.magic != MAGIC or header.length < MIN_LENGTH or header.last_offset_delta < 0:
        return None
    end = position + header.size
    if end > window.size or window.crc(position + CRC_START, end) != header.crc:
        return None
    return header


def _damage(
    window: _Window, position: int, next_offset: int, header: Header | None, until: int | None
) -> Damage | None:
    """Return the damage at `position`, or None where it is the beginning of a torn tail."""
    if header is not None:
        # The batch is sound but for its base offset: what the one before it says, counts.
        if until is None and _unwritten(window, position, position + LENGTH_END, next_offset):
            return None
        return Damage(
            position, position + header.size, next_offset, next_offset + header.last_offset_delta + 1
        )
    following = _following(window, position, next_offset)
    if following is not None:
        if until is None and _unwritten(window, position, following, next_offset):
            return None
        base_offset = read_header(window.at(following, HEADER_SIZE)).base_offset
        return Damage(position, following, next_offset, base_offset)
    if until is not None:
        return Damage(position, window.size, next_offset, until)
    return _damaged_last(window, position, next_offset)


def _damaged_last(window: _Window, position: int, next_offset: int) -> Damage | None:
    """Return the damage to the last batch of a file, or None where it was never written whole."""
    fixed = window.at(position, HEADER_SIZE)
    if len(fixed) < HEADER_SIZE:
        return None
    header = read_header(fixed)
    span = header.last_offset_delta + 1
    if window.crc(position + CRC_START, window.size) != header.crc:
        whole = (
            header.magic == MAGIC
            and header.base_offset == next_offset
            and position + header.size == window.size
        )
        if not whole or _unwritten(window, position, window.size, next_offset):
            return None
        span = _span(window, position, header)
    return Damage(position, window.size, next_offset, next_offset + max(span, 1))


def _span(window: _Window, position: int, header: Header) -> int:
    """Return how many offsets a damaged batch held, when no batch after it tells.

    Both the last offset delta and the record count say it. Where they disagree, one of them is what changed:
    the one that makes the checksum right when it stands for both.
    """
    spans = header.last_offset_delta + 1, header.record_count
    if spans[0] == spans[1]:
        return spans[0]
    fixed = bytearray(HEADER_SIZE)
    for span in spans:
        if 0 < span < 2**31:
            write_header(fixed, 0, header._replace(last_offset_delta=span - 1, record_count=span))
            start = crc32c(memoryview(fixed)[CRC_START:])
            if window.crc(position + HEADER_SIZE, window.size, start) == header.crc:
                return span
    return max(spans)  # no offset is given twice, whatever else changed


def _following(window: _Window, position: int, next_offset: int) -> int | None:
    """Return where the next whole batch begins."""
    fixed = window.at(position, LENGTH_END)
    if len(fixed) == LENGTH_END:
        length = int.from_bytes(fixed[8:12], "big", signed=True)
        neighbour = position + LENGTH_END + length
        if length >= MIN_LENGTH and neighbour < window.size and _resumes(window, neighbour, next_offset):
            return neighbour
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
            if _resumes(window, candidate, next_offset):
                return candidate
        if start + len(chunk) >= window.size:
            return None
        start += len(chunk) - LENGTH_END - 5
    return None


def _resumes(window: _Window, position: int, next_offset: int) -> bool:
    fixed = window.at(position, HEADER_SIZE)
    if len(fixed) < HEADER_SIZE or read_header(fixed).base_offset <= next_offset:
        return False
    return _intact(window, position) is not None


def _unwritten(window: _Window, start: int, end: int, next_offset: int) -> bool:
    """Whether a block in the range was never written: it reads as zeros where something else belongs.

    The first block may hold earlier batches too: then the zeros begin at `start`, in the batch's header,
    where few of them may be right. The last block may hold the batch that follows, and is then written.
    """
    boundary = min(end, (start // _BLOCK + 1) * _BLOCK)
    size = boundary - start
    if window.zeros(start, boundary) and (size > LENGTH_END or any(next_offset.to_bytes(8, "big")[:size])):
        return True
    while boundary < end:
        start, boundary = boundary, min(end, boundary + _BLOCK)
        if (boundary % _BLOCK == 0 or boundary == window.size) and window.zeros(start, boundary):
            return True
    return False
