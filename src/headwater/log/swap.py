"""Putting cleaned segments in the place of those they were made from, whatever moment a crash chooses.

    00000000000000000042.TOKEN.cleaned          written and synced by the cleaner
    00000000000000000042.TOKEN.index.cleaned    its index
    swap                                        which segments are replaced by which

The cleaned files count for nothing until `swap` names them: a start removes them. Once `swap` is on stable storage
the exchange has happened: the old files go, the new ones get their names, and a start that finds `swap`
does whatever of this is left to do. Each step may be done twice. Only then does `swap` go.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headwater.log.disk import Disk
from headwater.log.open_files import OpenFiles
from headwater.log.segment import Segment, segment_name

logger = logging.getLogger(__name__)

NAME = "swap"
SUFFIX = ".cleaned"


class Fresh(NamedTuple):
    """A cleaned segment."""

    base_offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Segments that are replaced, by their base offsets, and what replaces them."""

    token: str
    old: list[int]
    new: list[Fresh]

    def save(self, disk: Disk, directory: Path) -> None:
        """Make the exchange a fact."""
        body = json.dumps(asdict(self), separators=(",", ":")).encode()
        disk.write_file(directory / NAME, b"%08x %b\n" % (crc32c(body), body), durable=True)

    def is_whole(self, directory: Path) -> bool:
        """Whether every segment that comes in is there, under one name or the other."""
        return all(
            cleaned_paths(directory, fresh.base_offset, self.token)[0].exists()
            or _size(directory / f"{segment_name(fresh.base_offset)}.log") == fresh.size
            for fresh in self.new
        )

    def move(self, disk: Disk, directory: Path) -> None:
        """Give the new files their names, and set the old ones aside; what was done before is left alone."""
        kept = {fresh.base_offset for fresh in self.new}
        for base in self.old:
            if base in kept and not cleaned_paths(directory, base, self.token)[0].exists():
                continue  # the new one has its name
            # The index goes first: one must never meet a segment that it was not made from.
            for suffix in (".index", ".log"):
                path = directory / f"{segment_name(base)}{suffix}"
                if path.exists():
                    disk.rename(path, self._aside(directory, base, suffix))
        for fresh in self.new:
            cleaned = cleaned_paths(directory, fresh.base_offset, self.token)
            for source, suffix in zip(cleaned, (".log", ".index"), strict=True):
                if source.exists():
                    disk.rename(source, directory / f"{segment_name(fresh.base_offset)}{suffix}")

    def settle(self, disk: Disk, directory: Path) -> None:
        """Make the new names durable, then remove what is no longer needed; any thread may do this."""
        disk.sync_directory(directory)
        disk.remove(directory / NAME)
        for base in self.old:
            for suffix in (".index", ".log"):
                disk.remove(self._aside(directory, base, suffix))

    def _aside(self, directory: Path, base: int, suffix: str) -> Path:
        # Removing a large file takes a while: it is done later, and apart.
        return directory / f"{segment_name(base)}.{self.token}.old{suffix}{SUFFIX}"


def cleaned_paths(directory: Path, base_offset: int, token: str) -> tuple[Path, Path]:
    """Return where the cleaner writes a segment and its index."""
    stem = f"{segment_name(base_offset)}.{token}"
    return directory / f"{stem}{SUFFIX}", directory / f"{stem}.index{SUFFIX}"


def sweep(disk: Disk, directory: Path, token: str = "") -> None:
    """Remove the cleaned files of one job, or of all, unless an exchange that became a fact needs them."""
    names = os.listdir(directory)
    if NAME not in names:
        for name in names:
            if name.endswith(SUFFIX) and token in name:
                disk.remove(directory / name)


def is_unfinished(names: list[str]) -> bool:
    """Whether the names in a partition's directory tell of a cleaning that a crash has interrupted."""
    return NAME in names or any(name.endswith(SUFFIX) for name in names)


def recover(disk: Disk, directory: Path) -> None:
    """Finish an exchange that had become a fact, and remove what never was to be."""
    if (directory / NAME).exists():
        swap = _load(directory / NAME)
        if swap is None or not swap.is_whole(directory):
            logger.error("%s names what is not there: no segment is exchanged", directory / NAME)
            disk.rename(directory / NAME, directory / f"{NAME}{SUFFIX}")
        else:
            swap.move(disk, directory)
            swap.settle(disk, directory)
    sweep(disk, directory)


def fresh_segments(files: OpenFiles, directory: Path, swap: Swap) -> list[Segment]:
    """Return the segments that a finished exchange has put in place."""
    segments = []
    for fresh in swap.new:
        segment = Segment(files, directory, fresh.base_offset)
        segment.open_closed(fresh.size, fresh.next_offset)
        segments.append(segment)
    return segments


def _load(path: Path) -> Swap | None:
    crc, _, body = path.read_bytes().rstrip(b"\n").partition(b" ")
    try:
        if int(crc, 16) != crc32c(body):
            return None
        content = json.loads(body)
        return Swap(content["token"], content["old"], [Fresh(*fresh) for fresh in content["new"]])
    except (ValueError, TypeError, KeyError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
