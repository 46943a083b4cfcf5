"""A partition's checkpoint: what recovery may take as known, and what no batch on disk tells.

    start_offset   where the log begins for its readers (records before it are deleted)
    segment        \\
    position        > everything before this place was on stable storage when this was written
    next_offset    /
    producers      the idempotent producers as of `next_offset`
    aborted        the aborted transactions that have records before `next_offset`

It is replaced as a whole, under a checksum. One that is missing or damaged costs a longer scan and nothing
else, so it need not be synced. A deletion of records is another matter: no batch tells where the log begins
now, nor what the producers of the deleted batches had sent. It writes a second file, `checkpoint.synced`,
which is on stable storage before the deletion is acknowledged, and which nothing but a deletion replaces.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crc32c import crc32c

from headwater.log.disk import Disk

NAME = "checkpoint"
SYNCED = "checkpoint.synced"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What recovery may take as known."""

    start_offset: int = 0
    segment: int = 0
    position: int = 0
    next_offset: int = 0
    producers: list[Any] = field(default_factory=list)
    aborted: list[Any] = field(default_factory=list)

    def save(self, disk: Disk, directory: Path, *, durable: bool) -> None:
        """Replace the checkpoint of the partition in `directory`."""
        body = json.dumps(
            [
                self.start_offset,
                self.segment,
                self.position,
                self.next_offset,
                self.producers,
                self.aborted,
            ],
            separators=(",", ":"),
        ).encode()
        path = directory / (SYNCED if durable else NAME)
        disk.write_file(path, b"%08x %b\n" % (crc32c(body), body), durable=durable)


def load(directory: Path) -> Checkpoint | None:
    """Return the newest checkpoint of the partition in `directory`, or None where there is none that reads."""
    latest, synced = _read(directory / NAME), _read(directory / SYNCED)
    if latest is None or synced is None:
        return latest or synced
    start_offset = max(latest.start_offset, synced.start_offset)
    return replace(max(synced, latest, key=lambda c: c.next_offset), start_offset=start_offset)


def durable_offset(directory: Path) -> int:
    """Return the offset as of which a power loss leaves a checkpoint of the partition in `directory`."""
    synced = _read(directory / SYNCED)
    return 0 if synced is None else synced.next_offset


def is_readable(path: Path) -> bool:
    """Whether a checkpoint's file says what was written to it."""
    return _read(path) is not None


def _read(path: Path) -> Checkpoint | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    crc, _, body = data.rstrip(b"\n").partition(b" ")
    try:
        if int(crc, 16) != crc32c(body):
            return None
        return Checkpoint(*json.loads(body))
    except (ValueError, TypeError):
        return None
